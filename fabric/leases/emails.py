"""E-mail: written in the transaction of the change, sent after it by a claiming worker, retried for a day."""

from __future__ import annotations

import logging
import smtplib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.db.models import F
from django.dispatch import receiver
from django.urls import reverse
from django.utils import timezone

from accounts.approvals.models import ApprovalRequest
from accounts.approvals.selectors import administrators_but
from accounts.approvals.services import approval_changed
from accounts.models import User
from core.claims import WATCHED, WatchedClaims, unclaimed
from core.language import english
from fabric.leases.models import Lease, Letter
from fabric.leases.ownership import format_period
from fabric.leases.rules import format_end

logger = logging.getLogger(__name__)
CLAIM_SECONDS: Final = 120.0  # until the claim of a sender that failed or died is released
SEND_DEADLINE: Final = timedelta(days=1)  # older e-mails are out of date
LETTER_RETENTION: Final = timedelta(days=30)
BATCH_SIZE: Final = 50
MAX_SUBJECT_LENGTH: Final = 180


def lease_members(lease: Lease) -> list[User]:
    return list(User.objects.filter(tenant=lease.tenant_id, is_active=True)) if lease.tenant_id else []


def administrators() -> list[User]:
    return list(administrators_but(None))


def letters_send() -> int:
    """Send waiting e-mails; returns how many were sent. Failed ones are retried, a minute later at the earliest."""
    if not settings.EMAIL_IS_SENT:
        return 0
    sent = 0
    Letter.objects.filter(created_at__lt=timezone.now() - LETTER_RETENTION).delete()
    connection = get_connection(timeout=10)
    try:
        while (letter := _claim_letter()) is not None:
            if not _send(letter, connection):
                break  # the next would fail alike, and each may take its ten seconds
            sent += 1
    finally:
        connection.close()
    return sent


def _claim_letter() -> Letter | None:
    """Return a waiting e-mail, claimed by this sender."""
    now = timezone.now()
    waiting = Letter.objects.filter(
        unclaimed("claimed_at"),
        sent_at=None,
        created_at__gt=now - SEND_DEADLINE,
    )
    for pk in waiting.order_by("attempts", "pk").values_list("pk", flat=True)[:BATCH_SIZE]:
        if waiting.filter(pk=pk).update(claimed_at=now, attempts=F("attempts") + 1):
            return Letter.objects.get(pk=pk)
    return None


def _send(letter: Letter, connection: object) -> bool:
    try:
        EmailMessage(
            letter.subject,
            letter.body,
            settings.DEFAULT_FROM_EMAIL,
            [letter.address],
            connection=connection,  # type: ignore[arg-type]  # the stub knows one backend only
            headers={"Auto-Submitted": "auto-generated"},
        ).send()
    except smtplib.SMTPRecipientsRefused as error:
        # This address fails permanently; others are sent.
        code, why = next(iter(error.recipients.values()), (0, b""))
        refusal = f"The mail server refused the address: {code} {why.decode(errors='replace')}"
        _update(letter, error=refusal, created_at=timezone.now() - SEND_DEADLINE)
        return True
    except (OSError, smtplib.SMTPException) as error:
        logger.warning("letter %s was not sent: %s", letter.pk, error)
        _update(letter, error=f"The mail server did not accept it: {error}"[:500])
        return False
    _update(letter, sent_at=timezone.now(), error="")
    return True


def _update(letter: Letter, **values: object) -> None:
    Letter.objects.filter(pk=letter.pk).update(**values)


WATCHED.append(
    WatchedClaims(lambda: Letter.objects.filter(sent_at=None), "claimed_at", CLAIM_SECONDS, {}),
)


def notify_requested(lease: Lease) -> None:
    _notify(lease, "asked", administrators(), "waits for your decision", f"{lease.asked_by_name} of {lease.tenant_name}"
           f" asks for a lease {format_period(lease)}.", lease.note)  # fmt: skip


def notify_decided(lease: Lease) -> None:
    word = "was declined" if lease.state == Lease.State.DECLINED else "was approved"
    parts = lease.items.filter(released_at=None).values_list("name", flat=True)
    _notify(
        lease,
        "decided",
        lease_members(lease),
        word,
        f"Your lease {format_period(lease)} {word} by {lease.decided_by_name}.",
        lease.reason,
        _listed(parts),
    )


def notify_withdrawn(lease: Lease, person: User) -> None:
    """Notify the tenant's members that a lease is withdrawn, unless one of them did it."""
    if person.tenant_id != lease.tenant_id:
        _notify(lease, "withdrawn", lease_members(lease), "was withdrawn",
               f"{person.get_username()} withdrew the lease {format_period(lease)}.")  # fmt: skip


