"""The entries that say how many refusals were counted beyond the limit: see floods."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

import redis

from accounts.audit import floods
from accounts.audit.actions import Action, Outcome
from accounts.audit.models import AuditEntry
from accounts.audit.services import Target, audit_record, audited
from accounts.models import User

logger = logging.getLogger(__name__)

MOST_NAMED = 50


def refusals_summarise(*, now: float | None = None) -> int:
    """Write down what was counted in the periods that have ended; returns how many refusals that were."""
    total = 0
    try:
        for period, counts in floods.counted(time.time() if now is None else now).items():
            # A worker that died between the two leaves the counts to the next one, which finds the entries.
            if counts and not AuditEntry.objects.filter(target_kind="refusals", target_id=str(period)).exists():
                _write(period, counts)
                total += sum(counts.values())
            floods.forget(period)
    except (redis.RedisError, OSError) as error:
        logger.warning("counts of refused requests cannot be read now: %r", error)
    return total


def _write(period: int, counts: dict[tuple[int | None, str], int]) -> None:
    begin, end = (datetime.fromtimestamp(one * floods.PERIOD, UTC) for one in (period, period + 1))
    span = f"between {begin:%Y-%m-%d %H:%M} and {end:%H:%M} UTC"
    ordered = sorted(counts.items(), key=lambda one: -one[1])
    named = [one for one in ordered if one[0] != (None, "")][:MOST_NAMED]
    rest = sum(counts.values()) - sum(count for _, count in named)
    people = User.objects.in_bulk([person for (person, _), _ in named if person is not None])
    target = Target(kind="refusals", id=str(period), name=span)
    total = sum(counts.values())
    with audited(Action.AUDIT_MORE_REFUSALS, actor=None, target=target) as act:
        act.sentence = f"{total} further refused requests came {span}; they were counted, not kept one by one."
        act.after = {"requests": total, "from others": rest}
        for (person, address), count in named:
            who = people[person].username if person in people else "nobody who was signed in"
            audit_record(
                action=Action.AUDIT_MORE_REFUSALS,
                actor=people.get(person) if person is not None else None,
                target=target,
                after={"requests": count, "address": address},
                outcome=Outcome.REFUSED,
                sentence=f"{count} further refused requests of {who} came from {address or 'somewhere'} {span}.",
            )
