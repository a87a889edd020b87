"""What a BMC lacks of an interoperability profile, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from core.language import _, gettext_noop, joined
from fabric.bmc.gaps import GapKind, ProfileGap

# The use cases of FalconWeb's own profile by their titles: as a heading, and counted.
PURPOSES = {
    "Monitoring": (gettext_noop("For monitoring"), gettext_noop("{count} for monitoring")),
    "Health": (gettext_noop("For health"), gettext_noop("{count} for health")),
    "Composing": (gettext_noop("For composing"), gettext_noop("{count} for composing")),
}


@dataclass(frozen=True)
class GapView:
    """One gap on a page."""

    sentence: str
    reason: str
    is_recommended: bool
    examples: tuple[str, ...]
    more: str  # how many other places there are


@dataclass(frozen=True)
class GapsView:
    """What a BMC lacks on a page: counted in a line, and by purpose."""

    summary: str
    groups: list[tuple[str, list[GapView]]]


def gaps_view(stored: list[dict[str, Any]]) -> GapsView:
    """Return the gaps that a walk found, of FalconWeb's own profile, as a page shows them."""
    groups = gap_groups(msgspec.convert(stored, list[ProfileGap]), PURPOSES)
    counted = [(purpose, sum(not gap.is_recommended for gap in found)) for purpose, found in groups]
    parts = [_(PURPOSES[purpose][1], count=count) for purpose, count in counted if count]
    return GapsView(
        summary=_("Missing: {parts}", parts=joined(parts, ", ")) if parts else _("Nothing mandatory is missing"),
        groups=[
            (
                _(PURPOSES[purpose][0]),
                [_gap_view(gap) for gap in found],
            )
            for purpose, found in groups
        ],
    )


def _gap_view(gap: ProfileGap) -> GapView:
    others = gap.missing - len(gap.examples) if gap.examples else 0
    more = _("and {count} more", count=others) if others > 0 else ""
    return GapView(gap_sentence(gap), _(gap.reason), gap.is_recommended, gap.examples, more)


def gap_groups(gaps: Iterable[ProfileGap], purposes: Iterable[str]) -> list[tuple[str, list[ProfileGap]]]:
    """Return gaps by purpose, in the order of the purposes, also those without any; what is mandatory is first."""
    groups: dict[str, list[ProfileGap]] = {purpose: [] for purpose in purposes}
    for gap in sorted(gaps, key=lambda one: one.is_recommended):
        groups.setdefault(gap.purpose, []).append(gap)
    return list(groups.items())


def gap_sentence(gap: ProfileGap) -> str:
    """Return what is missing, with the resource and the property."""
    words = {"resource": gap.resource, "property": gap.property, "wanted": gap.wanted}
    if gap.kind is GapKind.WAY:
        return _("There is no known way to attach devices.")
    if gap.kind is GapKind.RESOURCE:
        return _("There is no {resource}.", **words)
    sentence = _(_SENTENCES[gap.kind], **words)
    if gap.missing == gap.of:
        return sentence
    return _("{missing} of {of}: {sentence}", missing=gap.missing, of=gap.of, sentence=sentence)


_SENTENCES = {
    GapKind.PROPERTY: gettext_noop("{resource} has no {property}."),
    GapKind.ACTION: gettext_noop("{resource} has no action {property}."),
    GapKind.VERSION: gettext_noop("{resource} is older than version {wanted}."),
    GapKind.VALUE: gettext_noop("{property} of {resource} is not {wanted}."),
    GapKind.COUNT: gettext_noop("{property} of {resource} has fewer than {wanted} entries."),
    GapKind.EXCLUDED: gettext_noop("{resource} has {property}, which is not allowed."),
}
