"""What a run comes to: medians and spreads of what was recorded, kept with the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.runs.models import Run
from benchmarks.runs.series import Floats, values_of
from benchmarks.workloads.catalogue import CATALOGUE
from hostwire.training import READINGS

TIMED: Final = "steps/timed/seconds"
NO_SYNC: Final = "steps/no_sync/seconds"
LOSS: Final = "steps/timed/loss"
PHASE: Final = "phase/"
LINKS: Final = "link/device-"
DRAWS: Final = 1000
MOST_DRAWN: Final = 2000  # steps
FEWEST: Final = 2  # values, for a spread to mean something


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A value with the 5th and the 95th percentile of `count` values: a median, where nothing else is said."""

    value: float
    low: float
    high: float
    unit: str
    count: int = 1


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run; None where it has none.

    `exposed_seconds` is the exposed communication: the median of synchronised steps less that of steps without
    exchange of gradients. `readings` are means over the timed phase and all devices, by the names of
    hostwire.training.READINGS. `pcie` is bytes a second over the chassis' links of its devices, both ways. `tables` are
    results that are no step times, as hostwire.training.Result has them, with their `units`.
    """

    step_seconds: Figure | None = None
    samples_per_second: Figure | None = None
    exposed_seconds: Figure | None = None
    first_loss: float | None = None
    last_loss: float | None = None
    readings: dict[str, Figure] = {}
    pcie: Figure | None = None
    tables: dict[str, Any] = {}
    units: dict[str, str] = {}


def summary_of(run: Run) -> Summary:
    """Return the figures that are kept with a run; all None before there are any."""
    return msgspec.convert(run.results, Summary) if run.results else Summary()


def summarise(run: Run) -> Summary:
    """Return the figures of a run, made of what was recorded of it.

    Of readings and of PCIe the value is a mean, of exposed communication the difference of two medians; its interval
    is a bootstrap's of 1000 draws.
    """
    recorded = values_of(run)
    kept = summary_of(run)
    steps = _finite(recorded, TIMED)
    loss = _finite(recorded, LOSS)
    since, until = span_of(run, recorded)
    return Summary(
        step_seconds=_median(steps, "s"),
        samples_per_second=_rate(steps, run),
        exposed_seconds=_exposed(steps, _finite(recorded, NO_SYNC)),
        first_loss=float(loss[0]) if len(loss) else None,
        last_loss=float(loss[-1]) if len(loss) else None,
        readings=_readings(recorded, since, until),
        pcie=_pcie(recorded, since, until),
        tables=kept.tables,
        units=kept.units,
    )


def span_of(run: Run, recorded: Mapping[str, tuple[Floats, Floats]]) -> tuple[float, float]:
    """Return the time (Unix s) that a run's means are over: of its timed steps, else all that it was on its host."""
    timed, _ = recorded.get(TIMED, (np.zeros(0), np.zeros(0)))
    begun, _ = recorded.get(f"{PHASE}timed", (np.zeros(0), np.zeros(0)))
    since = float(begun[0]) if len(begun) else run.started_at.timestamp() if run.started_at else -np.inf
    until = float(timed[-1]) if len(timed) else run.ended_at.timestamp() if run.ended_at else np.inf
    return since, until


def figure_of(values: Floats, unit: str, *, mean: bool = False) -> Figure | None:
    """Return the median, or the mean, of values with the 5th and 95th percentile; None without any."""
    there = values[np.isfinite(values)]
    if len(there) == 0:
        return None
    low, middle, high = np.percentile(there, [5, 50, 95])
    value = float(np.mean(there)) if mean else float(middle)
    if not np.isfinite(value):  # of values so large that their sum is none
        return None
    return Figure(value=value, low=min(float(low), value), high=max(float(high), value), unit=unit, count=len(there))


def _median(steps: Floats, unit: str) -> Figure | None:
    return figure_of(steps, unit)


def _rate(steps: Floats, run: Run) -> Figure | None:
    """Return samples a second; None of what trains nothing."""
    there = steps[steps > 0]
    workload = CATALOGUE.get(run.workload)
    if len(there) == 0 or not run.spec or (workload is not None and not workload.is_training):
        return None
    return figure_of(run.specification().global_batch / there, "1/s")


def _exposed(steps: Floats, without: Floats) -> Figure | None:
    if len(steps) < FEWEST or len(without) < FEWEST:
        return None
    value, count = float(np.median(steps) - np.median(without)), min(len(steps), len(without))
    draws = np.random.default_rng(0)
    # All of very many steps would be drawn a thousand times.
    steps, without = (draws.choice(one, MOST_DRAWN) if len(one) > MOST_DRAWN else one for one in (steps, without))
    differences = np.median(draws.choice(steps, (DRAWS, len(steps))), axis=1) - np.median(
        draws.choice(without, (DRAWS, len(without))), axis=1
    )
    low, high = np.percentile(differences, [5, 95])
    if not np.isfinite([low, value, high]).all():  # of times so large that their difference is none
        return None
    return Figure(value=value, low=min(float(low), value), high=max(float(high), value), unit="s", count=count)


def _readings(recorded: Mapping[str, tuple[Floats, Floats]], since: float, until: float) -> dict[str, Figure]:
    """Return the means of readings within a span, over all devices."""
    found: dict[str, list[Floats]] = {}
    for key, (at, values) in recorded.items():
        name = key.rpartition("/")[2]
        if name in READINGS and not key.startswith("link/"):
            found.setdefault(name, []).append(values[(at >= since) & (at <= until)])
    figures = {name: figure_of(np.concatenate(parts), READINGS[name][0], mean=True) for name, parts in found.items()}
    return {name: figure for name, figure in sorted(figures.items()) if figure is not None}


def _pcie(recorded: Mapping[str, tuple[Floats, Floats]], since: float, until: float) -> Figure | None:
    """Return the traffic of all devices together, both ways, as their chassis counted it."""
    totals: dict[float, float] = {}
    counts: dict[float, int] = {}
    links = {key: columns for key, columns in recorded.items() if key.startswith(LINKS)}
    for at, values in links.values():
        for moment, value in zip(at.tolist(), values.tolist(), strict=True):
            if since <= moment <= until and np.isfinite(value):
                totals[moment] = totals.get(moment, 0.0) + value
                counts[moment] = counts.get(moment, 0) + 1
    # A moment of which a link is missing would tell too little.
    whole = [total for moment, total in totals.items() if counts[moment] == len(links)]
    return figure_of(np.array(whole), "B/s", mean=True)


def _finite(recorded: Mapping[str, tuple[Floats, Floats]], key: str) -> Floats:
    _, values = recorded.get(key, (np.zeros(0), np.zeros(0)))
    return values[np.isfinite(values)]
