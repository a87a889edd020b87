"""E-mail: written in the transaction of what it tells of, sent after it by whoever claims it, tried again for a day."""

from __future__ import annotations

import logging
import smtplib
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from accounts.models import Role, User
from fabric.models import Lease, Letter

logger = logging.getLogger(__name__)
CLAIM_SECONDS: Final = 120.0  # a sender that died lets it expire
GIVE_UP: Final = timedelta(days=1)  # older news are none
KEPT: Final = timedelta(days=30)
AT_ONCE: Final = 50
LONGEST_SUBJECT: Final = 180


def letters_are_sent() -> bool:
    """Tell whether the site has a mail server to give letters to."""
    return bool(settings.EMAIL_IS_SENT)


def letter_write(*, key: str, people: Iterable[User], subject: str, body: str, lease: Lease | None = None) -> None:
    """Write a letter to each of these people who has an address; the same key and address get one letter, once.

    Nothing is written without a mail server: news of weeks ago would all be sent on the day it is set up.
    """
    if not letters_are_sent():
        return
    # A line break in a name would be a header of its own.
    line = " ".join(subject.split())[:LONGEST_SUBJECT]
    addresses = sorted({person.email for person in people if person.email and person.is_active})
    Letter.objects.bulk_create(
        [Letter(key=key, address=address, subject=line, body=body, lease=lease) for address in addresses],
        ignore_conflicts=True,
    )


def people_of(lease: Lease) -> list[User]:
    """Return the active people of a lease's tenant."""
    return list(User.objects.filter(tenant=lease.tenant_id, is_active=True)) if lease.tenant_id else []


def administrators() -> list[User]:
    """Return the active administrators."""
    return list(User.objects.filter(role=Role.ADMINISTRATOR, is_active=True))


def letters_send() -> int:
    """Send what waits; returns how many went out. What fails is tried again, a minute later at the earliest."""
    if not letters_are_sent():
        return 0
    sent = 0
    Letter.objects.filter(created_at__lt=timezone.now() - KEPT).delete()
    connection = get_connection(timeout=10)
    try:
        while (letter := _claimed()) is not None:
            if not _send(letter, connection):
                break  # the next would fail alike, and each may take its ten seconds
            sent += 1
    finally:
        connection.close()
    return sent


def _claimed() -> Letter | None:
    """Return a letter that waits, held by this sender from now on."""
    now = timezone.now()
    waiting = Letter.objects.filter(
        Q(claimed_at=None) | Q(claimed_at__lt=now - timedelta(seconds=CLAIM_SECONDS)),
        sent_at=None,
        created_at__gt=now - GIVE_UP,
    )
    for pk in waiting.order_by("attempts", "pk").values_list("pk", flat=True)[:AT_ONCE]:
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
        # This address is at fault, and stays so: others go on.
        code, why = next(iter(error.recipients.values()), (0, b""))
        _failed(letter, f"The mail server refused the address: {code} {why.decode(errors='replace')}", for_good=True)
        return True
    except (OSError, smtplib.SMTPException) as error:
        logger.warning("letter %s was not sent: %s", letter.pk, error)
        _failed(letter, f"The mail server did not take it: {error}"[:500], for_good=False)
        return False
    with transaction.atomic():
        Letter.objects.filter(pk=letter.pk).update(sent_at=timezone.now(), error="")
    return True


def _failed(letter: Letter, error: str, *, for_good: bool) -> None:
    values: dict[str, object] = {"error": error}
    if for_good:
        values["created_at"] = timezone.now() - GIVE_UP
    Letter.objects.filter(pk=letter.pk).update(**values)
