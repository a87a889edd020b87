"""The end of a lease: another one asked for, decided or set, and what is returned before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import Final

from django.db import transaction
from django.utils import timezone

from accounts.access import administrator_required
from accounts.audit.actions import Action
from accounts.audit.services import Target, audited, target_of
from accounts.models import User
from fabric.booking import Span
from fabric.models import Lease, LeaseItem
from fabric.services import lease_letters
from fabric.services.booking import booked_things, instant, refuse_booked, until
from fabric.services.hands import say
from fabric.services.leases import (
    DAY,
    LONGEST,
    lease_locked,
    refuse_over_quota,
    refuse_viewer,
    soon,
    text_of,
    told,
)
from falconweb.errors import Conflict, Forbidden, Invalid

ASKED: Final = "Asked for it"
MOST_ENDS_A_DAY: Final = 20  # that are asked for of one lease


def lease_extension_request(*, person: User, lease: Lease, ends_at: datetime, note: str = "") -> Lease:
    """Ask an administrator for a later end of a lease of the person's tenant; a second wish replaces the first.

    Raises Invalid for an end that is not later, and Conflict where somebody else has some of it by then.
    """
    with audited(Action.LEASE_EXTENSION_REQUEST, actor=person, target=_target(lease)) as act:
        row = lease_locked(person, lease)
        refuse_viewer(person)
        if person.is_administrator:
            raise Forbidden("Administrators ask nobody: set the end.")
        _refuse_over(row)
        if row.ends_at is None:
            raise Conflict(f"Lease {row.pk} has no end: there is nothing to extend.")
        _refuse_end(row, ends_at, after=row.ends_at)
        refuse_booked(booked_things(row), Span(row.ends_at, ends_at), but=row, person=person)
        # Administrators get a letter of each.
        asked = row.events.filter(at__gt=timezone.now() - DAY, sentence__startswith=ASKED)
        if asked.count() >= MOST_ENDS_A_DAY:
            raise Conflict(f"Another end was asked for {MOST_ENDS_A_DAY} times within a day. Wait for a decision.")
        row.extension_to, row.extension_note = ends_at, text_of(note)
        row.extension_by_name = person.get_username()
        row.save(update_fields=["extension_to", "extension_note", "extension_by_name"])
        why = f" {row.extension_note}" if row.extension_note else ""
        say(row, row.extension_by_name, f"{ASKED} {until(ends_at)}.{why}")
        lease_letters.extension_asked(row, ends_at)
        act.after = {"asked for": ends_at.isoformat()}
    return row


def lease_extension_decline(*, person: User, lease: Lease, reason: str = "") -> Lease:
    """Let a lease keep its end although another was asked for."""
    with audited(Action.LEASE_EXTENSION_DECLINE, actor=person, target=_target(lease)) as act:
        administrator_required(person)
        row = lease_locked(person, lease)
        if row.extension_to is None:
            raise Conflict(f"Nobody asks for another end of lease {row.pk} any more.")
        why = text_of(reason)
        act.before = {"asked for": row.extension_to.isoformat()}
        _forget_extension(row)
        row.save(update_fields=["extension_to", "extension_note", "extension_by_name"])
        say(row, person.get_username(), f"Declined another end: it stays {until(row.ends_at)}. {why}".strip())
        lease_letters.end_set(row, person.get_username(), why, declined=True)
    return row


def lease_extend(
    *, person: User, lease: Lease, ends_at: datetime | None, reason: str = "", override: bool = False
) -> Lease:
    """Set the end of a lease, later or sooner (None: until further notice); it answers a wish for another end too.

    Administrators only. Raises Invalid for an end in the past, Conflict where another lease needs some of it then
    (it is named), and, unless `override`, where a quota would be passed (`quota`).
    """
    with audited(Action.LEASE_EXTEND, actor=person, target=_target(lease)) as act:
        administrator_required(person)
        row = lease_locked(person, lease)
        _refuse_over(row)
        act.before = told(row)
        _refuse_end(row, ends_at, after=max(timezone.now(), row.starts_at))
        things = booked_things(row)
        refuse_booked(things, Span(max(timezone.now(), row.starts_at), ends_at), but=row)
        later = row.ends_at is not None and (ends_at is None or ends_at > row.ends_at)
        over: list[str] = []
        if later:
            kinds = Counter(row.items.filter(released_at=None).values_list("kind", flat=True))
            over = refuse_over_quota(person, row, kinds, Span(row.starts_at, ends_at), override=override)
        row.ends_at, row.warned_seconds = ends_at, None
        _forget_extension(row)
        row.save(update_fields=["ends_at", "warned_seconds", "extension_to", "extension_note", "extension_by_name"])
        passed = f" Over the quota on {person.get_username()}'s word: {' '.join(over)}" if over else ""
        say(row, person.get_username(), f"Its end is set: {until(ends_at)}.{passed} {text_of(reason)}".strip())
        lease_letters.end_set(row, person.get_username(), text_of(reason))
        act.after = told(row)
    return row


def lease_return(*, person: User, lease: Lease, items: Collection[LeaseItem] | None = None) -> Lease:
    """Return a lease before its end, or only some `items` of it; returns the lease that returns them.

    What is attached is detached first, so that this takes a while. Part of a lease becomes a lease of its own that
    ends now. The tenant's users and administrators may. Raises Conflict unless the lease is active.
    """
    with audited(Action.LEASE_RETURN, actor=person, target=_target(lease)) as act:
        row = lease_locked(person, lease)
        refuse_viewer(person)
        if row.state != Lease.State.ACTIVE:
            raise Conflict(f"Lease {row.pk} is '{row.get_state_display()}': only an active one can be returned.")
        act.before = told(row)
        name = person.get_username()
        held = {item.pk: item for item in row.items.filter(released_at=None)}
        part = set(held) if items is None else {item.pk for item in items}
        if not part <= set(held):
            raise Conflict("Some of that is not held by this lease any more. Look again.")
        if not part:
            raise Invalid("Choose what to return.", errors={"items": "Choose at least one."})
        now = timezone.now()
        if part == set(held):
            returning = row
            say(row, name, "Returned before its end.")
        else:
            names = ", ".join(held[pk].name for pk in sorted(part))
            returning = _split(row, part)
            say(row, name, f"Returned {names} before its end: lease {returning.pk} does that.")
            say(returning, name, f"Returned before the end of lease {row.pk}: {names}.")
        returning.state, returning.ends_at = Lease.State.ENDING, max(now, returning.starts_at)
        _forget_extension(returning)
        returning.save(update_fields=["state", "ends_at", "extension_to", "extension_note", "extension_by_name"])
        act.after = told(returning)
        transaction.on_commit(soon("tend_leases"), robust=True)
    return returning


def _split(lease: Lease, part: set[int]) -> Lease:
    """Move items of a lease to one of its own."""
    other = Lease.objects.create(
        tenant=lease.tenant,
        tenant_name=lease.tenant_name,
        state=lease.state,
        starts_at=lease.starts_at,
        ends_at=lease.ends_at,
        note=lease.note,
        asked_by=lease.asked_by,
        asked_by_name=lease.asked_by_name,
        asked_at=lease.asked_at,
        decided_by=lease.decided_by,
        decided_by_name=lease.decided_by_name,
        decided_at=lease.decided_at,
    )
    lease.items.filter(pk__in=part).update(lease=other)
    return other


def _forget_extension(lease: Lease) -> None:
    lease.extension_to, lease.extension_note, lease.extension_by_name = None, "", ""


def _refuse_over(lease: Lease) -> None:
    if lease.state not in Lease.BOOKED:
        raise Conflict(f"Lease {lease.pk} is '{lease.get_state_display()}': its end cannot be changed.")


def _refuse_end(lease: Lease, ends_at: datetime | None, *, after: datetime) -> None:
    if ends_at is None:
        return
    sentence = ""
    if ends_at <= after:
        sentence = f"The end must come after {instant(after)}."
    elif ends_at > timezone.now() + LONGEST:
        sentence = "The end is more than ten years away."
    if sentence:
        raise Invalid(sentence, errors={"ends_at": sentence})


def _target(lease: Lease) -> Target:
    return target_of(lease, f"Lease {lease.pk}")
