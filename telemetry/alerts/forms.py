"""Forms of alerts: they parse the input; the services validate it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy

from accounts.models import Tenant
from core.database import natural
from core.forms import MinuteField
from core.language import _, gettext_noop
from core.week import DAYS, WEEK
from fabric.inventory.models import Chassis, Device, Drawer, Port
from telemetry.alerts.models import MAX_TEXT_LENGTH, AlertSeverity, Route, Rule, Scoped
from telemetry.alerts.route_services import ROUTE_FIELDS, RouteValues, SilenceValues
from telemetry.alerts.rule_services import RULE_FIELDS, SCOPE_COLUMNS, RuleValues
from telemetry.alerts.rules import BUILT_IN_RULES, SCOPES, Condition

PLAIN_INPUT = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
CONDITIONS = (
    (Condition.ABOVE.value, gettext_lazy("is above")),
    (Condition.BELOW.value, gettext_lazy("is below")),
    (Condition.EQUALS.value, gettext_lazy("equals")),
    (Condition.DIFFERS.value, gettext_lazy("differs from")),
    (Condition.MISSING.value, gettext_lazy("has no value")),
    (Condition.CHANGES.value, gettext_lazy("changes by more than")),
    (Condition.RISES.value, gettext_lazy("rises by more than")),
    (Condition.FALLS.value, gettext_lazy("falls by more than")),
)


class NamedChoiceField(forms.ModelChoiceField):  # type: ignore[type-arg]  # not generic at run time
    """A choice of parts, labelled with their chassis."""

    def __init__(self, label: str, rows: QuerySet[Any]) -> None:
        super().__init__(rows, label=gettext_lazy(label), required=False, empty_label=gettext_lazy("choose one"))

    def label_from_instance(self, obj: Any) -> str:
        chassis = getattr(obj, "chassis", None)
        return _("{part} of {chassis}", part=str(obj), chassis=str(chassis)) if chassis is not None else str(obj)


class ScopedForm(forms.Form):
    """A form with a scope: the field that `scope` names counts."""

    scope = forms.ChoiceField(label=gettext_lazy("Scope"), choices=SCOPES, initial="all")
    chassis = NamedChoiceField(gettext_noop("Chassis"), Chassis.objects.order_by(natural("name")))
    drawer = NamedChoiceField(
        gettext_noop("Drawer"), Drawer.objects.filter(missing_since=None).select_related("chassis")
    )
    device_kind = forms.ChoiceField(
        label=gettext_lazy("Kind of device"),
        required=False,
        choices=[("", gettext_lazy("choose one")), *Device.Kind.choices],
    )
    device = NamedChoiceField(
        gettext_noop("Device"), Device.objects.filter(missing_since=None).select_related("chassis")
    )
    port = NamedChoiceField(gettext_noop("Port"), Port.objects.filter(missing_since=None).select_related("chassis"))
    tenant = NamedChoiceField(gettext_noop("Tenant"), Tenant.objects.order_by(natural("name")))

    def scope_values(self) -> dict[str, Any]:
        """Return the scope of a valid form, as keyword arguments of services."""
        values = self.cleaned_data
        scope = values["scope"]
        chosen = values.get(scope) if scope not in {"all", "device_kind"} else None
        return {
            "scope": scope,
            "scope_id": chosen.pk if chosen is not None else None,
            "device_kind": values["device_kind"] if scope == "device_kind" else "",
        }

    def scope_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in ("chassis", "drawer", "device_kind", "device", "port", "tenant")]


def _initial(row: Scoped, names: Sequence[str]) -> dict[str, Any]:
    """Return what a form of a row begins with: columns of it, and what it is about."""
    return {name: getattr(row, name) for name in (*names, *SCOPE_COLUMNS)}


def _number_field(label: str, help_text: str, **more: Any) -> forms.FloatField:
    widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"})
    return forms.FloatField(label=gettext_lazy(label), help_text=gettext_lazy(help_text), widget=widget, **more)


def _time_field(label: str, help_text: str) -> forms.TimeField:
    widget = forms.TimeInput(attrs={"type": "time"}, format="%H:%M")
    return forms.TimeField(label=gettext_lazy(label), required=False, help_text=gettext_lazy(help_text), widget=widget)


class RuleForm(ScopedForm):
    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    metric = forms.CharField(
        label=gettext_lazy("Measured value"),
        max_length=200,
        help_text=gettext_lazy("A quantity such as power_watts, or a pattern of keys such as port/*/link_status."),
        widget=forms.TextInput(attrs={**PLAIN_INPUT, "list": "metrics"}),
    )
    condition = forms.ChoiceField(label=gettext_lazy("Condition"), choices=CONDITIONS)
    value = _number_field(
        gettext_noop("Value"),
        gettext_noop(
            "In the unit of the measured value. A link that is up has 4. For changes: by how much from one reading to"
            " the next; 0 for any."
        ),
        required=False,
    )
    clear_value = _number_field(
        gettext_noop("Resolves at"),
        gettext_noop("Empty: at the same value. A margin prevents flapping (hysteresis)."),
        required=False,
    )
    hold_seconds = _number_field(
        gettext_noop("For at least (s)"),
        gettext_noop(
            "Until then the alert is pending and notifies nobody. A change fires at once, and resolves after as long"
            " without another one."
        ),
        min_value=0,
        initial=30,
    )
    severity = forms.ChoiceField(label=gettext_lazy("Severity"), choices=AlertSeverity.choices)
    note = forms.CharField(
        label=gettext_lazy("What to do"),
        required=False,
        max_length=MAX_TEXT_LENGTH,
        help_text=gettext_lazy("Included in each notification, such as a link to your handbook."),
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    enabled = forms.BooleanField(label=gettext_lazy("Switched on"), required=False, initial=True)

    @classmethod
    def of(cls, row: Rule) -> RuleForm:
        initial = _initial(row, RULE_FIELDS)
        for name in ("value", "clear_value", "hold_seconds"):
            initial[name] = "" if initial[name] is None else f"{initial[name]:.12g}"
        return cls(initial=initial)

    def values(self) -> RuleValues:
        """Return the values of a valid form."""
        return RuleValues(**{name: self.cleaned_data[name] for name in RULE_FIELDS}, **self.scope_values())


def _rule_choices() -> list[tuple[str, Any]]:
    rules = [(f"rule-{pk}", name) for pk, name in Rule.objects.values_list("pk", "name")]
    built_ins = [(name, _(known.words)) for name, known in BUILT_IN_RULES.items()]
    return [("", _("any rule")), (_("Built-in rules"), built_ins), (_("Own rules"), rules)]


class SilenceForm(ScopedForm):
    what = forms.ChoiceField(label=gettext_lazy("Rule"), required=False, choices=_rule_choices)
    severity = forms.ChoiceField(
        label=gettext_lazy("Severity"), required=False, choices=[("", gettext_lazy("any")), *AlertSeverity.choices]
    )
    starts_at = MinuteField(label=gettext_lazy("From"), required=False, help_text=gettext_lazy("Empty: now."))
    ends_at = MinuteField(label=gettext_lazy("Until"), initial=lambda: timezone.now() + timedelta(hours=2))
    from_time = _time_field(gettext_noop("Time from (UTC)"), gettext_noop("Both empty: all of the time."))
    until_time = _time_field(gettext_noop("Time until (UTC)"), gettext_noop("Of the next day where it is not later."))
    days = forms.TypedMultipleChoiceField(
        label=gettext_lazy("Days"),
        required=False,
        coerce=int,
        choices=[(day, gettext_lazy(DAYS[day])) for day in WEEK],
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("None ticked: each day."),
    )
    why = forms.CharField(
        label=gettext_lazy("Why"), max_length=500, help_text=gettext_lazy("Shown with each silenced alert."),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )  # fmt: skip

    def values(self) -> SilenceValues:
        given = self.cleaned_data
        what = given["what"]
        rule = int(what.removeprefix("rule-")) if what.startswith("rule-") else None
        return SilenceValues(
            starts_at=given["starts_at"], ends_at=given["ends_at"], why=given["why"], severity=given["severity"],
            from_time=given["from_time"], until_time=given["until_time"], days=given["days"],
            rule_id=rule, built_in="" if rule is not None else what, **self.scope_values(),
        )  # fmt: skip


class RouteForm(ScopedForm):
    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=100, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    kind = forms.ChoiceField(label=gettext_lazy("Channel"), choices=Route.Kind.choices, initial=Route.Kind.EMAIL)
    address = forms.CharField(
        label=gettext_lazy("Address"),
        max_length=500,
        required=False,
        help_text=gettext_lazy(
            "E-mail addresses with commas between them; https://host/path of a webhook; udp://, tcp:// or"
            " tls://host:port of a syslog server. The page needs none."
        ),
        widget=forms.TextInput(attrs=PLAIN_INPUT),
    )
    secret = forms.CharField(
        label=gettext_lazy("Secret that signs a webhook"),
        max_length=500,
        required=False,
        strip=False,
        help_text=gettext_lazy("Each message is signed with it (HMAC-SHA256). Kept encrypted and never shown again."),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    forget_secret = forms.BooleanField(label=gettext_lazy("Delete the stored secret"), required=False)
    severity = forms.ChoiceField(label=gettext_lazy("At least"), choices=AlertSeverity.choices)
    enabled = forms.BooleanField(label=gettext_lazy("Switched on"), required=False, initial=True)

    def __init__(self, *args: Any, has_secret: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        if has_secret:
            self.fields["secret"].help_text = _("Leave it empty to keep the stored one, which is never shown.")
        else:
            del self.fields["forget_secret"]

    @classmethod
    def of(cls, row: Route) -> RouteForm:
        """Return the form of a route; the secret is never in it."""
        return cls(initial=_initial(row, ROUTE_FIELDS), has_secret=bool(row.secret_encrypted))

    def values(self) -> RouteValues:
        given = {name: self.cleaned_data[name] for name in ROUTE_FIELDS}
        secret = self.cleaned_data["secret"] or ("" if self.cleaned_data.get("forget_secret") else None)
        return RouteValues(secret=secret, **given, **self.scope_values())
