"""Results of a run: summary, traffic of its links, observations for the model."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np

from accounts.models import User
from benchmarks import model
from benchmarks.model.calibration import Observation
from benchmarks.runs.models import Run, Series
from benchmarks.runs.recording import (
    DEVICE_LINK_PREFIX,
    LOSS_KEY,
    NO_SYNC_SECONDS_KEY,
    NO_VALUES,
    PHASE_PREFIX,
    STEP_SECONDS_KEY,
    Floats,
    series_append,
    series_values,
)
from benchmarks.runs.rules import Composition
from benchmarks.runs.topology import recorded_topology
from benchmarks.workloads.catalogue import CATALOGUE
from core.errors import FalconWebError
from fabric.inventory.models import Device, HostPort
from hostwire.training import READINGS
from telemetry.store.selectors import read_series

BOOTSTRAP_DRAWS: Final = 1000
MAX_BOOTSTRAP_STEPS: Final = 2000  # steps
MIN_VALUES: Final = 2  # values, for a spread to mean something


class Statistic(msgspec.Struct, frozen=True, kw_only=True):
    """A value, by default a median, with the 5th and the 95th percentile of `count` values."""

    value: float
    low: float
    high: float
    unit: str
    count: int = 1

    @classmethod
    def exact(cls, value: float, unit: str) -> Statistic:
        """Return one value without a spread."""
        return cls(value=value, low=value, high=value, unit=unit)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run; None if missing.

    `exposed_seconds` is the exposed communication: the median of synchronised steps less that of steps without
    exchange of gradients. `readings` are means over the timed phase and all devices, by the names of
    hostwire.training.READINGS. `pcie` is bytes a second over the chassis' links of its devices, both ways. `tables` are
    results that are no step times, as hostwire.training.RunResult has them, with their `units`.
    """

    step_seconds: Statistic | None = None
    samples_per_second: Statistic | None = None
    exposed_seconds: Statistic | None = None
    first_loss: float | None = None
    last_loss: float | None = None
    readings: dict[str, Statistic] = {}
    pcie: Statistic | None = None
    tables: dict[str, Any] = {}
    units: dict[str, str] = {}


def summary_of(run: Run) -> Summary:
    """Return the stored figures of a run; all None before they are recorded."""
    return msgspec.convert(run.results, Summary) if run.results else Summary()


def summarise(run: Run) -> Summary:
    """Compute the figures of a run from its recorded series.

    Of readings and of PCIe the value is a mean, of exposed communication the difference of two medians; its interval
    is a bootstrap's of 1000 draws.
    """
    recorded = series_values(run)
    kept = summary_of(run)
    steps = _finite_values(recorded, STEP_SECONDS_KEY)
    loss = _finite_values(recorded, LOSS_KEY)
    since, until = measured_span(run, recorded)
    return Summary(
        step_seconds=statistic_of(steps, "s"),
        samples_per_second=_rate(steps, run),
        exposed_seconds=_exposed(steps, _finite_values(recorded, NO_SYNC_SECONDS_KEY)),
        first_loss=float(loss[0]) if len(loss) else None,
        last_loss=float(loss[-1]) if len(loss) else None,
        readings=_readings(recorded, since, until),
        pcie=_pcie(recorded, since, until),
        tables=kept.tables,
        units=kept.units,
    )


def measured_span(run: Run, recorded: Mapping[str, tuple[Floats, Floats]]) -> tuple[float, float]:
    """Return the interval (Unix s) of a run's means: its timed steps, else its whole time on the host."""
    timed, _ = recorded.get(STEP_SECONDS_KEY, NO_VALUES)
    begun, _ = recorded.get(f"{PHASE_PREFIX}timed", NO_VALUES)
    since = float(begun[0]) if len(begun) else run.started_at.timestamp() if run.started_at else -np.inf
    until = float(timed[-1]) if len(timed) else run.ended_at.timestamp() if run.ended_at else np.inf
    return since, until


def statistic_of(values: Floats, unit: str, *, mean: bool = False) -> Statistic | None:
    """Return the median, or the mean, of values with the 5th and 95th percentile; None without any."""
    there = values[np.isfinite(values)]
    if len(there) == 0:
        return None
    low, middle, high = np.percentile(there, [5, 50, 95])
    value = float(np.mean(there)) if mean else float(middle)
    if not np.isfinite(value):  # the sum overflowed
        return None
    return Statistic(value=value, low=min(float(low), value), high=max(float(high), value), unit=unit, count=len(there))


