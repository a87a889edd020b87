"""What is missing, and why: written beside the chunks, in the transaction that stores what came before or after."""

from __future__ import annotations

from telemetry.store.models import Chunk, Gap, Tier
from telemetry.store.parcels import Packed, Parcel

DIED = "The worker that read this chassis ended before it had stored these seconds."
REASON_LENGTH = 300


def tell(chassis: int, since: float, until: float | None, reason: str) -> None:
    """Write down that something is missing."""
    Gap.objects.create(chassis=chassis, since=since, until=until, reason=reason[:REASON_LENGTH])


def note(parcel: Parcel) -> None:
    """Write down what a recorder knows to be missing; what it told before is brought to its end."""
    for one in parcel.notes:
        going_on = Gap.objects.filter(chassis=parcel.chassis, until=None)
        if one.until is None:
            if not going_on.exists():
                tell(parcel.chassis, one.since, None, one.reason)
        elif (begun := going_on.order_by("pk").first()) is not None:
            _end(begun, one.until, parcel.slack)
        elif one.until - one.since > parcel.slack:
            tell(parcel.chassis, one.since, one.until, one.reason)


def join(first: Packed) -> None:
    """Look at what another recorder left, before the first rows of this one: what it told goes on no longer.

    What is missing without a word of it was lost with the other one.
    """
    chassis, slack = first.parcel.chassis, first.parcel.slack
    stored = Chunk.objects.filter(chassis=chassis, tier=Tier.RAW, since__lte=first.since).order_by("-since")
    last = stored.values_list("until", flat=True).first()
    if last is not None:
        told = Gap.objects.filter(chassis=chassis, since__gte=last - slack, since__lt=first.since).order_by("since")
        until = told.values_list("since", flat=True).first() or first.since
        if until - last > slack:
            tell(chassis, last, until, DIED)
    for begun in Gap.objects.filter(chassis=chassis, until=None):
        _end(begun, first.since, slack)


def _end(gap: Gap, until: float, slack: float) -> None:
    if until - gap.since > slack:
        gap.until = until
        gap.save(update_fields=["until"])
    else:
        gap.delete()
