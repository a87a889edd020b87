"""The draft that a person makes on the pages: a plan that grows and shrinks entry by entry, one open a person."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from accounts.audit.services import together
from accounts.models import User
from fabric.models import Device, Drawer, HostPort, Plan, Port
from fabric.outlook import drawers_seen
from fabric.planning import Setting, Wanted
from fabric.plans import DRAFT_ORIGIN, Entry, draft_row, entries_of
from fabric.services.locks import locked_rows
from fabric.services.plan_rights import parts_of
from fabric.services.plan_words import base_of, rows_seen, wanted_of_base
from fabric.services.plans import LONGEST_TITLE, plan_change, plan_create
from falconweb.errors import Conflict, NotFound

EMPTY: Final = "Nothing to change"
FIELDS: Final = {"device": "attachments", "drawer": "modes", "cable": "cables", "port": "settings"}


def draft_add(*, person: User, wanted: Wanted) -> Plan:
    """Let the person's draft want this too, begun where there is none; what is so already is no entry.

    Raises as `plan_create` does, and leaves the draft as it was.
    """
    with together():
        _wait_for_turn(person)
        row = draft_row(person)
        former = _still_seen(person, Wanted.from_json(row.wanted)) if row is not None else Wanted()
        merged = Wanted(
            attachments={**former.attachments, **wanted.attachments},
            modes={**former.modes, **wanted.modes},
            cables={**former.cables, **wanted.cables},
            settings={**former.settings, **wanted.settings},
        )
        return _write(person, row, _without_what_is(person, merged))


def draft_remove(*, person: User, key: str) -> Plan:
    """Take an entry (`Entry.key`) out of the person's draft, which is then as if it had never been added.

    Raises NotFound where there is no such draft or entry, else as `plan_change` does.
    """
    kind, _, number = key.partition("-")
    with together():
        _wait_for_turn(person)
        row = draft_row(person)
        former = _still_seen(person, Wanted.from_json(row.wanted)) if row is not None else Wanted()
        field = FIELDS.get(kind, "")
        entries = {str(pk): pk for pk in getattr(former, field)} if field else {}
        if number not in entries:
            raise NotFound("This is not in your draft.")
        left = {pk: one for pk, one in getattr(former, field).items() if pk != entries[number]}
        return _write(person, row, replace(former, **{field: left}))


def title_of_draft(entries: tuple[Entry, ...]) -> str:
    """Return what a draft is called as long as nobody gives it another name."""
    if not entries:
        return EMPTY
    first = f"{entries[0].name} to {entries[0].after}"
    more = len(entries) - 1
    return (first if not more else f"{first} and {more} more change{'s' if more > 1 else ''}")[:LONGEST_TITLE]


def _wait_for_turn(person: User) -> None:
    """Let two windows of one person change the same draft one after the other."""
    locked_rows(User.objects.filter(pk=person.pk)).get()


def _write(person: User, row: Plan | None, wanted: Wanted) -> Plan:
    if row is None:
        made = plan_create(person=person, wanted=wanted, title=EMPTY, origin=DRAFT_ORIGIN)
        return _entitled(made, title_of_draft(entries_of(person, made)))
    is_own = row.title != title_of_draft(entries_of(person, row))
    changed = plan_change(person=person, plan=row, wanted=wanted)
    return changed if is_own else _entitled(changed, title_of_draft(entries_of(person, changed)))


def _entitled(plan: Plan, title: str) -> Plan:
    plan.title = title
    plan.save(update_fields=["title"])
    return plan


def _still_seen(person: User, wanted: Wanted) -> Wanted:
    """Return what is wanted without what is the person's no more: nobody could take it out of the draft."""
    devices = rows_seen(Device.objects, person, set(wanted.attachments))
    ends = {port for port in wanted.attachments.values() if port is not None} | set(wanted.cables)
    host_ports = rows_seen(HostPort.objects, person, ends)
    drawers = rows_seen(Drawer.objects, person, set(wanted.modes))
    ports = rows_seen(Port.objects, person, set(wanted.settings))
    return Wanted(
        attachments={
            pk: to for pk, to in wanted.attachments.items() if pk in devices and (to is None or to in host_ports)
        },
        modes={pk: mode for pk, mode in wanted.modes.items() if pk in drawers},
        cables={pk: host for pk, host in wanted.cables.items() if pk in host_ports},
        settings={pk: setting for pk, setting in wanted.settings.items() if pk in ports},
    )


def _without_what_is(person: User, wanted: Wanted) -> Wanted:
    """Return what is wanted without what will be so anyway, once all that was asked for is done."""
    now = wanted_of_base(base_of(drawers_seen(parts_of(person, wanted).chassis).values()))
    if unknown := set(wanted.settings) - set(now.settings):
        name = Port.objects.get(pk=min(unknown)).name
        raise Conflict(f"{name} is behind neither a device nor a host port: there is nothing to plan for it.")
    return Wanted(
        # What is missing stays in, to be refused with its reason.
        attachments={
            pk: to for pk, to in wanted.attachments.items() if pk not in now.attachments or now.attachments[pk] != to
        },
        modes={pk: mode for pk, mode in wanted.modes.items() if now.modes.get(pk) != mode},
        cables={pk: host for pk, host in wanted.cables.items() if pk not in now.cables or now.cables[pk] != host},
        settings={pk: one for pk, one in wanted.settings.items() if _differs(now.settings[pk], one)},
    )


def _differs(now: Setting, wanted: Setting) -> bool:
    return (wanted.port_type not in {"", now.port_type}) or (
        wanted.configured_width not in {None, now.configured_width}
    )
