"""Forms of leases: they parse and validate input; the services check permissions and rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.utils.translation import gettext_lazy

from accounts.models import Tenant
from core.forms import MinuteField
from core.language import _, gettext_noop
from fabric.inventory.models import Chassis
from fabric.leases.models import KINDS
from fabric.leases.quotas import MAX_LIMIT, QuotaLimits
from fabric.leases.rules import RequestedParts
from fabric.leases.services import MAX_COUNT, MAX_TEXT_LENGTH

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise


KINDS_REQUESTED: Final = {
    "gpu": gettext_noop("GPUs"),
    "nvme": gettext_noop("NVMe drives"),
    "nic": gettext_noop("NICs"),
    "custom": gettext_noop("Custom devices"),
    "host_port": gettext_noop("Host ports"),
}


def _note(label: _StrOrPromise, help_text: _StrOrPromise = "") -> forms.CharField:
    return forms.CharField(
        label=label,
        required=False,
        max_length=MAX_TEXT_LENGTH,
        help_text=help_text,
        widget=forms.Textarea(attrs={"rows": 3}),
    )


def _number(label: str, most: int) -> forms.IntegerField:
    return forms.IntegerField(
        label=label,
        required=False,
        min_value=0,
        max_value=most,
        widget=forms.NumberInput(attrs={"inputmode": "numeric"}),
    )


class LeasePeriodForm(forms.Form):
    starts_at = MinuteField(
        label=gettext_lazy("Start"), required=False, help_text=gettext_lazy("Empty: as soon as it is approved.")
    )
    ends_at = MinuteField(
        label=gettext_lazy("End"), required=False, help_text=gettext_lazy("Empty: until further notice.")
    )


class LeaseRequestForm(LeasePeriodForm):
    """A tenant's request: a number of parts of each kind."""

    note = _note(gettext_lazy("What for"), gettext_lazy("Administrators read it when they decide."))

    def __init__(self, *args: Any, chassis: Iterable[Chassis], **options: Any) -> None:
        super().__init__(*args, **options)
        known = [("", _("any chassis")), *((str(one.pk), one.name) for one in chassis)]
        for kind, label in KINDS:
            self.fields[f"count_{kind}"] = _number(_(KINDS_REQUESTED[kind]), MAX_COUNT)
            where = _("{kind}: where", kind=label)
            self.fields[f"chassis_{kind}"] = forms.ChoiceField(label=where, required=False, choices=known)

    def wishes(self) -> list[RequestedParts]:
        """Return the requested parts of a valid form."""
        values = self.cleaned_data
        return [
            RequestedParts(kind, count, int(chassis) if (chassis := values[f"chassis_{kind}"]) else None)
            for kind, _ in KINDS
            if (count := values[f"count_{kind}"])
        ]

    def api_wishes(self) -> list[dict[str, Any]]:
        """Return the wishes of the API, with the fields of this form, for `copy_curl`."""
        return [
            {"kind": kind, "count": {"field": f"count_{kind}"}, "chassis_id": {"field": f"chassis_{kind}"}}
            for kind, _ in KINDS
        ]

    def lines(self) -> list[tuple[forms.BoundField, forms.BoundField]]:
        return [(self[f"count_{kind}"], self[f"chassis_{kind}"]) for kind, _ in KINDS]

    def times(self) -> list[forms.BoundField]:
        return [self["starts_at"], self["ends_at"], self["note"]]


class QuotaOverrideForm(LeasePeriodForm):
    override = forms.BooleanField(label=gettext_lazy("Allow over quota"), required=False)


class LeaseDecisionForm(QuotaOverrideForm):
    reason = _note(gettext_lazy("Word to the tenant"))

    field_order = ["starts_at", "ends_at", "reason", "override"]


class LeaseGrantForm(QuotaOverrideForm):
    """A lease that an administrator creates without a request."""

    tenant = forms.ModelChoiceField(
        label=gettext_lazy("Tenant"), queryset=Tenant.objects.all(), empty_label=gettext_lazy("Choose a tenant")
    )
    note = _note(gettext_lazy("What for"))

    field_order = ["tenant", "starts_at", "ends_at", "note", "override"]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["starts_at"].help_text = _("Empty: now.")


class LeaseExtensionForm(forms.Form):
    ends_at = MinuteField(label=gettext_lazy("New end"))
    note = _note(gettext_lazy("Why"))


class LeaseEndForm(LeaseDecisionForm):
    starts_at = None  # type: ignore[assignment]  # as Django takes a field out of a form


class QuotaForm(forms.Form):
    """The limits of a tenant, a row per kind; empty is no limit."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for kind, label in KINDS:
            self.fields[f"once_{kind}"] = _number(_("{kind}: at a time", kind=label), MAX_LIMIT)
            self.fields[f"hours_{kind}"] = _number(_("{kind}: hours a month", kind=label), MAX_LIMIT)

    def limits(self) -> dict[str, QuotaLimits]:
        values = self.cleaned_data
        return {kind: QuotaLimits(values[f"once_{kind}"], values[f"hours_{kind}"]) for kind, _ in KINDS}

    def api_limits(self) -> list[dict[str, Any]]:
        """Return the limits of the API, with the fields of this form, for `copy_curl`."""
        return [
            {
                "kind": kind,
                "most_at_once": {"field": f"once_{kind}"},
                "most_hours_a_month": {"field": f"hours_{kind}"},
            }
            for kind, _ in KINDS
        ]

    def lines(self) -> list[tuple[str, forms.BoundField, forms.BoundField]]:
        return [(str(label), self[f"once_{kind}"], self[f"hours_{kind}"]) for kind, label in KINDS]
