"""The tiers of the store: how wide a bucket is, how long the window of a chunk is, how often it is made. Pure.

Each is made from the one before it. What is not made yet is read from there, so that no answer has a hole.
"""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.store.models import Tier

RAW_SPAN = 60_000  # ms; what a raw chunk spans at most
ROLLUPS = (Tier.TEN_SECONDS, Tier.MINUTE, Tier.QUARTER)


@dataclass(frozen=True)
class Shape:
    """Of a tier, in ms: a bucket, the window of a chunk, and in which portions it is made."""

    step: int
    window: int
    portion: int


# Each window lies in one window of the next tier.
SHAPES = {
    Tier.TEN_SECONDS: Shape(step=10_000, window=900_000, portion=900_000),
    Tier.MINUTE: Shape(step=60_000, window=6 * 3_600_000, portion=3_600_000),
    Tier.QUARTER: Shape(step=900_000, window=96 * 3_600_000, portion=6 * 3_600_000),
}
# s; buckets that people are shown: each is a whole number of the widest tier's that divides it.
STEPS = (
    1, 2, 5, 10, 20, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600,
    86400, 2 * 86400, 4 * 86400, 7 * 86400, 14 * 86400, 28 * 86400,
)  # fmt: skip


def step_of(tier: Tier) -> int:
    """Return the width of a tier's buckets in ms; 1 for raw readings."""
    return SHAPES[tier].step if tier is not Tier.RAW else 1


def tier_for(step: int) -> Tier:
    """Return the widest tier of which buckets of `step` ms can be made."""
    return next((tier for tier in reversed(ROLLUPS) if step % SHAPES[tier].step == 0), Tier.RAW)


def window_of(tier: Tier, at: int) -> int:
    """Return where the window begins that has a moment, ms."""
    return at // SHAPES[tier].window * SHAPES[tier].window
