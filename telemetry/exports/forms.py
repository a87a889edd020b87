"""The form of an export: it parses the input; `ExportSpec.checked` validates it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext_lazy

from accounts.models import Tenant, User
from core.errors import FalconWebError
from core.forms import add_service_errors
from core.language import _, gettext_noop
from core.week import DAYS, WEEK
from fabric.inventory.models import Chassis
from telemetry.delivery.formats import FACILITIES
from telemetry.events.filters import EventFilter
from telemetry.events.models import EventSeverity, EventSource
from telemetry.exports.formats import COLUMNS, DEFAULT_COLUMNS
from telemetry.exports.models import ExportDefinition, ExportFormat, ExportSchedule, ExportSpan, ExportTarget
from telemetry.exports.options import MAX_NAME_LENGTH, MAX_SECRET_LENGTH, ExportOptions, ExportSpec, filter_to_json
from telemetry.exports.times import ScheduleTimes, schedule_times

TEXT_FIELDS = ("q", "person", "since", "until", "last")
CHOICE_FIELDS = ("source", "severity", "chassis", "tenant")
LIST_FIELDS = ("message", "device", "port", "drawer", "host")
OPTIONS = tuple(one.name for one in fields(ExportOptions))
# Names of services to names of fields, where these differ.
RENAMED = {"target": "destination", "filter": "q"}


def _text_field(label: str, help_text: str = "", **more: Any) -> forms.CharField:
    widget = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    return forms.CharField(
        label=gettext_lazy(label),
        required=False,
        max_length=2000,
        help_text=gettext_lazy(help_text),
        widget=widget,
        **more,
    )


def _number_field(label: str, help_text: str, initial: int) -> forms.IntegerField:
    return forms.IntegerField(
        label=gettext_lazy(label), required=False, help_text=gettext_lazy(help_text), initial=initial
    )


def _choice_field(label: str, choices: Any, initial: str, **more: Any) -> forms.ChoiceField:
    return forms.ChoiceField(
        label=gettext_lazy(label), choices=choices, initial=initial, widget=forms.RadioSelect, **more
    )


def _filter_field(label: str, choices: Any = (), help_text: str = "") -> forms.MultipleChoiceField:
    widget = forms.CheckboxSelectMultiple
    return forms.MultipleChoiceField(
        label=gettext_lazy(label), choices=choices, required=False, widget=widget, help_text=gettext_lazy(help_text)
    )


class ExportForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=MAX_NAME_LENGTH, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    q = _text_field(gettext_noop("Text"), gettext_noop("Events that contain all of these words."))
    severity = _filter_field(gettext_noop("Severity"), EventSeverity.choices, gettext_noop("None ticked: all."))
    source = _filter_field(gettext_noop("Source"), EventSource.choices, gettext_noop("None ticked: all."))
    chassis = _filter_field(gettext_noop("Chassis"))
    tenant = _filter_field(gettext_noop("Tenant"))
    message = _text_field(
        gettext_noop("Messages"), gettext_noop("Names separated by commas, such as ResourceEvent.ResourceChanged.")
    )
    person = _text_field(gettext_noop("Person"))
    since = _text_field(
        gettext_noop("From (UTC)"), gettext_noop("A day, or a day and a time: 2026-03-02 or 2026-03-02T10:00.")
    )
    until = _text_field(gettext_noop("Until (UTC)"))
    last = _text_field(
        gettext_noop("The last"), gettext_noop("Such as 90m, 24h or 7d, counted back from the request of a run.")
    )
    device = _text_field(gettext_noop("Devices"), gettext_noop("Numbers from addresses of pages, separated by commas."))
    port = _text_field(gettext_noop("Ports"))
    drawer = _text_field(gettext_noop("Drawers"))
    host = _text_field(gettext_noop("Hosts"))
    format = _choice_field(gettext_noop("Format"), ExportFormat.choices, ExportFormat.CSV)
    columns = forms.MultipleChoiceField(
        label=gettext_lazy("Columns"),
        choices=[(name, gettext_lazy(one.words)) for name, one in COLUMNS.items()],
        initial=DEFAULT_COLUMNS,
        widget=forms.CheckboxSelectMultiple,
    )
    facility = forms.ChoiceField(
        label=gettext_lazy("Facility"), choices=[(name, name) for name in FACILITIES], initial="local0", required=False,
        help_text=gettext_lazy("Of syslog messages."),
    )  # fmt: skip
    cef_version = forms.TypedChoiceField(
        label=gettext_lazy("Version of CEF"), choices=[("0", "CEF:0"), ("1", "CEF:1")], coerce=int, required=False
    )
    destination = _choice_field(gettext_noop("Target"), ExportTarget.choices, ExportTarget.DOWNLOAD)
    address = _text_field(
        gettext_noop("Address"),
        gettext_noop(
            "Of a webhook https://host/path; of a syslog server udp://, tcp:// or tls://host:port. No names or "
            "passwords."
        ),
    )
    ca = forms.CharField(
        label=gettext_lazy("CA certificate (PEM)"), required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text=gettext_lazy("Where the system does not trust the issuer of the server’s certificate."),
    )  # fmt: skip
    secret = forms.CharField(
        label=gettext_lazy("Secret"), required=False, max_length=MAX_SECRET_LENGTH, strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy("Requests are signed with it. Empty: unchanged."),
    )  # fmt: skip
    unsigned = forms.BooleanField(label=gettext_lazy("Delete the secret: sign nothing"), required=False)
    folder = _text_field(gettext_noop("Folder"), gettext_noop("Below the folder of exports, such as audit/siem."))
    gzip = forms.BooleanField(label=gettext_lazy("Compress (gzip)"), required=False)
    keep_files = _number_field(gettext_noop("Files kept"), gettext_noop("The newest of this export; 0: all."), 20)
    keep_days = _number_field(gettext_noop("Days kept"), gettext_noop("0: without limit."), 90)
    minutes = _number_field(
        gettext_noop("Longest run, in minutes"), gettext_noop("One that takes longer stops, and can be resumed."), 1440
    )
    batch = _number_field(gettext_noop("Events in a request"), gettext_noop("1 to 1,000."), 500)
    schedule = _choice_field(gettext_noop("When"), ExportSchedule.choices, ExportSchedule.NONE, required=False)
    on_days = _filter_field(
        gettext_noop("Days"),
        [(str(day), gettext_lazy(DAYS[day])) for day in WEEK],
        gettext_noop("None ticked: each day."),
    )
    at_hours = _filter_field(
        gettext_noop("Hours (UTC)"),
        [(str(hour), f"{hour:02}") for hour in range(24)],
        gettext_noop("None ticked: each hour."),
    )
    at_minute = forms.IntegerField(label=gettext_lazy("Minute"), required=False, min_value=0, max_value=59, initial=0)
    cron = _text_field(
        gettext_noop("Own schedule (cron, UTC)"),
        gettext_noop("In place of days and hours: minute, hour, day, month, day of the week, such as 15 3 1 * *."),
    )
    span = _choice_field(
        gettext_noop("Events of a run"), ExportSpan.choices, ExportSpan.ALL, required=False,
        help_text=gettext_lazy("A stream always takes new events."),
    )  # fmt: skip
    from_now = forms.BooleanField(
        label=gettext_lazy("Skip events until now"), required=False,
        help_text=gettext_lazy("For new events only: otherwise it starts with the oldest event."),
    )  # fmt: skip

    def __init__(
        self,
        data: QueryDict | None = None,
        *,
        person: User,
        definition: ExportDefinition | None = None,
        initial: Mapping[str, Any] | None = None,
    ) -> None:
        self._definition = definition
        self.focused = ""  # name of the focused field
        known: dict[str, Any] = {**(_initial(definition) if definition else {}), **(initial or {})}
        super().__init__(data, initial=known)
        for name, rows in (("chassis", Chassis.objects.visible_to(person)), ("tenant", Tenant.objects.all())):
            choices = [(str(pk), text) for pk, text in rows.order_by("name").values_list("pk", "name")]
            existing = {key for key, _name in choices}
            # Removed rows stay selected until they are deselected.
            choices += [(key, _removed_words(name, key)) for key in known.get(name, []) if key not in existing]
            field: Any = self.fields[name]
            field.choices = choices
        if definition is not None:
            del self.fields["from_now"]
        if definition is None or not definition.secret_encrypted:
            del self.fields["unsigned"]

    def spec(self) -> ExportSpec:
        values = self.cleaned_data
        given: dict[str, Any] = {
            name: values[name] for name in (*TEXT_FIELDS, *CHOICE_FIELDS, *LIST_FIELDS) if values[name]
        }
        typed = {name: values[name] for name in OPTIONS if values.get(name) not in {None, ""}}
        secret = "" if values.get("unsigned") else values["secret"] or None
        return ExportSpec(
            name=values["name"],
            format=values["format"],
            target=values["destination"],
            filter=given,
            columns=self._columns(values["columns"]),
            options=ExportOptions.of(typed),
            schedule=values["schedule"] or ExportSchedule.NONE,
            cron=values["cron"] or self._times(values).cron,
            span=values["span"] or ExportSpan.ALL,
            enabled=self._definition.enabled if self._definition else True,
            secret=secret,
        )

    def _times(self, values: Mapping[str, Any]) -> ScheduleTimes:
        return ScheduleTimes(
            values["at_minute"] or 0, tuple(map(int, values["at_hours"])), tuple(map(int, values["on_days"]))
        )

    def _columns(self, chosen: list[str]) -> list[str]:
        """Return columns in their previous order, which a form does not transmit."""
        before = self._definition.columns if self._definition else []
        return [*(name for name in before if name in chosen), *(name for name in chosen if name not in before)]

    def groups(self) -> Iterator[tuple[str, str, list[forms.BoundField]]]:
        """Yield the parts of the form: key, label and fields."""
        for key, words, names in (
            ("what", _("Which events"), ("severity", "source", "chassis", "tenant", "q", "since", "until", "last")),
            ("more", _("More filters"), ("message", "person", "device", "port", "drawer", "host")),
            ("how", _("Format"), ("format", "columns", "facility", "cef_version")),
            ("where", _("Target"), (
                "destination", "address", "ca", "secret", "unsigned", "batch", "folder", "gzip", "keep_files",
                "keep_days",
            )),
            ("when", _("When"), (
                "schedule", "on_days", "at_hours", "at_minute", "cron", "span", "from_now", "minutes",
            )),
        ):  # fmt: skip
            yield key, words, [self[name] for name in names if name in self.fields]

    def wrong(self) -> list[forms.BoundField]:
        """Return the fields with errors, in the order of the page."""
        order = [self["name"], *(field for _key, _words, group in self.groups() for field in group)]
        return [field for field in order if field.errors]

    def focus_wrong(self) -> None:
        """Focus the first wrong field; a group of choices is focused as a whole, by its template."""
        for field in self.wrong()[:1]:
            self.focused = field.name
            if not isinstance(field.field.widget, forms.RadioSelect | forms.CheckboxSelectMultiple):
                field.field.widget.attrs["autofocus"] = True

    def add_errors_of(self, error: FalconWebError) -> None:
        errors = {RENAMED.get(name, name): sentence for name, sentence in error.details.get("errors", {}).items()}
        add_service_errors(self, FalconWebError(error.sentence, errors=errors))


def _removed_words(kind: str, key: str) -> str:
    return _("chassis {key}, removed", key=key) if kind == "chassis" else _("tenant {key}, removed", key=key)


def initial_from_query(given: QueryDict) -> dict[str, Any]:
    """Return initial values of a form from the query of a search for events; raises Invalid."""
    return _filter_initial(filter_to_json(EventFilter.of(given)))


def _initial(row: ExportDefinition) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in ("name", "format", "columns", "schedule", "cron", "span")}
    if (times := schedule_times(row.cron)) is not None:
        values |= {"cron": "", "at_minute": times.minute, "at_hours": times.hours, "on_days": times.days}
    return {**values, "destination": row.target, **row.options, **_filter_initial(row.filter)}


def _filter_initial(kept: Mapping[str, list[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {name: kept[name] for name in CHOICE_FIELDS if name in kept}
    found |= {name: ", ".join(kept[name]) for name in LIST_FIELDS if name in kept}
    return found | {name: kept[name][0] for name in TEXT_FIELDS if name in kept}
