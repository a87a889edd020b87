"""The live frame: one chassis at one second, little-endian, encoded once for all browsers with the same sight.

    u8 kind (1 key, 2 delta) · u8 version · u16 catalogue revision · u32 chassis · u32 sequence · f64 Unix time · u16 n
    key: n f64 values; delta: a bitmap of ceil(n/8) bytes (bit i%8 of byte i//8: value i changed), then those f64 values

NaN says that there is no value. Values are f64 because error counters pass the 24 bits of an f32.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HEADER = struct.Struct("<BBHIIdH")
KEY, DELTA, VERSION = 1, 2, 1
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """A decoded key frame; `values` has one entry a series of the catalogue with that revision."""

    revision: int
    chassis: int
    sequence: int
    at: float
    values: Values


def encode_key(frame: Frame) -> bytes:
    """Return the frame with all values."""
    values: bytes = frame.values.astype("<f8").tobytes()
    return _header(KEY, frame) + values


def encode_delta(before: Values, frame: Frame) -> bytes:
    """Return the frame with the values that differ from `before` (same length, same catalogue)."""
    # Bit patterns, so that NaN equals NaN.
    changed = before.view(np.uint64) != frame.values.view(np.uint64)
    bitmap: bytes = np.packbits(changed, bitorder="little").tobytes()
    values: bytes = frame.values[changed].astype("<f8").tobytes()
    return _header(DELTA, frame) + bitmap + values


def as_message(raw: bytes) -> bytes:
    """Return bytes as the one binary message of a websocket that a server sends them in (RFC 6455, 5.2), unmasked."""
    size = len(raw)
    if size < 126:
        return bytes((0x82, size)) + raw
    return (struct.pack("!BBH", 0x82, 126, size) if size < 2**16 else struct.pack("!BBQ", 0x82, 127, size)) + raw


def decode_key(raw: bytes) -> Frame:
    """Return a key frame; raises ValueError for anything else."""
    if len(raw) < HEADER.size:
        raise ValueError("shorter than a header")
    kind, version, revision, chassis, sequence, at, count = HEADER.unpack_from(raw)
    if (kind, version) != (KEY, VERSION) or len(raw) != HEADER.size + 8 * count:
        raise ValueError("no key frame of this version")
    return Frame(revision, chassis, sequence, at, np.frombuffer(raw, "<f8", count, HEADER.size))


def _header(kind: int, frame: Frame) -> bytes:
    return HEADER.pack(
        kind, VERSION, frame.revision, frame.chassis, frame.sequence & 0xFFFFFFFF, frame.at, len(frame.values)
    )
