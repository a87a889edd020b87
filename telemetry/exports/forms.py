"""The form of an export: it reads what was typed; `Wanted.checked` decides whether it may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from django import forms
from django.http import QueryDict

from accounts.models import Tenant, User
from fabric.models import Chassis
from falconweb.errors import FalconWebError
from telemetry.delivery.syslog import FACILITIES
from telemetry.events.filters import Filter
from telemetry.events.models import Severity, Source
from telemetry.exports.columns import COLUMNS, USUAL
from telemetry.exports.models import ExportDefinition, Format, Kind, Schedule, Span
from telemetry.exports.options import LONGEST_NAME, LONGEST_SECRET, Options, Wanted, filter_kept

ONE_TEXT = ("q", "person", "since", "until", "last")
SEVERAL = ("source", "severity", "chassis", "tenant")
BY_COMMAS = ("message", "device", "port", "drawer", "host")
OPTIONS = tuple(one.name for one in fields(Options))
# What the services call it, where a form of another room has the name.
RENAMED = {"target": "destination", "filter": "q"}


def _text(label: str, help_text: str = "", **more: Any) -> forms.CharField:
    widget = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    return forms.CharField(label=label, required=False, max_length=2000, help_text=help_text, widget=widget, **more)


def _number(label: str, help_text: str, initial: int) -> forms.IntegerField:
    return forms.IntegerField(label=label, required=False, help_text=help_text, initial=initial)


class ExportForm(forms.Form):
    """What, how, whereto and when."""

    name = forms.CharField(label="Name", max_length=LONGEST_NAME, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    q = _text("Text", "Words that all have to be in it.")
    severity = forms.MultipleChoiceField(
        label="Severity", choices=Severity.choices, required=False, widget=forms.CheckboxSelectMultiple,
        help_text="None ticked: all.",
    )  # fmt: skip
    source = forms.MultipleChoiceField(
        label="Source", choices=Source.choices, required=False, widget=forms.CheckboxSelectMultiple,
        help_text="None ticked: all.",
    )  # fmt: skip
    chassis = forms.MultipleChoiceField(label="Chassis", required=False, widget=forms.CheckboxSelectMultiple)
    tenant = forms.MultipleChoiceField(label="Tenant", required=False, widget=forms.CheckboxSelectMultiple)
    message = _text("Messages", "Names apart by commas, such as ResourceEvent.ResourceChanged.")
    person = _text("Person")
    since = _text("From (UTC)", "A day, or a day and a time: 2026-03-02 or 2026-03-02T10:00.")
    until = _text("Until (UTC)")
    last = _text("The last", "Such as 90m, 24h or 7d, counted from when a run is asked for.")
    device = _text("Devices", "Numbers, as addresses have them, apart by commas.")
    port = _text("Ports")
    drawer = _text("Drawers")
    host = _text("Hosts")
    format = forms.ChoiceField(label="Format", choices=Format.choices, widget=forms.RadioSelect, initial=Format.CSV)
    columns = forms.MultipleChoiceField(
        label="Columns",
        choices=[(name, one.words) for name, one in COLUMNS.items()],
        initial=USUAL,
        widget=forms.CheckboxSelectMultiple,
    )
    facility = forms.ChoiceField(
        label="Facility", choices=[(name, name) for name in FACILITIES], initial="local0", required=False,
        help_text="Of syslog messages.",
    )  # fmt: skip
    cef_version = forms.TypedChoiceField(
        label="Version of CEF", choices=[("0", "CEF:0"), ("1", "CEF:1")], coerce=int, required=False
    )
    destination = forms.ChoiceField(
        label="Target", choices=Kind.choices, widget=forms.RadioSelect, initial=Kind.DOWNLOAD
    )
    address = _text(
        "Address",
        "Of a webhook https://host/path; of a syslog server udp://, tcp:// or tls://host:port. No names or passwords.",
    )
    ca = forms.CharField(
        label="CA certificate (PEM)", required=False, widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text="Where the system does not trust who signed the server’s certificate.",
    )  # fmt: skip
    secret = forms.CharField(
        label="Secret", required=False, max_length=LONGEST_SECRET, strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="Requests are signed with it. Empty: as it is.",
    )  # fmt: skip
    unsigned = forms.BooleanField(label="Forget the secret: sign nothing", required=False)
    folder = _text("Folder", "Below the folder of exports, such as audit/siem.")
    gzip = forms.BooleanField(label="Pack it (gzip)", required=False)
    keep_files = _number("Files kept", "The newest of this export; 0: all.", 20)
    keep_days = _number("Days kept", "0: for ever.", 90)
    minutes = _number("Longest run, in minutes", "One that takes longer stops, and can be resumed.", 1440)
    batch = _number("Events in a request", "1 to 1,000.", 500)
    schedule = forms.ChoiceField(
        label="When", choices=Schedule.choices, widget=forms.RadioSelect, initial=Schedule.NONE, required=False
    )
    cron = _text("Schedule (cron, UTC)", "Minute, hour, day, month, day of the week: 15 3 * * * is 03:15 each day.")
    span = forms.ChoiceField(
        label="What a run takes", choices=Span.choices, widget=forms.RadioSelect, initial=Span.ALL, required=False,
        help_text="All the time takes what is new, always.",
    )  # fmt: skip
    from_now = forms.BooleanField(
        label="Leave out what has happened until now", required=False,
        help_text="For what takes what is new: else it begins with the oldest event.",
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
        self.focused = ""  # the name of the field that is
        known: dict[str, Any] = {**(_initial(definition) if definition else {}), **(initial or {})}
        super().__init__(data, initial=known)
        for name, rows in (("chassis", Chassis.objects.visible_to(person)), ("tenant", Tenant.objects.all())):
            choices = [(str(pk), text) for pk, text in rows.order_by("name").values_list("pk", "name")]
            there = {key for key, _ in choices}
            # What is gone stays chosen until somebody takes it out.
            choices += [(key, f"{name} {key}, removed") for key in known.get(name, []) if key not in there]
            self._of(name).choices = choices
        if definition is not None:
            del self.fields["from_now"]
        if definition is None or not definition.secret_encrypted:
            del self.fields["unsigned"]

    def _of(self, name: str) -> forms.MultipleChoiceField:
        field = self.fields[name]
        if not isinstance(field, forms.MultipleChoiceField):
            raise TypeError(name)
        return field

    def wanted(self) -> Wanted:
        """Return what was typed, of a valid form."""
        values = self.cleaned_data
        given: dict[str, Any] = {name: values[name] for name in (*ONE_TEXT, *SEVERAL, *BY_COMMAS) if values[name]}
        typed = {name: values[name] for name in OPTIONS if values.get(name) not in {None, ""}}
        secret = "" if values.get("unsigned") else values["secret"] or None
        return Wanted(
            name=values["name"],
            format=values["format"],
            target=values["destination"],
            filter=given,
            columns=self._columns(values["columns"]),
            options=Options.of(typed),
            schedule=values["schedule"] or Schedule.NONE,
            cron=values["cron"],
            span=values["span"] or Span.ALL,
            enabled=self._definition.enabled if self._definition else True,
            secret=secret,
        )

    def _columns(self, chosen: list[str]) -> list[str]:
        """Return columns in the order that they had, which a form cannot tell."""
        before = self._definition.columns if self._definition else []
        return [*(name for name in before if name in chosen), *(name for name in chosen if name not in before)]

    def groups(self) -> Iterator[tuple[str, str, list[forms.BoundField]]]:
        """Yield the parts of the form: a key, what it is called, its fields."""
        for key, words, names in (
            ("what", "Which events", ("severity", "source", "chassis", "tenant", "q", "since", "until", "last")),
            ("more", "More of which events", ("message", "person", "device", "port", "drawer", "host")),
            ("how", "How they are written", ("format", "columns", "facility", "cef_version")),
            ("where", "Where they go", (
                "destination", "address", "ca", "secret", "unsigned", "batch", "folder", "gzip", "keep_files",
                "keep_days",
            )),
            ("when", "When", ("schedule", "cron", "span", "from_now", "minutes")),
        ):  # fmt: skip
            yield key, words, [self[name] for name in names if name in self.fields]

    def wrong(self) -> list[forms.BoundField]:
        """Return the fields that are wrong, in the order of the page."""
        order = [self["name"], *(field for _, _, group in self.groups() for field in group)]
        return [field for field in order if field.errors]

    def focus_wrong(self) -> None:
        """Have the first wrong field focused; a group of choices is so as a whole, by its template."""
        for field in self.wrong()[:1]:
            self.focused = field.name
            if not isinstance(field.field.widget, forms.RadioSelect | forms.CheckboxSelectMultiple):
                field.field.widget.attrs["autofocus"] = True

    def tell(self, error: FalconWebError) -> None:
        """Put what a service refused beside the fields that it is about, the rest above the form."""
        sentences: dict[str, str] = error.details.get("errors", {})
        for name, sentence in sentences.items():
            field = RENAMED.get(name, name)
            self.add_error(field if field in self.fields else None, sentence)
        if not sentences:
            self.add_error(None, error.sentence)


def of_address(given: QueryDict) -> dict[str, Any]:
    """Return the beginning of a form by the parameters of a search for events; raises Invalid."""
    return _of_filter(filter_kept(Filter.of(given)))


def _initial(row: ExportDefinition) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in ("name", "format", "columns", "schedule", "cron", "span")}
    return {**values, "destination": row.target, **row.options, **_of_filter(row.filter)}


def _of_filter(kept: Mapping[str, list[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {name: kept[name] for name in SEVERAL if name in kept}
    found |= {name: ", ".join(kept[name]) for name in BY_COMMAS if name in kept}
    return found | {name: kept[name][0] for name in ONE_TEXT if name in kept}
