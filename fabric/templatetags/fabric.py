"""Labels of hardware and leases, and the user's draft on every page with changes that can be added to it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from django import template
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe

from accounts.models import User
from core.language import _, gettext_noop
from core.zones import MINUTE, local_words
from fabric.inventory.device_filter import filter_words
from fabric.leases.models import Activity, Lease, LeaseItem
from fabric.leases.quotas import count_label
from fabric.leases.selectors import items_label, requested_parts
from fabric.operations.rules import port_type_label
from fabric.plans.selectors import draft_view
from fabric.topology.problems import StatusBoard

register = template.Library()
register.filter("port_words", port_type_label)
LINKS = {
    "LinkUp": gettext_noop("up"),
    "LinkDown": gettext_noop("down"),
    "NoLink": gettext_noop("no link"),
    "Training": gettext_noop("training"),
    "Starting": gettext_noop("starting"),
}
SLOTS = {
    "FullLength": gettext_noop("full length"),
    "HalfLength": gettext_noop("half length"),
    "LowProfile": gettext_noop("low profile"),
    "Mini": gettext_noop("mini"),
    "M2": "M.2",
    "U2": "U.2",
    "OCP3Small": gettext_noop("OCP 3.0, small"),
    "OCP3Large": gettext_noop("OCP 3.0, large"),
    "OEM": gettext_noop("vendor-specific"),
}
REDFISH_WORDS = {
    gettext_noop("OK"), gettext_noop("Warning"), gettext_noop("Critical"), gettext_noop("On"), gettext_noop("Off")
}  # fmt: skip
MAX_ACTIVITY_AGE = timedelta(minutes=10)


# The states of most of the thousands of cells, shorter: a quarter of a page with 200 chassis.
CELLS: Final = {"attached": "<i class=on></i>", "detached": "<i></i>"}


@register.filter
def fleet_cells(states: tuple[str, ...]) -> SafeString:
    """Return the cells of a row of slots; a loop in the template is slow for the thousands of a page."""
    return mark_safe("".join(CELLS.get(state) or f"<i class={state}></i>" for state in states))  # noqa: S308 - our words


@register.filter
def link_words(status: str) -> str:
    """Return a port's LinkStatus in words."""
    return _(LINKS.get(status, status)) or _("not given")


@register.inclusion_tag("fabric/topology/status_badge.html")
def status_badge(board: StatusBoard, kind: str, pk: int | None) -> dict[str, Any]:
    """Show what is wrong with a thing: nothing where nothing is."""
    return {"status": board.of(kind, pk)}


@register.inclusion_tag("fabric/inventory/filter_help.html")
def filter_help() -> dict[str, Any]:
    """Show the words of a filter of devices, to be opened beside its field."""
    return {"words": filter_words()}


@register.filter
def total(counts: dict[str, int]) -> int:
    """Return the sum of counters."""
    return sum(counts.values())


@register.filter
def generation(pcie_type: str) -> str:
    """Return 'Gen3' as 'Gen 3'."""
    return pcie_type.replace("Gen", "Gen ")


@register.filter
def redfish_words(value: str) -> str:
    """Return a health or a power state in words."""
    return _(value) if value in REDFISH_WORDS else value


@register.filter
def slot_words(slot_type: str) -> str:
    """Return a slot's SlotType in words."""
    return _(SLOTS.get(slot_type, slot_type)) or _("not given")


@register.filter
def of(values: Mapping[Any, Any], key: Any) -> Any:
    """Return a value by its key, None where there is none."""
    return values.get(key)


@register.filter
def lease_items(lease: Lease) -> str:
    """Return the label of a lease's items: present, requested or past ones."""
    items = list(lease.items.all())
    if not items:
        return ", ".join(count_label(wish.kind, wish.count) for wish in requested_parts(lease))
    if not lease.is_open:
        items = [LeaseItem(kind=item.kind) for item in items]
    return items_label(items)


@register.filter
def used_words(item: LeaseItem) -> str:
    """Return the label of a leased device's use."""
    activity = Activity.objects.filter(device=item.device_id).first()
    if activity is None or timezone.now() - activity.measured_at > MAX_ACTIVITY_AGE:
        return _("not measured")
    if activity.quiet_since is None:
        return _("in use")
    return _("quiet since {time}", time=local_words(activity.quiet_since, MINUTE))


@register.inclusion_tag("fabric/plans/plan_draft_bar.html", takes_context=True)
def draft_bar(context: Mapping[str, Any], *, open: bool = False) -> dict[str, Any]:  # noqa: A002 - as in HTML
    """Render the user's draft, its entries `open` or not, with a link to its review; nothing without the permission."""
    request = context["request"]
    person = request.user if isinstance(request.user, User) else None
    may = person is not None and person.may_compose
    return {
        "may_compose": may,
        "draft": draft_view(person) if person is not None and may else None,
        "open": open,
        "here": request.get_full_path(),
        "csrf_token": context.get("csrf_token"),
    }
