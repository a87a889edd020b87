"""Bounds on JSON by its bytes: a few megabytes of '{}' become gigabytes of objects, and are refused before that."""

from __future__ import annotations

from collections.abc import Iterator

from fabric.bmc.errors import Malformed

MAX_VALUES = 500_000  # of one response: some 40 MB of objects
MAX_DEPTH = 64  # of objects and lists inside each other
BLOCK_BYTES = 2**16
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
NO_SEPARATORS = bytes(set(range(256)) - set(b"{[:,"))


def count_values(raw: bytes, *, where: str, most: int = MAX_VALUES) -> int:
    """Return how many values and names JSON has, about; raises Malformed, which names `where`, beyond the bounds.

    These are `most` values, and MAX_DEPTH objects and lists inside each other. What is no JSON is counted as if it was.
    """
    values = _count_separators(raw)
    if values <= most and not _nested_brackets(raw):
        return values
    # Characters inside texts count for nothing.
    found, brackets = 0, bytearray()
    for plain in _outside_texts(raw):
        found += _count_separators(plain)
        brackets += plain.translate(None, NO_BRACKETS)
        if found > most:
            raise Malformed(f"{where} answered with more than {most} values; they were not read.")
    rest = _nested_brackets(brackets)
    if b"{}" in rest or b"[]" in rest:
        raise Malformed(f"{where} answered with objects that are nested more than {MAX_DEPTH} deep.")
    return values


def _outside_texts(raw: bytes) -> Iterator[bytes]:
    """Yield what of JSON is outside of its texts, in blocks."""
    raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    is_inside = False
    for at in range(0, len(raw), BLOCK_BYTES):
        parts = raw[at : at + BLOCK_BYTES].split(b'"')
        yield b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0


def _count_separators(raw: bytes) -> int:
    # In one pass: the four characters are so frequent that `count` would take seven times as long.
    return len(raw.translate(None, NO_SEPARATORS))


def _nested_brackets(raw: bytes | bytearray) -> bytes | bytearray:
    """Return the brackets that remain without the innermost MAX_DEPTH levels, or without a partner."""
    brackets = raw.translate(None, NO_BRACKETS)
    for _level in range(MAX_DEPTH):
        size = len(brackets)
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if len(brackets) == size:
            break
    return brackets
