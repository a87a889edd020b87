"""The algorithm of the hash chain, in pure functions: usable to verify an export, or to reimplement elsewhere.

An entry is a JSON object. Its digest is the SHA-256, in hexadecimal, of the entry without the member `digest`, written
as canonical JSON (RFC 8785): members in the order of their names, no white space, UTF-8. Numbers are integers within
2^53, everything else is text, so that all languages write them identically. `previous` is the digest of the previous
entry, 64 zeros in the first; `sequence` counts from 1 without gaps.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

GENESIS_DIGEST = "0" * 64
MAX_INTEGER = 2**53 - 1
MAX_TEXT_LENGTH = 1000
MAX_MEMBERS = 100
MAX_VALUES_BYTES = 16_384  # bytes of canonical JSON that `before` and `after` may have, each
MAX_DEPTH = 5
REDACTED = "(not kept)"
# The second line of defence: services choose the values they record, and choose no secrets.
SECRET_NAMES = re.compile(
    r"passw|secret|csrf|credential|private|api_?key|authori[sz]ation|cookie|session|(^|_)(token|digest|ca_pem)$",
    re.IGNORECASE,
)
SECRET_TEXTS = re.compile(
    r"fw_[A-Za-z0-9_-]{16,}|(?<=://)[^/\s@]+@|(?i:bearer\s+)\S+|-----BEGIN [A-Z ]*PRIVATE KEY-----.*", re.DOTALL
)


@dataclass(frozen=True)
class ChainBreak:
    """A break of the chain: its position, and a sentence."""

    sequence: int
    sentence: str


def canonical(value: object) -> bytes:
    """Return a value of `clean` as canonical JSON (RFC 8785)."""
    return json.dumps(_ordered(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def digest_of(record: Mapping[str, object]) -> str:
    """Return the SHA-256 of an entry, in hexadecimal, whether or not it has its digest already."""
    return hashlib.sha256(canonical({name: value for name, value in record.items() if name != "digest"})).hexdigest()


def seal_of(key: str, sequence: int, digest: str) -> str:
    """Return the HMAC-SHA-256 of the length and the end of the log, which requires the key."""
    return hmac.new(key.encode(), f"{sequence}:{digest}".encode(), hashlib.sha256).hexdigest()


def chain_breaks(
    records: Iterable[Mapping[str, Any]], *, first: int = 1, previous: str = GENESIS_DIGEST, gaps: bool = False
) -> Iterator[ChainBreak]:
    """Yield the breaks of a sequence of entries that begins at `first` after the digest `previous`.

    `gaps`: entries may be missing on purpose, as in a filtered export.
    """
    expected = first
    for record in records:
        sequence = record["sequence"]
        if sequence > expected and not gaps:
            missing = (
                f"Entry {expected} is" if sequence == expected + 1 else f"Entries {expected} to {sequence - 1} are"
            )
            yield ChainBreak(expected, f"{missing} missing.")
        elif sequence < expected:
            yield ChainBreak(sequence, f"Entry {sequence} is out of order: entry {expected} was expected.")
        if digest_of(record) != record["digest"]:
            yield ChainBreak(sequence, f"Entry {sequence} was changed: its content does not fit its digest.")
        elif sequence == expected and record["previous"] != previous:
            yield ChainBreak(
                sequence, f"Entry {sequence} does not follow the one before it: one of the two was replaced."
            )
        expected, previous = sequence + 1, record["digest"]


def clean(value: object, depth: int = 0) -> Any:
    """Return a value as stored: plain JSON of a bounded size, without likely secrets."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_INTEGER else str(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= MAX_INTEGER else repr(value)
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        kept = {
            clean_text(name, 100): _member(str(name), one, depth) for name, one in list(value.items())[:MAX_MEMBERS]
        }
        return kept | _left_out(len(value))
    if isinstance(value, (list, tuple, set, frozenset)) and depth < MAX_DEPTH:
        many = sorted(value, key=str) if isinstance(value, (set, frozenset)) else list(value)
        cut = [f"and {len(many) - MAX_MEMBERS} more"] if len(many) > MAX_MEMBERS else []
        return [clean(one, depth + 1) for one in many[:MAX_MEMBERS]] + cut
    return clean_text(value)


def clean_values(values: Mapping[str, object] | None) -> dict[str, Any] | None:
    """Return the `before` or `after` of an entry; if too large, its size."""
    if values is None:
        return None
    cleaned: dict[str, Any] = clean(values)
    size = len(canonical(cleaned))
    return cleaned if size <= MAX_VALUES_BYTES else {"(too large to keep)": f"{size} bytes"}


def clean_text(value: object, longest: int = MAX_TEXT_LENGTH) -> str:
    """Return a text of limited length that every database accepts, without likely secrets."""
    text = str(value)[: 4 * longest].encode("utf-8", "replace").decode()
    text = SECRET_TEXTS.sub(REDACTED, "".join(one if one.isprintable() or one == "\n" else " " for one in text))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _member(name: str, value: object, depth: int) -> Any:
    # The existence of a password may be recorded, nothing else of it.
    if SECRET_NAMES.search(name) and not (value is None or isinstance(value, bool)):
        return REDACTED
    return clean(value, depth + 1)


def _left_out(members: int) -> dict[str, str]:
    return {"…": f"and {members - MAX_MEMBERS} more"} if members > MAX_MEMBERS else {}


def _ordered(value: object) -> object:
    if isinstance(value, Mapping):
        # RFC 8785 sorts by UTF-16 code units.
        return {name: _ordered(value[name]) for name in sorted(value, key=lambda name: str(name).encode("utf-16-be"))}
    if isinstance(value, list):
        return [_ordered(one) for one in value]
    return value
