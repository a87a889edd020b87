"""Throughput of a chassis' drawers and slots over a range, measured at the device-side ports."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accounts.models import User
from accounts.visibility import visible_or_404
from core.language import gettext_noop
from fabric.inventory.models import Chassis, Device, Drawer, Slot
from telemetry.history.encoding import number_text, round_significant
from telemetry.history.rules import MAX_SUBJECTS, METRICS, TimeRange
from telemetry.history.selectors import MetricHistory, read_history
from telemetry.history.subjects import slot_place
from telemetry.store.chunks import first_stored_at

BUCKETS: Final = 200
DIRECTIONS: Final = ("rx_bytes_per_second", "tx_bytes_per_second")
COLUMNS: Final = (
    "kind", "drawer", "slot", "device", "rx_mean_bytes_per_second", "rx_busiest_bytes_per_second", "rx_bytes",
    "tx_mean_bytes_per_second", "tx_busiest_bytes_per_second", "tx_bytes", "measured_share",
)  # fmt: skip
SORTS: Final = ("place", "rx_mean", "rx_busiest", "rx_bytes", "tx_mean", "tx_busiest", "tx_bytes")


@dataclass(frozen=True)
class Flow:
    """One direction: the mean rate (B/s), that of the busiest bucket, and the bytes; NaN for none.

    `measured` is the share of the range with readings; bytes are of that share only.
    """

    mean: float = math.nan
    busiest: float = math.nan
    bytes: float = math.nan
    measured: float = 0.0


@dataclass(frozen=True)
class ThroughputRow:
    """Throughput of a drawer or a slot; `rx` is what its ports received from the devices."""

    kind: str  # 'drawer' or 'slot'
    id: int
    drawer: str
    slot: str
    device: Device | None
    rx: Flow
    tx: Flow


@dataclass(frozen=True)
class Throughput:
    """Throughput of the drawers and slots of a chassis; `step` (s) is the width of the busiest bucket."""

    chassis: Chassis
    span: TimeRange
    step: float
    drawers: list[ThroughputRow]
    slots: list[ThroughputRow]


def throughput_of(person: User, chassis_id: int, span: TimeRange, *, sort: str = "place") -> Throughput:
    """Return the throughput of a chassis that the person may see, sorted by one of SORTS; raises NotFound."""
    chassis: Chassis = visible_or_404(Chassis.objects.all(), person, chassis_id, gettext_noop("chassis"))
    drawers = list(Drawer.objects.visible_to(person).filter(chassis=chassis, missing_since=None))
    slots = list(
        Slot.objects.visible_to(person)
        .filter(chassis=chassis, missing_since=None, port__isnull=False)
        .select_related("drawer")
        .order_by("drawer__number", "number", "uri")
    )
    refs = [*(f"drawer/{one.pk}" for one in drawers), *(f"slot/{one.pk}" for one in slots)]
    metrics = [METRICS[name] for name in DIRECTIONS]
    parts = [
        read_history(person, refs[begin : begin + MAX_SUBJECTS], metrics, span, points=BUCKETS)
        for begin in range(0, len(refs), MAX_SUBJECTS)
    ]
    first_stored = first_stored_at(chassis.pk) or span.since
    flows: dict[tuple[str, str], Flow] = {}
    for part in parts:
        flows |= _flows(part, first_stored)
    devices = {one.slot_id: one for one in Device.objects.visible_to(person).filter(slot__in=slots)}
    of_drawers = [
        ThroughputRow("drawer", one.pk, one.name, "", None, *_flows_of(flows, "drawer", one.pk)) for one in drawers
    ]
    of_slots = []
    for one in slots:
        drawer = one.drawer.name if one.drawer is not None else ""
        place, device = slot_place(one.name, drawer), devices.get(one.pk)
        of_slots.append(ThroughputRow("slot", one.pk, drawer, place, device, *_flows_of(flows, "slot", one.pk)))
    step = max((part.step for part in parts), default=1.0)
    return Throughput(chassis, span, step, _sort_rows(of_drawers, sort), _sort_rows(of_slots, sort))


def _flows_of(flows: dict[tuple[str, str], Flow], kind: str, pk: int) -> tuple[Flow, Flow]:
    rx, tx = (flows.get((f"{kind}/{pk}", name), Flow()) for name in DIRECTIONS)
    return rx, tx


def _flows(history: MetricHistory, first_stored: float) -> dict[tuple[str, str], Flow]:
    seconds = _read_seconds(history, first_stored)
    found = {}
    for line in history.lines:
        present = ~np.isnan(line.mean)
        if present.any():
            means, durations = line.mean[present], seconds[present]
            total = float(durations.sum())
            carried = float((means * durations).sum())
            mean = carried / total if total else float(means.mean())
            share = total / history.span.seconds
            found[line.subject.ref, line.metric] = Flow(mean, float(means.max()), carried, share)
    return found


def _read_seconds(history: MetricHistory, first_stored: float) -> NDArray[np.float64]:
    """Return how long (s) the chassis was read in each bucket, since `first_stored`: a bucket may be days long."""

    def inside(since: float, until: float) -> NDArray[np.float64]:
        since, until = max(since, first_stored, history.span.since), min(until, history.span.until)
        ends, begins = np.minimum(history.at + history.step, until), np.maximum(history.at, since)
        return np.asarray(np.maximum(ends - begins, 0.0))

    seconds = inside(-math.inf, math.inf)
    for gap in history.gaps:
        seconds = seconds - inside(gap.since, gap.until)
    return seconds.clip(0.0)


def _sort_rows(rows: list[ThroughputRow], sort: str) -> list[ThroughputRow]:
    direction, _, what = sort.partition("_")
    if sort not in SORTS or not what:
        return rows

    def size(row: ThroughputRow) -> float:
        value = float(getattr(getattr(row, direction), what))
        return -math.inf if math.isnan(value) else value

    return sorted(rows, key=size, reverse=True)


def throughput_lines(rows: Sequence[ThroughputRow]) -> Iterator[tuple[object, ...]]:
    """Yield a row of a table for each drawer and slot; its columns are COLUMNS."""
    for row in rows:
        yield (
            row.kind, row.drawer, row.slot, row.device.name if row.device else "",
            *(text for flow in (row.rx, row.tx) for text in _texts(flow)),
            round(max(row.rx.measured, row.tx.measured), 4),
        )  # fmt: skip


def _texts(flow: Flow) -> list[str]:
    rates = [number_text(one) for one in round_significant(np.array([flow.mean, flow.busiest]))]
    return [*rates, "" if math.isnan(flow.bytes) else str(round(flow.bytes))]
