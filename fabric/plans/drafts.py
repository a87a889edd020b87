"""The draft that a user composes on the pages, entry by entry; one open draft per user."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from django.utils import translation

from accounts.audit.services import audit_batch
from accounts.models import User
from core.database import lock_rows
from core.errors import Conflict, NotFound
from core.language import SOURCE_LANGUAGE, _
from fabric.inventory.models import Device, Drawer, HostPort, Port
from fabric.operations.models import Plan
from fabric.operations.projected_state import projected_drawers
from fabric.plans.permissions import desired_parts
from fabric.plans.rules import DesiredState, merged_setting
from fabric.plans.selectors import DRAFT_ORIGIN, open_draft, plan_entries
from fabric.plans.serialization import base_state_json, visible_rows
from fabric.plans.services import MAX_TITLE_LENGTH, plan_change, plan_create

EMPTY_TITLE: Final = "Nothing to change"
ENTRY_FIELDS: Final = {"device": "attachments", "drawer": "modes", "cable": "cables", "port": "settings"}


def draft_add(*, person: User, desired: DesiredState) -> Plan:
    """Add entries to the user's draft, which is created where there is none; satisfied entries are left out.

    Raises as `plan_create` does, and leaves the draft unchanged then.
    """
    with audit_batch():
        row, former = _open_entries(person)
        fields = ENTRY_FIELDS.values()
        merged = DesiredState(**{name: {**getattr(former, name), **getattr(desired, name)} for name in fields})
        return _write(person, row, _without_satisfied(person, merged))


def draft_remove(*, person: User, key: str) -> Plan:
    """Remove an entry (`PlanEntry.key`) from the user's draft, as if it had never been added.

    Raises NotFound where there is no such draft or entry, else as `plan_change` does.
    """
    kind, _dash, number = key.partition("-")
    with audit_batch():
        row, former = _open_entries(person)
        field = ENTRY_FIELDS.get(kind, "")
        entries = getattr(former, field, {})
        left = {pk: one for pk, one in entries.items() if str(pk) != number}
        if len(left) == len(entries):
            raise NotFound(_("This is not in your draft."))
        return _write(person, row, replace(former, **{field: left}))


def draft_title(person: User, plan: Plan) -> str:
    with translation.override(SOURCE_LANGUAGE):
        entries = plan_entries(person, plan)
    if not entries:
        return EMPTY_TITLE
    first = f"{entries[0].name} to {entries[0].after}"
    more = len(entries) - 1
    return (first if not more else f"{first} and {more} more change{'s' if more > 1 else ''}")[:MAX_TITLE_LENGTH]


def _open_entries(person: User) -> tuple[Plan | None, DesiredState]:
    """Return the user's draft and its entries, locked against a change of it from another window."""
    lock_rows(User.objects.filter(pk=person.pk)).get()
    row = open_draft(person)
    return row, DesiredState() if row is None else _visible_part(person, DesiredState.from_json(row.wanted))


def _write(person: User, row: Plan | None, desired: DesiredState) -> Plan:
    if row is None:
        plan = plan_create(person=person, desired=desired, title=EMPTY_TITLE, origin=DRAFT_ORIGIN)
    else:
        is_own = row.title != draft_title(person, row)
        plan = plan_change(person=person, plan=row, desired=desired)
        if is_own:
            return plan
    plan.title = draft_title(person, plan)
    plan.save(update_fields=["title"])
    return plan


def _visible_part(person: User, desired: DesiredState) -> DesiredState:
    """Return the desired state without objects that the user has lost access to and so could not remove."""
    devices = visible_rows(Device.objects, person, set(desired.attachments))
    ends = {port for port in desired.attachments.values() if port is not None} | set(desired.cables)
    host_ports = visible_rows(HostPort.objects, person, ends)
    drawers = visible_rows(Drawer.objects, person, set(desired.modes))
    ports = visible_rows(Port.objects, person, set(desired.settings))
    return DesiredState(
        attachments={
            pk: to for pk, to in desired.attachments.items() if pk in devices and (to is None or to in host_ports)
        },
        modes={pk: mode for pk, mode in desired.modes.items() if pk in drawers},
        cables={pk: host for pk, host in desired.cables.items() if pk in host_ports},
        settings={pk: setting for pk, setting in desired.settings.items() if pk in ports},
    )


def _without_satisfied(person: User, desired: DesiredState) -> DesiredState:
    """Return the desired state without entries that hold anyway once all open operations are done."""
    now = DesiredState.from_json(base_state_json(projected_drawers(desired_parts(person, desired).chassis).values()))
    if unknown := set(desired.settings) - set(now.settings):
        name = Port.objects.get(pk=min(unknown)).name
        raise Conflict(
            _("{port} connects neither a device nor a host port: there is nothing to plan for it.", port=name)
        )
    return DesiredState(
        # A missing object stays in, so that it is refused with its reason.
        attachments={
            pk: to for pk, to in desired.attachments.items() if pk not in now.attachments or now.attachments[pk] != to
        },
        modes={pk: mode for pk, mode in desired.modes.items() if now.modes.get(pk) != mode},
        cables={pk: host for pk, host in desired.cables.items() if pk not in now.cables or now.cables[pk] != host},
        settings={
            pk: one for pk, one in desired.settings.items() if merged_setting(now.settings[pk], one) != now.settings[pk]
        },
    )
