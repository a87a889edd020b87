"""Mails that say what was changed of a person's means to sign in: whoever did not do it hears of it."""

from __future__ import annotations

from functools import partial

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction

from accounts.models import User
from core.enqueue import enqueue


def change_mail_enqueue(person: User, what: str, *, address: str | None = None) -> None:
    """Have the sentence `what` mailed to a person after the commit, where the site sends mail and knows an address.

    It goes to the one that the account has at present, unless another is given.
    """
    address = person.email if address is None else address
    if settings.EMAIL_IS_SENT and address:
        transaction.on_commit(partial(enqueue, "accounts.send_change_mail", person.pk, what, address), robust=True)


def change_mail_send(*, person_id: int, what: str, address: str) -> None:
    """Mail a person what was changed; '' for an address is the present one."""
    person = User.objects.filter(pk=person_id).first()
    if person is not None and (to := address or person.email):
        EmailMessage(
            f"FalconWeb: the sign-in of {person.username} was changed",
            f"{what}\n\nIf it was neither you nor an administrator whom you asked, tell an administrator at once.\n",
            settings.DEFAULT_FROM_EMAIL,
            [to],
            headers={"Auto-Submitted": "auto-generated"},
        ).send()
