"""The one exception tree: each class carries its HTTP status and whether a retry helps, each instance its sentence.

This module is pure (no Django), so that every room, the wire included, can raise from it. Faces turn an error into a
page, a problem document (RFC 9457) or an exit code; nobody else formats errors.
"""

from __future__ import annotations

from typing import Any, ClassVar


class FalconWebError(Exception):
    """Base of everything the site says 'no' with; `sentence` is shown to people as it is."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "error"
    retry_helps: ClassVar[bool] = False

    def __init__(self, sentence: str, **details: Any) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        # Extra members of the problem document: plain JSON values only.
        self.details = details


class Invalid(FalconWebError):
    """The request itself is wrong; `errors` maps fields to sentences."""

    status = 400
    code = "invalid"


class KeyReused(Invalid):
    """The key that makes a repeat harmless came with another request than before."""

    status = 422
    code = "key_reused"


class Forbidden(FalconWebError):
    """The person sees the thing but may not do this to it."""

    status = 403
    code = "forbidden"


class NotFound(FalconWebError):
    """The thing does not exist, or the person may not see it: the two are told apart by nobody outside."""

    status = 404
    code = "not_found"


class Conflict(FalconWebError):
    """Somebody else, or the hardware, changed what the request was based on."""

    status = 409
    code = "conflict"


class RuleViolation(Conflict):
    """The rules of the drawer's mode do not allow the wanted attachment."""

    code = "rule"


class InUse(Conflict):
    """Somebody uses the device on its host, or may; `holders` says who, and a confirmed force takes it all the same."""

    code = "in_use"


class TooLarge(FalconWebError):
    """More came than a request may carry."""

    status = 413
    code = "too_large"


class Unavailable(FalconWebError):
    """A part that the request needs does not answer; the same request may work later."""

    status = 503
    code = "unavailable"
    retry_helps = True