def _rate(steps: Floats, run: Run) -> Statistic | None:
    """Return samples a second; None for a workload without training."""
    there = steps[steps > 0]
    workload = CATALOGUE.get(run.workload)
    if len(there) == 0 or not run.spec or (workload is not None and not workload.is_training):
        return None
    return statistic_of(run.specification().global_batch / there, "1/s")


def _exposed(steps: Floats, without: Floats) -> Statistic | None:
    if len(steps) < MIN_VALUES or len(without) < MIN_VALUES:
        return None
    value, count = float(np.median(steps) - np.median(without)), min(len(steps), len(without))
    draws = np.random.default_rng(0)
    # The bootstrap draws all steps a thousand times.
    steps, without = (
        draws.choice(one, MAX_BOOTSTRAP_STEPS) if len(one) > MAX_BOOTSTRAP_STEPS else one for one in (steps, without)
    )
    differences = np.median(draws.choice(steps, (BOOTSTRAP_DRAWS, len(steps))), axis=1) - np.median(
        draws.choice(without, (BOOTSTRAP_DRAWS, len(without))), axis=1
    )
    low, high = np.percentile(differences, [5, 95])
    if not np.isfinite([low, value, high]).all():  # the difference overflowed
        return None
    # Less than nothing is noise.
    low, value, high = (max(0.0, float(one)) for one in (low, value, high))
    return Statistic(value=value, low=min(low, value), high=max(high, value), unit="s", count=count)


def _readings(recorded: Mapping[str, tuple[Floats, Floats]], since: float, until: float) -> dict[str, Statistic]:
    found: dict[str, list[Floats]] = {}
    for key, (at, values) in recorded.items():
        name = key.rpartition("/")[2]
        if name in READINGS and not key.startswith("link/"):
            found.setdefault(name, []).append(values[(at >= since) & (at <= until)])
    figures = {name: statistic_of(np.concatenate(parts), READINGS[name][0], mean=True) for name, parts in found.items()}
    return {name: figure for name, figure in sorted(figures.items()) if figure is not None}


def _pcie(recorded: Mapping[str, tuple[Floats, Floats]], since: float, until: float) -> Statistic | None:
    """Return the traffic of all devices together, both ways, as their chassis counted it."""
    links = [columns for key, columns in recorded.items() if key.startswith(DEVICE_LINK_PREFIX)]
    if not links:
        return None
    at, values = (np.concatenate(parts) for parts in zip(*links, strict=True))
    there = (at >= since) & (at <= until) & np.isfinite(values)
    _, moments, counts = np.unique(at[there], return_inverse=True, return_counts=True)
    totals = np.bincount(moments, values[there], len(counts))
    # A sum without one of the links would be too low.
    return statistic_of(totals[counts == len(links)], "B/s", mean=True)


def _finite_values(recorded: Mapping[str, tuple[Floats, Floats]], key: str) -> Floats:
    _, values = recorded.get(key, NO_VALUES)
    return values[np.isfinite(values)]


# Real runs. Simulated runs, and imported records of them, follow the model: learning from them would be circular.
REAL_PROVENANCES: Final = (Run.Provenance.MEASURED, Run.Provenance.IMPORTED)
MODELLED_PROVENANCES: Final = (Run.Provenance.SIMULATED, Run.Provenance.PREDICTED)
MAX_OBSERVATIONS: Final = 500  # of the newest
MIN_SPREAD: Final = 0.005  # the relative spread that a median is believed to have at least
NORMAL_90_WIDTH: Final = 3.29  # standard deviations of a normal distribution between its 5th and 95th percentile
MEDIAN_ERROR_FACTOR: Final = 1.2533  # the standard error of a median by that of a mean


def observations(person: User) -> list[Observation]:
    """Return observations of completed real runs that the person sees, newest first, 500 at most.

    Runs without step times or without a known topology are left out, and those that something else disturbed.
    """
    rows = Run.objects.visible_to(person).filter(
        state=Run.State.COMPLETED, provenance__in=REAL_PROVENANCES, overlaps=[]
    )
    rows = rows.exclude(provenance=Run.Provenance.IMPORTED, source__provenance__in=MODELLED_PROVENANCES)
    return observations_of(rows.order_by("-queued_at")[:MAX_OBSERVATIONS])


def observations_of(runs: Iterable[Run]) -> list[Observation]:
    """Return observations of those of these runs that have step times and a known topology.

    Imported records may have arbitrary sizes and links: impossible ones are left out.
    """
    found = (_observation(run) for run in runs)
    return [one for one in found if one is not None and _is_predictable(one)]


