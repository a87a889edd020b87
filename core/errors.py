"""The one exception tree: each class carries its HTTP status and whether a retry helps, each instance its sentence.

This module does not import Django, so that every package, `hostwire` included, can raise its errors. Views, the API
and commands turn an error into a page, a problem document (RFC 9457) or an exit code; nothing else formats errors.
"""

from __future__ import annotations

from typing import Any, ClassVar


class FalconWebError(Exception):
    """Base of the errors that the site reports; `sentence` is shown to users unchanged, in their language."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "error"
    retry_helps: ClassVar[bool] = False

    def __init__(self, sentence: str, **details: Any) -> None:
        super().__init__(getattr(sentence, "english", sentence))  # what logs say of a core.language.Text
        self.sentence = sentence
        # Extra members of the problem document: plain JSON values only.
        self.details = details


class Invalid(FalconWebError):
    """The request itself is wrong; `errors` maps fields to sentences."""

    status = 400
    code = "invalid"


class KeyReused(Invalid):
    """The idempotency key was used before, with a different request."""

    status = 422
    code = "key_reused"


class Forbidden(FalconWebError):
    """The user may see the object, but not do this to it."""

    status = 403
    code = "forbidden"


class SignInTooOld(Forbidden):
    """The person signed in too long ago for this, and has to confirm who they are."""

    code = "sign_in_too_old"


class NotFound(FalconWebError):
    """The object does not exist, or the user may not see it: the response does not distinguish the two."""

    status = 404
    code = "not_found"


class Conflict(FalconWebError):
    """Another request, or the hardware, changed the state that the request was based on."""

    status = 409
    code = "conflict"


class RuleViolation(Conflict):
    """The rules of the drawer's mode do not allow the requested attachment."""

    code = "rule"


class InUse(Conflict):
    """The device is, or may be, in use on its host; `holders` says by whom, and a confirmed force overrides it."""

    code = "in_use"


class TooSlow(FalconWebError):
    """The request did not arrive in time."""

    status = 408
    code = "too_slow"
    retry_helps = True


class TooLarge(FalconWebError):
    """The request is too large."""

    status = 413
    code = "too_large"


class Unavailable(FalconWebError):
    """A component that the request needs does not respond; the same request may work later."""

    status = 503
    code = "unavailable"
    retry_helps = True
