"""Changes of second factors, and their use at a sign-in.

Functions raise Invalid for what is not accepted, and Conflict for changes that the person's role forbids.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import time
from typing import Any, Final

import pyotp
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.views.decorators.debug import sensitive_variables

from accounts.access import SITE_NAME, actor_name, require_administrator
from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.models import Token, User
from accounts.second_factor.models import Passkey, RecoveryCode, TotpDevice
from accounts.second_factor.selectors import has_second_factor, is_required
from accounts.second_factor.webauthn import (
    REFUSED,
    RelyingParty,
    assertion_check,
    assertion_parse,
    credential_key,
    registration_check,
    registration_options,
)
from accounts.sign_in.change_mails import change_mail_enqueue
from accounts.sign_in.passwords import PASSWORD_ALPHABET
from accounts.sign_in.security import FAILURE_WINDOW_SECONDS, may_sign_in_locally
from accounts.sign_in.services import sessions_end, sign_in_confirmed
from core import credentials
from core.counters import count_in_period, is_count_reached
from core.errors import Conflict, Invalid, NotFound
from core.language import _, gettext_noop

logger = logging.getLogger(__name__)

MAX_PASSKEYS: Final = 20
RECOVERY_CODES: Final = 10
RECOVERY_GROUPS: Final = 4  # of four characters: 79 bits
STEP_SECONDS: Final = 30
# Steps that the clock of an authenticator app may differ by.
CLOCK_SKEW: Final = 1
# Of one person from all addresses, in 15 minutes: whoever knows the password may have many addresses.
MAX_WRONG_CODES: Final = 20
WRONG_CODE: Final = gettext_noop(
    "This code is wrong, or was used before. Wait for the next one, and check the clock of your phone."
)
COPIED: Final = gettext_noop(
    "This passkey counts fewer uses than the site: it may have been copied. It was not accepted. Sign in another way,"
    " remove it, and tell an administrator."
)
NOT_LOCAL: Final = gettext_noop("This passkey alone signs nobody in here: sign in through your identity provider.")
LAST_FACTOR: Final = gettext_noop("Your role needs a second factor. Add another one first, then remove this.")


def passkey_options(*, person: User, party: RelyingParty, purpose: str) -> dict[str, Any]:
    """Return what the browser is asked for to make another passkey."""
    return registration_options(
        party,
        purpose,
        name=person.username,
        display_name=person.get_full_name(),
        user_handle=_user_handle(person),
        known=person.passkeys.all(),
    )


def passkey_add(*, person: User, party: RelyingParty, purpose: str, name: str, answer: str) -> list[str]:
    """Add the passkey that the browser made; returns new recovery codes where the person has none."""
    with audited(Action.PASSKEY_ADD, actor=person, target=target_of(person)) as act:
        name = _passkey_name(name)
        found = registration_check(party, purpose, answer)
        _lock(person)
        key = credential_key(found.credential.credential_id)
        if Passkey.objects.filter(credential_id=key).exists():
            raise Invalid(_("This passkey is registered already."))
        if person.passkeys.count() >= MAX_PASSKEYS:
            raise Conflict(
                _(
                    "You have {most} passkeys, the most that anybody may have. Remove one first.",
                    most=MAX_PASSKEYS,
                )
            )
        passkey = Passkey.objects.create(
            person=person,
            name=name,
            credential_id=key,
            credential=bytes(found.credential),
            user_handle=_user_handle(person),
            sign_count=found.data.counter,
            transports=found.transports,
            is_backed_up=bool(found.data.flags & found.data.FLAG.BS),
        )
        act.target, act.after = target_of(passkey), _passkey_audit_values(passkey)
        change_mail_enqueue(person, f"The passkey '{name}' was added to your account.")
        logger.info("%s added passkey %r", person.username, name)
        return _first_recovery_codes(person)


def passkey_rename(*, person: User, passkey: Passkey, name: str) -> None:
    """Give one's own passkey another name."""
    with audited(Action.PASSKEY_RENAME, actor=person, target=target_of(passkey)) as act:
        act.before, passkey.name = {"name": passkey.name}, _passkey_name(name)
        passkey.save(update_fields=["name"])
        act.target, act.after = target_of(passkey), {"name": passkey.name}


def passkey_remove(*, person: User, passkey: Passkey) -> None:
    """Remove one's own passkey."""
    with audited(Action.PASSKEY_REMOVE, actor=person, target=target_of(passkey)) as act:
        _lock(person)
        act.before = _passkey_audit_values(passkey)
        Passkey.objects.filter(pk=passkey.pk).delete()
        _after_removal(person)
        change_mail_enqueue(person, f"The passkey '{passkey.name}' was removed from your account.")
        logger.info("%s removed passkey %r", person.username, passkey.name)


def totp_secret_make() -> str:
    """Return a new secret for an authenticator app, in base32."""
    return pyotp.random_base32()