def notify_ending(lease: Lease, left: str, threshold: int) -> None:
    parts = lease.items.filter(released_at=None).values_list("name", flat=True)
    _notify(
        lease,
        f"ends {lease.ends_at} {threshold}",
        [*lease_members(lease), *administrators()],
        f"ends in {left}",
        f"The lease of {lease.tenant_name} is {format_end(lease.ends_at)}. Attached devices are then detached, and all"
        " parts return to the pool. Request a later end on its page if you need it longer.",
        _listed(parts),
    )


def notify_ended(lease: Lease) -> None:
    _notify(
        lease,
        "ended",
        lease_members(lease),
        "has ended",
        f"The lease {format_period(lease)} has ended. All its parts are unassigned again.",
    )


def notify_stuck(lease: Lease) -> None:
    """Notify administrators, once, that a lease cannot be returned."""
    _notify(
        lease,
        f"stuck {lease.ends_at}",
        administrators(),
        "cannot be returned",
        f"The lease of {lease.tenant_name} {format_period(lease)} is over, and its parts cannot be returned yet:"
        f" {lease.trouble} It is retried automatically.",
    )


def notify_extension_requested(lease: Lease, ends_at: datetime) -> None:
    _notify(lease, f"extension {ends_at}", administrators(), "waits for your decision", f"{lease.extension_by_name} of"
           f" {lease.tenant_name} asks for the lease {format_period(lease)} to be {format_end(ends_at)}.",
           lease.extension_note)  # fmt: skip


def notify_end_changed(lease: Lease, by: str, reason: str, *, declined: bool = False) -> None:
    now = lease.events.count()
    word = "keeps its end" if declined else "has another end"
    _notify(lease, f"end {now}", lease_members(lease), word,
           f"{by} {'declined the end you requested' if declined else 'set its end'}: your lease is"
           f" {format_end(lease.ends_at)}.", reason)  # fmt: skip


def notify_idle(lease: Lease, names: Sequence[str], hours: float, *, key: str) -> None:
    _notify(
        lease, f"idle {key}", [*lease_members(lease), *administrators()], "has idle devices",
        f"No traffic or use of these devices was measured for {hours:g} hours. Return them on the page of the lease if"
        " you no longer need them.",
        _listed(names),
    )  # fmt: skip


def _listed(names: Iterable[str]) -> str:
    return "\n".join(f"- {name}" for name in names)


def _notify(lease: Lease, key: str, people: Iterable[User], word: str, *paragraphs: str) -> None:
    """Write an e-mail to each of these users with an address; the same key and address get one e-mail, once.

    Nothing is written without a mail server: e-mails of past weeks would all be sent on the day it is set up.
    """
    page, subject = reverse("fabric:lease", args=[lease.pk]), f"Lease {lease.pk} of {lease.tenant_name} {word}"
    _write_letters(f"lease {lease.pk} {key}", people, subject, page, *paragraphs, lease=lease)


@receiver(approval_changed)
def notify_approval(approval: ApprovalRequest, **kwargs: Any) -> None:
    """Tell administrators of an act that waits for them, and who asked of its end."""
    waits = approval.state == ApprovalRequest.State.WAITING
    state = english(approval.get_state_display()).lower()
    _write_letters(
        f"approval {approval.pk} {approval.state}",
        administrators_but(approval.requested_by) if waits else [approval.requested_by],
        f"Approval {approval.pk} {'waits for your decision' if waits else f'has ended: {state}'}",
        reverse("accounts:approval", args=[approval.pk]),
        f"{approval.requested_by_name} asked for this: {approval.sentence}",
        f"It waits until {approval.expires_at:%Y-%m-%d %H:%M} UTC." if waits else approval.reason,
    )


def _write_letters(
    key: str, people: Iterable[User], subject: str, page: str, *paragraphs: str, lease: Lease | None = None
) -> None:
    if not settings.EMAIL_IS_SENT:
        return
    address = settings.CONFIG.address
    body = "\n\n".join(part for part in (*paragraphs, f"{address}{page}" if address else "") if part) + "\n"
    # A line break in a name would be a header of its own.
    subject = " ".join(subject.split())[:MAX_SUBJECT_LENGTH]
    values: dict[str, Any] = {"key": key[:200], "subject": subject, "body": body, "lease": lease}
    addresses = sorted({person.email for person in people if person.email and person.is_active})
    Letter.objects.bulk_create([Letter(address=one, **values) for one in addresses], ignore_conflicts=True)
