"""Errors of BMCs: each names the address and the cause, never a credential."""

from __future__ import annotations

from typing import Any

from core.errors import FalconWebError


class BmcError(FalconWebError):
    """A request to a BMC failed, or its response is unusable; `answered` is the BMC's HTTP status, if there is one."""

    status = 502
    code = "bmc"

    def __init__(self, sentence: str, *, answered: int | None = None, **details: Any) -> None:
        super().__init__(sentence, **details)
        self.answered = answered


class WrongAddress(BmcError):
    """The address is not an http or https URL with a host, or its trust settings cannot be read."""

    status = 400
    code = "bmc_address"


class Unreachable(BmcError):
    """No server answers at the address, or the connection broke before a response was complete."""

    code = "bmc_unreachable"
    retry_helps = True


class TimedOut(BmcError):
    """No response, connection or end of a task came in time."""

    code = "bmc_timed_out"
    retry_helps = True


class CertificateRejected(BmcError):
    """The certificate is not accepted; `found` is the SHA-256 fingerprint that the BMC showed, or ''.

    `expired_on` is the date (ISO 8601) of an expired one.
    """

    code = "bmc_certificate"

    def __init__(self, sentence: str, *, expected: str = "", found: str = "", expired_on: str = "") -> None:
        super().__init__(sentence, expected_fingerprint=expected, found_fingerprint=found)
        self.expected = expected
        self.found = found
        self.expired_on = expired_on


class SignInRefused(BmcError):
    """The BMC accepts neither this session nor these credentials."""

    code = "bmc_sign_in"


class NotRedfish(BmcError):
    """The server at the address is not a Redfish service."""

    code = "not_redfish"


class ForeignLink(BmcError):
    """A link or a redirect leaves the BMC's origin; it is never followed, so no credential travels there."""

    code = "bmc_foreign_link"


class Malformed(BmcError):
    """A response is not a JSON object, is larger than the client accepts, or lacks required properties."""

    code = "bmc_malformed"


class ServerFault(BmcError):
    """The BMC answered 5xx; `body` is its response, since some services send properties along with the error."""

    code = "bmc_fault"
    retry_helps = True

    def __init__(self, sentence: str, *, answered: int, body: dict[str, Any] | None = None) -> None:
        super().__init__(sentence, answered=answered)
        self.body = body or {}


class RequestRefused(BmcError):
    """The BMC answered 4xx; `reason` is the sentence of its extended error, '' if it gave none."""

    code = "bmc_refused"

    def __init__(self, sentence: str, *, answered: int, reason: str = "") -> None:
        super().__init__(sentence, answered=answered)
        self.reason = reason


class ZoneChanged(BmcError):
    """The zone was changed since it was read (412): nothing was written."""

    status = 409
    code = "zone_changed"
    retry_helps = True


class CompositionRefused(BmcError):
    """The BMC's own rules refuse an attachment, a detachment or a mode; the sentence is the BMC's."""

    status = 409
    code = "composition_refused"


class TaskFailed(BmcError):
    """Long work that the BMC had accepted ended without success."""

    code = "bmc_task"