def totp_address(person: User, secret: str) -> str:
    """Return the otpauth:// address that a QR code shows to an authenticator app."""
    return pyotp.TOTP(secret).provisioning_uri(name=person.username, issuer_name=SITE_NAME)


@sensitive_variables("secret", "code")
def totp_add(*, person: User, secret: str, code: str, now: float | None = None) -> list[str]:
    """Add the authenticator app that shows this code; returns new recovery codes where the person has none."""
    with audited(Action.TOTP_ADD, actor=person, target=target_of(person)):
        _lock(person)
        if TotpDevice.objects.filter(person=person).exists():
            raise Conflict(_("You have an authenticator app already. Remove it first."))
        step = _matching_step(secret, code, now, after=0)
        if step is None:
            raise Invalid(
                _("The code is wrong."),
                errors={"code": _("This is not the code of now. Type the newest, and check the clock of your phone.")},
            )
        TotpDevice.objects.create(person=person, secret_encrypted=credentials.encrypt(secret), last_step=step)
        change_mail_enqueue(person, "An authenticator app was added to your account.")
        logger.info("%s added an authenticator app", person.username)
        return _first_recovery_codes(person)


def totp_remove(*, person: User) -> None:
    """Remove one's own authenticator app."""
    with audited(Action.TOTP_REMOVE, actor=person, target=target_of(person)):
        _lock(person)
        if not TotpDevice.objects.filter(person=person).delete()[0]:
            raise NotFound(_("You have no authenticator app."))
        _after_removal(person)
        change_mail_enqueue(person, "The authenticator app was removed from your account.")
        logger.info("%s removed the authenticator app", person.username)


def recovery_codes_renew(*, person: User) -> list[str]:
    """Replace one's recovery codes; returns the new ones, which are not available later."""
    with audited(Action.RECOVERY_CODES_RENEW, actor=person, target=target_of(person)):
        _lock(person)
        if not has_second_factor(person):
            raise Conflict(
                _("Recovery codes stand in for a second factor. Add a passkey or an authenticator app first.")
            )
        change_mail_enqueue(person, "New recovery codes of your account were made; the old ones count no more.")
        logger.info("%s renewed the recovery codes", person.username)
        return _make_recovery_codes(person)


def second_factor_reset(*, by: User | None, person: User) -> None:
    """Remove all second factors of a person who has lost them, and end their sessions; `by` is None for a command."""
    with audited(Action.SECOND_FACTOR_RESET, actor=by, target=target_of(person)) as act:
        if by is not None:
            require_administrator(by)
        if by is not None and by.pk == person.pk:
            raise Conflict(_("Change your own second factors on your account page."))
        _lock(person)
        if not has_second_factor(person):
            raise Conflict(_("{username} has no second factor.", username=person.username))
        names = list(person.passkeys.values_list("name", flat=True))
        act.before = {"passkeys": names, "authenticator app": TotpDevice.objects.filter(person=person).exists()}
        for rows in (Passkey.objects, TotpDevice.objects, RecoveryCode.objects):
            rows.filter(person=person).delete()
        act.after = {"browsers signed out": sessions_end(person=person)}
        change_mail_enqueue(
            person,
            f"{actor_name(by)} removed your passkeys, authenticator app and recovery codes, and ended your sessions."
            " Your password alone signs you in now: add a new second factor on your account page.",
        )
        logger.info("%s reset the second factors of %s", actor_name(by), person.username)


@sensitive_variables("code")
def code_use(*, person: User, code: str, now: float | None = None) -> str:
    """Use a code of the authenticator app, or a recovery code; returns which: 'TOTP' or 'recovery code'.

    Raises Invalid for a wrong code, and for any code after too many wrong ones of this person.
    """
    failures = f"codes:{person.pk}"
    code = "".join(code.split()).lower()
    is_recovery = len(code) > 6  # digits of an authenticator app are six
    if not is_recovery and is_count_reached(failures, MAX_WRONG_CODES):
        raise Invalid(_("Too many wrong codes. Use a passkey or a recovery code, or wait for 15 minutes."))
    if _use_recovery_code(person, code) if is_recovery else _use_totp_code(person, code, now):
        return "recovery code" if is_recovery else "TOTP"
    count_in_period(failures, FAILURE_WINDOW_SECONDS, "a wrong code")
    raise Invalid(_(WRONG_CODE) if not is_recovery else _("This is not one of your unused recovery codes."))


def passkey_person(answer: str) -> User | None:
    """Return whose passkey an unchecked answer names, to count failures by; None for an unknown one."""
    try:
        response = assertion_parse(answer)
    except Invalid:
        return None
    found = Passkey.objects.select_related("person").filter(credential_id=credential_key(response.raw_id)).first()
    return found.person if found else None


