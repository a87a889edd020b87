"""A new password by mail for people who forgot theirs: a request, a mail with a link, and the new password.

The request does the same for every name, known or not: it hands the name to a worker, which looks it up.
"""

from __future__ import annotations

import hashlib
import logging

from axes.utils import reset as axes_reset
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.tokens import default_token_generator
from django.core.mail import EmailMessage
from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode
from django.views.decorators.debug import sensitive_variables
from kombu.exceptions import OperationalError

from accounts.audit.actions import Action
from accounts.audit.services import attempt, target_of
from accounts.models import PersonKind, User
from accounts.sign_in.change_mails import change_mail_enqueue
from accounts.sign_in.passwords import password_problem
from accounts.sign_in.security import client_address, may_sign_in_locally
from accounts.sign_in.services import access_end
from core.counters import count_in_period
from core.enqueue import enqueue
from core.errors import Invalid, Unavailable
from core.language import _

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 3600
MAX_OF_NAME = 3  # requests in a period
MAX_OF_ADDRESS = 20


def are_password_mails_sent() -> bool:
    """Return whether the site can send mails, and knows the address for the link."""
    # The request's host name must not be in a mail: whoever sends the request chooses it.
    return bool(settings.EMAIL_IS_SENT and settings.CONFIG.address)


def password_mail_request(*, request: HttpRequest, name: str) -> None:
    """Have a mail sent to the person of a user name or e-mail address; raises Unavailable without the broker.

    More than a few requests of an hour for one name, or from one address, do nothing.
    """
    name = name.replace("\0", "").strip()[:254]
    # Both are counted, whatever the first says.
    admitted = [
        _is_admitted(name_count_key(name), MAX_OF_NAME),
        _is_admitted(address_count_key(client_address(request)), MAX_OF_ADDRESS),
    ]
    if not all(admitted):
        logger.warning("a mail for a new password was not sent: too many were requested")
        return
    try:
        enqueue("accounts.send_password_mail", name)
    except (OperationalError, OSError) as error:
        raise Unavailable(_("No mail can be sent just now: try again later.")) from error


def name_count_key(name: str) -> str:
    """Return the key in the cache of the count of a name's requests."""
    digest = hashlib.sha256(name.casefold().encode(errors="replace")).hexdigest()
    return f"password-mails:name:{digest}"


def address_count_key(address: str) -> str:
    """Return the key in the cache of the count of an address's requests."""
    return f"password-mails:address:{address}"


def _is_admitted(key: str, most: int) -> bool:
    """Count a request of the present hour; returns whether it is within the limit. Without the cache none is."""
    count = count_in_period(key, PERIOD_SECONDS, "a request for a mail")
    return count is not None and count <= most


def password_mail_send(*, name: str) -> None:
    """Send each person of that user name or e-mail address a link, which works once and for an hour."""
    people = User.objects.filter(Q(username__iexact=name) | Q(email__iexact=name)).exclude(email="")
    for person in people.filter(is_active=True, kind=PersonKind.PERSON):
        # The database compares letters more loosely than mail servers do.
        if not may_sign_in_locally(person) or name.casefold() not in {
            person.username.casefold(), person.email.casefold(),
        }:  # fmt: skip
            continue
        path = reverse(
            "accounts:password_new",
            args=[urlsafe_base64_encode(force_bytes(person.pk)), default_token_generator.make_token(person)],
        )
        email = EmailMessage(
            "FalconWeb: set a new password",
            f"Somebody, probably you, asked to set a new password for {person.username} on FalconWeb.\n\n"
            f"Open this address within an hour; it works once:\n{settings.CONFIG.address}{path}\n\n"
            "If it was not you, do nothing: your password stays as it is.\n",
            settings.DEFAULT_FROM_EMAIL,
            [person.email],
            headers={"Auto-Submitted": "auto-generated"},
        )
        with attempt(Action.PASSWORD_MAIL, actor=None, target=target_of(person)) as act:
            email.send()
            with act.change():
                pass


@sensitive_variables("new", "token")
def password_set_by_mail(*, person: User, token: str, new: str) -> None:
    """Set a new password with the token of a mail; ends all sessions and tokens of the person, and lifts a lock."""
    with attempt(Action.PASSWORD_SET, actor=person, target=target_of(person)) as act:
        if problem := password_problem(new, person):
            raise Invalid(_("The new password cannot be used."), errors={"new": problem})
        hashed = make_password(new)
        with act.change():
            person = User.objects.select_for_update(of=("self",), no_key=True).get(pk=person.pk)
            # Checked under the lock: two requests must not both use it.
            if not person.is_active or person.is_service or not default_token_generator.check_token(person, token):
                raise Invalid(_("This link was used already, or has expired. Request another mail."))
            person.password = hashed
            person.save(update_fields=["password"])
            act.after = access_end(person=person)
            axes_reset(username=person.username)
            change_mail_enqueue(person, "Your password was set anew by mail. Your sessions and tokens ended.")
        logger.info("%s set a new password by mail", person.username)
