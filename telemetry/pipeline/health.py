"""The pipeline's health as one whole: what the page shows and the API answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accounts.access import administrator_required
from accounts.models import User
from fabric.models import Chassis
from telemetry.pipeline.judging import (
    ChassisHealth,
    Finding,
    Followed,
    Level,
    Waiting,
    chassis_health,
    findings,
)
from telemetry.pipeline.meanings import MEANINGS, Meaning, words_of
from telemetry.pipeline.selectors import Counted, Pipeline, Sizes, pipeline_now, sizes
from telemetry.pipeline.waiting import waiting_now


@dataclass(frozen=True)
class Row:
    """Something that is no good, counted: of a chassis, or of the site as a whole (None, '')."""

    name: str
    words: str
    chassis_id: int | None
    chassis_name: str
    counted: Counted
    meaning: Meaning | None


@dataclass(frozen=True)
class Health:
    """The pipeline's own health."""

    level: Level
    findings: Sequence[Finding]
    chassis: Sequence[ChassisHealth]
    rows: Sequence[Row]
    waiting: Sequence[Waiting]
    sizes: Sizes
    pipeline: Pipeline


def health_now(person: User) -> Health:
    """Return the pipeline's health; raises Forbidden for who is no administrator, Unavailable without Redis."""
    administrator_required(person)
    pipeline, held, waiting = pipeline_now(), sizes(), waiting_now()
    names = dict(Chassis.objects.values_list("pk", "name"))
    polled = Chassis.objects.filter(enabled=True).order_by("name")
    followed = [Followed(*row) for row in polled.values_list("pk", "name", "last_error")]
    chassis = chassis_health(pipeline, followed)
    found = findings(pipeline, held, chassis, waiting)
    return Health(
        level=max((one.level for one in found), default=Level.GOOD),
        findings=found,
        chassis=chassis,
        rows=_rows(pipeline, names),
        waiting=waiting,
        sizes=held,
        pipeline=pipeline,
    )


def _rows(pipeline: Pipeline, names: dict[int, str]) -> list[Row]:
    """Return what is no good, the newest losses first; of chassis that are there."""
    rows = [
        Row(name, words_of(name), chassis, names.get(chassis, "") if chassis else "", counted, MEANINGS.get(name))
        for (name, chassis), counted in pipeline.counts.items()
        if name in MEANINGS and (chassis is None or chassis in names)
    ]
    return sorted(
        rows,
        key=lambda row: (-row.counted.recent, not (row.meaning and row.meaning.is_loss), -row.counted.total, row.words),
    )