def passkey_use(*, party: RelyingParty, purpose: str, answer: str, person: User | None = None) -> User:
    """Use a passkey, of this person if given; returns its person. Raises Invalid."""
    response = assertion_parse(answer)
    with transaction.atomic():
        rows = Passkey.objects.select_for_update(of=("self",)).select_related("person")
        passkey = rows.filter(credential_id=credential_key(response.raw_id), person__is_active=True).first()
        if passkey is None or (person is not None and passkey.person_id != person.pk):
            raise Invalid(_(REFUSED))
        if person is None and not may_sign_in_locally(passkey.person):
            raise Invalid(_(NOT_LOCAL))
        checked = assertion_check(party, purpose, response, passkey)
        if passkey.last_used_at is not None and checked.issued_at <= passkey.last_used_at:
            raise Invalid(_("This passkey was used since the page asked for it. Try again."))
        # Passkeys that a provider keeps for several devices do not count: 0.
        if (checked.data.counter or passkey.sign_count) and checked.data.counter <= passkey.sign_count:
            logger.warning("passkey %s of %s may have been copied", passkey.pk, passkey.person.username)
            raise Invalid(_(COPIED))
        passkey.sign_count = checked.data.counter
        passkey.is_backed_up = bool(checked.data.flags & checked.data.FLAG.BS)
        passkey.last_used_at = max(timezone.now(), checked.issued_at)  # clocks of web processes may differ
        passkey.save(update_fields=["sign_count", "is_backed_up", "last_used_at"])
        return passkey.person


def passkey_confirm(request: HttpRequest, person: User, *, purpose: str, answer: str) -> None:
    """Confirm the identity of a signed-in person by a passkey of theirs; raises Invalid."""
    with sign_in_confirmed(request, person):
        passkey_use(party=RelyingParty.of(request), purpose=purpose, answer=answer, person=person)


def _use_totp_code(person: User, code: str, now: float | None) -> bool:
    device = TotpDevice.objects.filter(person=person).first()
    step = _matching_step(device.secret(), code, now, after=device.last_step) if device else None
    if device is None or step is None:
        return False
    values = {
        "last_step": step,
        "last_used_at": timezone.now(),
        "secret_encrypted": credentials.reencrypt(device.secret_encrypted),
    }
    # Conditional, so that two requests cannot use one code.
    return TotpDevice.objects.filter(pk=device.pk, last_step__lt=step).update(**values) == 1


def _matching_step(secret: str, code: str, now: float | None, *, after: int) -> int | None:
    """Return the time step that a code is of, if it is later than `after` and about now."""
    current = int(time.time() if now is None else now) // STEP_SECONDS
    totp = pyotp.TOTP(secret, interval=STEP_SECONDS)
    for step in range(max(current - CLOCK_SKEW, after + 1), current + CLOCK_SKEW + 1):
        if hmac.compare_digest(totp.generate_otp(step).encode(), code.encode(errors="replace")):
            return step
    return None


def _use_recovery_code(person: User, code: str) -> bool:
    digest = _recovery_digest(code)
    return person.recovery_codes.filter(digest=digest, used_at=None).update(used_at=timezone.now()) == 1


def _recovery_digest(code: str) -> str:
    return Token.digest_of(code.replace("-", ""))


def _first_recovery_codes(person: User) -> list[str]:
    return [] if person.recovery_codes.exists() else _make_recovery_codes(person)


def _make_recovery_codes(person: User) -> list[str]:
    person.recovery_codes.all().delete()
    codes = ["-".join(_letters() for _ in range(RECOVERY_GROUPS)) for _ in range(RECOVERY_CODES)]
    RecoveryCode.objects.bulk_create(RecoveryCode(person=person, digest=_recovery_digest(code)) for code in codes)
    return codes


def _letters() -> str:
    return "".join(secrets.choice(PASSWORD_ALPHABET) for _ in range(4))


def _after_removal(person: User) -> None:
    """Refuse to remove the last factor where the role needs one; recovery codes end with it elsewhere."""
    if has_second_factor(person):
        return
    if is_required(person):
        raise Conflict(_(LAST_FACTOR))
    person.recovery_codes.all().delete()


def _lock(person: User) -> None:
    """Lock a person: of two that are removed at once, one is not the last."""
    User.objects.select_for_update(of=("self",), no_key=True).get(pk=person.pk)


def _user_handle(person: User) -> bytes:
    """Return the handle by which a passkey names its person: without the site's key it tells nothing of them."""
    known = person.passkeys.first()
    return bytes(known.user_handle) if known else salted_hmac("passkey", str(person.pk), algorithm="sha256").digest()


def _passkey_name(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > 100:
        sentence = _("Give the passkey a name of at most 100 letters, such as the device that keeps it.")
        raise Invalid(sentence, errors={"name": sentence})
    return name


def _passkey_audit_values(passkey: Passkey) -> dict[str, object]:
    return {"name": passkey.name, "person": passkey.person.username, "backed up": passkey.is_backed_up}