def _is_predictable(one: Observation) -> bool:
    try:
        with np.errstate(all="ignore"):
            seconds = model.step_seconds(_prior_draw(), [(one.spec, one.topology)])
    except (model.ModelError, ArithmeticError, TypeError, ValueError):
        return False
    return bool(np.isfinite(seconds).all() and (seconds > 0).all())


@cache
def _prior_draw() -> model.Draws:
    return model.prior().draws(1, 0)


def _observation(run: Run) -> Observation | None:
    topology = recorded_topology(run)
    summary = summary_of(run)
    if topology is None or summary.step_seconds is None or not topology.accelerators:
        return None
    try:
        spec = run.specification()
    except msgspec.ValidationError:
        return None
    return Observation(
        spec=spec,
        topology=topology,
        step_seconds=summary.step_seconds.value,
        spread=_relative_error(summary.step_seconds),
        traffic=summary.pcie.value if summary.pcie is not None else None,
        run=str(run.pk),
    )


def _relative_error(steps: Statistic) -> float:
    if steps.value <= 0 or steps.count < 2:
        return 0.05
    one = (steps.high - steps.low) / NORMAL_90_WIDTH / steps.value
    return max(MIN_SPREAD, MEDIAN_ERROR_FACTOR * one / math.sqrt(steps.count))


logger = logging.getLogger(__name__)

LINK_PREFIX: Final = "link/"
MAX_POINTS: Final = 2000
CHASSIS_SOURCE: Final = "chassis"
# From the point of view of the port.
RX, TX = "rx_bytes_per_second", "tx_bytes_per_second"


@dataclass(frozen=True)
class LinkDirection:
    """One direction of a link: its source series in the store, and its series of the run."""

    chassis: int
    counted: str
    key: str


def traffic_record(run: Run) -> None:
    """Record the traffic of the links of a run's devices and of their uplinks, bytes a second.

    'link/device-17/pcie_to' and '.../pcie_from' are the bytes that its chassis sent to and received from device 17,
    'link/uplink-4/...' the same for host port 4; '_to' is away from the host. Intervals in which the chassis was not
    polled are left out, and nothing is recorded twice.
    """
    if run.started_at is None or Series.objects.filter(run=run, key__startswith=LINK_PREFIX).exists():
        return
    since = run.started_at.timestamp()
    until = run.ended_at.timestamp() if run.ended_at is not None else time.time()
    directions = _link_directions(run)
    for chassis in {way.chassis for way in directions}:
        ways = [way for way in directions if way.chassis == chassis]
        try:
            _record_chassis(run, chassis, ways, since, max(until, since + 1.0))
        except (FalconWebError, OSError) as error:
            logger.info("run %s: the traffic of chassis %s could not be read: %s", run.pk, chassis, error)


def _record_chassis(run: Run, chassis: int, ways: list[LinkDirection], since: float, until: float) -> None:
    points = min(MAX_POINTS, max(1, math.ceil(until - since)))
    found = read_series(chassis, [way.counted for way in ways], since=since, until=until, points=points)
    rows = {entry["key"]: row for row, entry in enumerate(found.series)}
    for way in ways:
        row = rows.get(way.counted)
        if row is not None and (there := found.count[row] > 0).any():
            series_append(
                run,
                way.key,
                at=found.at[there],
                values=found.mean[row][there],
                unit="B/s",
                source=CHASSIS_SOURCE,
                interval=found.step,
            )


def _link_directions(run: Run) -> list[LinkDirection]:
    """Return both directions of each link: a port towards a device transmits to it, a host port receives for it."""
    found = []
    devices = Device.objects.filter(runs=run).exclude(slot__port=None)
    for pk, chassis, port in devices.values_list("pk", "chassis", "slot__port"):
        found += _both_directions(chassis, port, f"device-{pk}", to=TX, back=RX)
    uplinks = set(Composition.from_json(run.composition).all_devices.values()) if run.composition else set()
    ports = HostPort.objects.filter(pk__in=uplinks).exclude(port=None)
    for pk, chassis, port in ports.values_list("pk", "chassis", "port"):
        found += _both_directions(chassis, port, f"uplink-{pk}", to=RX, back=TX)
    return found


def _both_directions(chassis: int, port: int, name: str, *, to: str, back: str) -> list[LinkDirection]:
    return [
        LinkDirection(chassis, f"port/{port}/{to}", f"{LINK_PREFIX}{name}/pcie_to"),
        LinkDirection(chassis, f"port/{port}/{back}", f"{LINK_PREFIX}{name}/pcie_from"),
    ]
