"""Signed messages: `1.<digest of the host's identity>.<HMAC-SHA256>.<JSON>`, at most 256 KiB.

Each host has its own key, shared with the site. The signed text includes its kind, so that no report is accepted as a
command, and its host, so that no other host accepts a command.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from typing import Literal, TypeVar

import msgspec

from hostwire.protocol import MAX_WAIT, Command, CommandAnswer, HostReport, Request

MAX_BYTES = 256 * 1024
KEY_BYTES = 32
# Tasks that hosts send to the site, each with one argument, the signed text.
REPORT_TASK = "fabric.host_report"
ANSWER_TASK = "fabric.host_answer"
REPORT_SECONDS = 10.0
# The largest difference between the clocks of site and host.
SKEW_SECONDS = 60.0
# A nonce is stored as long as its command is valid, so the validity is limited.
MAX_LIFETIME = MAX_WAIT + 300.0
DEFAULT_LIFE = 60.0

MessageKind = Literal["command", "answer", "report"]
MessageBody = TypeVar("MessageBody", Command, CommandAnswer, HostReport)
_encoder = msgspec.json.Encoder()
_DIGEST = 32
_SIGNATURE = 64


class WireError(Exception):
    """A message that is not authentic, or cannot be sent; the text says why."""


class ExpiredError(WireError):
    """An authentic message that arrived too late, or is dated in the future; `message` is its content."""

    def __init__(self, sentence: str, message: Command | HostReport) -> None:
        super().__init__(sentence)
        self.message = message


def new_key() -> str:
    """Return a new key of a host: 32 random bytes, URL-safe base64."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def digest(identity: str) -> str:
    """Return the digest of a host's identity, 32 hexadecimal digits; upper and lower case do not differ."""
    return hashlib.sha256(identity.strip().casefold().encode()).hexdigest()[:_DIGEST]


def queue_name(identity: str) -> str:
    """Return the name of the queue from which the host with this identity reads."""
    return f"host.{digest(identity)}"


def reply_queue_name(identity: str) -> str:
    """Return the name of the list to which the host with this identity writes; only the site reads it."""
    return f"{queue_name(identity)}.said"


def new_command(identity: str, request: Request, *, life: float = DEFAULT_LIFE, now: float | None = None) -> Command:
    """Return a command to a host with a new nonce, valid for `life` seconds."""
    issued = time.time() if now is None else now
    return Command(identity, secrets.token_hex(16), issued, issued + min(life, MAX_LIFETIME), request)


def seal_command(command: Command, key: str) -> str:
    """Return the signed text of a command: the argument of the task `command.task` on the host's queue."""
    return _seal("command", command, key)


def seal_answer(answer: CommandAnswer, key: str) -> str:
    """Return the signed text of an answer."""
    return _seal("answer", answer, key)


def seal_report(report: HostReport, key: str) -> str:
    """Return the signed text of a report."""
    return _seal("report", report, key)


def claimed_digest(text: object) -> str:
    """Return the digest of the host that a text claims to be from, unverified: it selects the key to verify with.

    Raises WireError where the text is not a message.
    """
    return _parts(text)[0]


def open_command(text: object, key: str, *, identity: str, now: float | None = None) -> Command:
    """Return a command after verifying its signature, its host and its validity.

    Raises ExpiredError where it is not valid now, WireError with a sentence for everything else.
    """
    command = _open("command", Command, text, key, identity)
    present = time.time() if now is None else now
    if not 0 < command.expires - command.issued <= MAX_LIFETIME or len(command.nonce) > 64 or not command.nonce:
        raise WireError("The command has no nonce, or is good for longer than a command may be.")
    if command.issued > present + SKEW_SECONDS:
        ahead = command.issued - present
        raise ExpiredError(f"The command is dated {ahead:.0f} s in the future: compare the clocks.", command)
    if command.expires < present:
        raise ExpiredError(f"The command expired {present - command.expires:.0f} s ago.", command)
    return command


def open_answer(text: object, key: str, *, identity: str) -> CommandAnswer:
    """Return an answer that this host signed with `key`; the caller compares its nonce. Raises WireError."""
    return _open("answer", CommandAnswer, text, key, identity)


def open_report(text: object, key: str, *, identity: str, now: float | None = None) -> HostReport:
    """Return a report that this host signed with `key`, at most a minute old.

    Raises ExpiredError for an old one, WireError for everything else. (`started`, `number`) order the reports.
    """
    report = _open("report", HostReport, text, key, identity)
    present = time.time() if now is None else now
    if abs(present - report.sent) > SKEW_SECONDS:
        raise ExpiredError(f"The report is dated {present - report.sent:.0f} s ago: compare the clocks.", report)
    return report


def decode_key(text: str) -> bytes:
    """Return the bytes of a key; raises WireError where a text is not a key."""
    try:
        key = base64.b64decode(text.strip(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise WireError("The key is no base64.") from error
    if len(key) < KEY_BYTES:
        raise WireError(f"The key has {len(key)} bytes; it must have {KEY_BYTES}.")
    return key


def _seal(kind: MessageKind, body: Command | CommandAnswer | HostReport, key: str) -> str:
    host = digest(body.host)
    payload = _encoder.encode(body).decode()
    text = f"1.{host}.{_signature(kind, host, payload, key)}.{payload}"
    if len(text.encode()) > MAX_BYTES:
        raise WireError(f"The {kind} has {len(text.encode())} bytes; {MAX_BYTES} are allowed.")
    return text


def _signature(kind: MessageKind, host: str, payload: str, key: str) -> str:
    return hmac.new(decode_key(key), f"hostwire 1 {kind} {host}\n{payload}".encode(), hashlib.sha256).hexdigest()


def _parts(text: object) -> tuple[str, str, str]:
    # Anything can arrive over the broker: the type is not certain either.
    if not isinstance(text, str):
        raise WireError("The message is no text.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise WireError("The message is no text.") from error
    if size > MAX_BYTES:
        raise WireError(f"The message has {size} bytes; {MAX_BYTES} are allowed.")
    version, host, signature, payload = ([*text.split(".", 3), "", "", ""])[:4]
    if version != "1" or len(host) != _DIGEST or len(signature) != _SIGNATURE:
        raise WireError("The message is none of this kind.")
    return host, signature, payload


def _open(kind: MessageKind, shape: type[MessageBody], text: object, key: str, identity: str) -> MessageBody:
    host, signature, payload = _parts(text)
    if not hmac.compare_digest(_signature(kind, host, payload, key).encode(), signature.encode()):
        raise WireError(f"The {kind} is not signed with the key of this host.")
    try:
        body = msgspec.json.decode(payload, type=shape)
    except msgspec.MsgspecError as error:
        raise WireError(f"The {kind} cannot be understood: {error}") from error
    if host != digest(identity) or digest(body.host) != host:
        raise WireError(f"The {kind} is of another host.")
    return body
