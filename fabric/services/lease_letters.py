"""What is written to people about leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.urls import reverse

from accounts.models import User
from fabric.models import Lease
from fabric.services.booking import period, until
from fabric.services.letters import administrators, letter_write, letters_are_sent, people_of


def asked(lease: Lease) -> None:
    """Tell administrators that a tenant asks for a lease."""
    _write(lease, "asked", administrators(), "waits for your decision", f"{lease.asked_by_name} of {lease.tenant_name}"
           f" asks for a lease {period(lease)}.", lease.note)  # fmt: skip


def decided(lease: Lease) -> None:
    """Tell the tenant's people of a decision."""
    word = "was declined" if lease.state == Lease.State.DECLINED else "was approved"
    held = "\n".join(f"- {item.name}" for item in lease.items.filter(released_at=None))
    _write(
        lease, "decided", people_of(lease), word, f"Your lease {period(lease)} {word} by {lease.decided_by_name}.",
        lease.reason, held,
    )  # fmt: skip


def withdrawn(lease: Lease, person: User) -> None:
    """Tell the tenant's people that a lease of theirs is withdrawn, unless it was one of them."""
    if person.tenant_id != lease.tenant_id:
        _write(lease, "withdrawn", people_of(lease), "was withdrawn",
               f"{person.get_username()} withdrew the lease {period(lease)}.")  # fmt: skip


def ends_soon(lease: Lease, left: str, threshold: int) -> None:
    """Warn the tenant's people and administrators before an end."""
    held = "\n".join(f"- {item.name}" for item in lease.items.filter(released_at=None))
    _write(
        lease, f"ends {lease.ends_at} {threshold}", [*people_of(lease), *administrators()], f"ends in {left}",
        f"The lease of {lease.tenant_name} is {until(lease.ends_at)}. What is attached then is detached and goes back"
        " to the pool. Ask for a later end on its page if you need it longer.",
        held,
    )  # fmt: skip


def ended(lease: Lease) -> None:
    """Tell the tenant's people that everything is back."""
    _write(lease, "ended", people_of(lease), "has ended", f"The lease {period(lease)} has ended. Everything that it"
           " held is back in the pool.")  # fmt: skip


def stuck(lease: Lease) -> None:
    """Tell administrators, once, that something cannot be returned."""
    _write(lease, f"stuck {lease.ends_at}", administrators(), "cannot be returned", f"The lease of {lease.tenant_name}"
           f" {period(lease)} is over, and what it held cannot be returned yet: {lease.trouble} It is tried again by"
           " itself.")  # fmt: skip


def extension_asked(lease: Lease, wanted: datetime) -> None:
    """Tell administrators that a tenant asks for another end."""
    _write(lease, f"extension {wanted}", administrators(), "waits for your decision", f"{lease.extension_by_name} of"
           f" {lease.tenant_name} asks for the lease {period(lease)} to be {until(wanted)}.",
           lease.extension_note)  # fmt: skip


def end_set(lease: Lease, by: str, reason: str, *, declined: bool = False) -> None:
    """Tell the tenant's people what has become of an end."""
    now = lease.events.count()
    word = "keeps its end" if declined else "has another end"
    _write(lease, f"end {now}", people_of(lease), word,
           f"{by} {'declined the other end you asked for' if declined else 'set its end'}: your lease is"
           f" {until(lease.ends_at)}.", reason)  # fmt: skip


def idle(lease: Lease, names: Sequence[str], hours: float, *, key: str) -> None:
    """Tell the tenant's people and administrators what has been held without being used."""
    held = "\n".join(f"- {name}" for name in names)
    _write(
        lease, f"idle {key}", [*people_of(lease), *administrators()], "holds something that nobody uses",
        f"For {hours:g} hours no traffic and no use was measured of what follows. Return it on the page of the lease if"
        " you no longer need it.",
        held,
    )  # fmt: skip


def _write(lease: Lease, key: str, people: Sequence[User], word: str, *paragraphs: str) -> None:
    if not letters_are_sent():
        return
    address = settings.CONFIG.address
    where = [f"{address}{reverse('fabric:lease', args=[lease.pk])}"] if address else []
    letter_write(
        key=f"lease {lease.pk} {key}"[:200],
        people=people,
        subject=f"Lease {lease.pk} of {lease.tenant_name} {word}",
        body="\n\n".join(part for part in (*paragraphs, *where) if part) + "\n",
        lease=lease,
    )
