"""Spans of time, in whole ms: each from its first moment to right before its last. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]


def union(spans: Iterable[Span]) -> list[Span]:
    """Return spans that do not touch and cover the same, in order of time."""
    found: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def minus(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return what spans cover and `others` do not."""
    left = union(spans)
    for begin, end in union(others):
        left = [
            part
            for span in left
            for part in ((span[0], min(span[1], begin)), (max(span[0], end), span[1]))
            if part[0] < part[1]
        ]
    return left


def widened(span: Span, step: int) -> Span:
    """Return the span with its ends moved to whole steps."""
    return span[0] // step * step, -(-span[1] // step) * step
