"""Runs side by side: what differs between them, and what they came to, against the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from benchmarks.figures.estimates import Estimate, seconds_a_step
from benchmarks.figures.labels import configuration_of, storage_of, work_of
from benchmarks.figures.rows import Row
from benchmarks.figures.use import SHOWN
from benchmarks.model.shapes import LOCAL, Topology
from benchmarks.runs.naming import strategy_words
from benchmarks.runs.summary import Figure
from hostwire.training import READINGS

GIGA: Final = 1e9
ABSENT: Final = "–"
# How fields of a specification are told, as on all other pages.
CALLED: Final[Mapping[str, Callable[[str], str]]] = {
    "precision": str.upper,
    "gradient": str.upper,
    "strategy": strategy_words,
}
FABRICS: Final = {"nvlink": "NVLink", "pcie": "PCIe"}


@dataclass(frozen=True)
class Fact:
    """Something that runs are or have, a text a run."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether it is not the same for all."""
        return len(set(self.values)) > 1


@dataclass(frozen=True)
class Part:
    """Facts of one kind."""

    title: str
    facts: tuple[Fact, ...]

    @property
    def different(self) -> tuple[Fact, ...]:
        """Those that are not the same for all."""
        return tuple(fact for fact in self.facts if fact.differs)

    @property
    def same(self) -> tuple[Fact, ...]:
        """Those that are."""
        return tuple(fact for fact in self.facts if not fact.differs)


@dataclass(frozen=True)
class Against:
    """A result of one run with its interval, and over that of the first run; None for what is not known."""

    value: float
    low: float | None
    high: float | None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None


@dataclass(frozen=True)
class Result:
    """What runs came to, one a run in their order. `interval` says what low and high are."""

    name: str
    unit: str
    values: tuple[Against | None, ...]
    interval: str


@dataclass(frozen=True)
class Comparison:
    """Runs in the order that was asked for."""

    rows: tuple[Row, ...]
    parts: tuple[Part, ...]
    results: tuple[Result, ...]

    @property
    def is_mixed(self) -> bool:
        """Whether figures of different provenance stand beside each other."""
        return len({row.provenance for row in self.rows}) > 1


def comparison(rows: Sequence[Row]) -> Comparison:
    """Return runs side by side; each ratio is to the first one that is given."""
    parts = (
        Part("Specification", _told(rows, _specification)),
        Part("Topology", _told(rows, lambda row: _topology(row.topology, row.host))),
        Part("Software", _told(rows, lambda row: dict(_flat(row.software)))),
    )
    found = [_estimates(rows), *_kept(rows)]
    results = tuple(result for several in found for result in several if any(result.values))
    return Comparison(tuple(rows), parts, results)


def labels(rows: Sequence[Row]) -> dict[str, str]:
    """Return by run what it did, for the heads of columns."""
    return work_of(rows)


def _told(rows: Sequence[Row], of: Callable[[Row], Mapping[str, str]]) -> tuple[Fact, ...]:
    told = [of(row) for row in rows]
    names = dict.fromkeys(name for one in told for name in one)
    return tuple(Fact(name, tuple(one.get(name, ABSENT) for one in told)) for name in names)


def _specification(row: Row) -> dict[str, str]:
    if row.spec is None:
        return {"workload": row.workload_title}
    plain: dict[str, Any] = msgspec.to_builtins(row.spec)
    options = plain.pop("options")
    plain |= {"workload": row.workload_title, "command": " ".join(row.spec.command)}
    fields = {
        name.replace("_", " "): CALLED[name](value) if name in CALLED else _text(value)
        for name, value in (plain | options).items()
        if value not in ("", ())
    }
    return fields | {"global batch": str(row.spec.global_batch)}


def _topology(topology: Topology | None, host: str) -> dict[str, str]:
    if topology is None:
        return {"configuration": "not recorded"} | ({"host": host} if host else {})
    accelerators = topology.accelerators
    found = {
        "configuration": configuration_of(topology),
        "host": host or topology.host,
        "accelerators": _several(one.model for one in accelerators) or "none",
        "places": _several("local" if one.place == LOCAL else one.place for one in accelerators),
        "links to accelerators": _several(
            f"x{one.link.lanes} Gen {one.link.generation}" for one in accelerators if one.place != LOCAL
        ),
        "links to the host": ", ".join(
            f"{place}: x{link.lanes} Gen {link.generation}" for place, link in sorted(topology.uplinks.items())
        ),
        "between local accelerators": FABRICS[topology.local_fabric]
        if any(one.place == LOCAL for one in accelerators)
        else "",
        "storage": f"{storage_of(topology)}, {topology.storage.model}",
        "cores": str(topology.cores),
        "system memory": f"{topology.memory_bytes / 2**30:.0f} GiB",
    }
    return {name: value for name, value in found.items() if value}


def _several(texts: Iterable[str]) -> str:
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    return ", ".join(f"{count} × {text}" for text, count in counts.items())


def _flat(plain: Mapping[str, object], before: str = "") -> Iterable[tuple[str, str]]:
    for name, value in plain.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name} ")
        elif value not in ("", None, [], ()):
            yield f"{before}{name}".replace("_", " "), _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(str(one) for one in value) if isinstance(value, list | tuple) else str(value)


def _estimates(rows: Sequence[Row]) -> list[Result]:
    """Return what is made of step times, with 90 % intervals of it and of its ratio."""
    steps = [seconds_a_step(row) for row in rows]
    rates = [
        one.inverse().scaled(row.samples_a_step) if one is not None and row.samples_a_step and row.is_training else None
        for row, one in zip(rows, steps, strict=True)
    ]
    sure = "90 %, by bootstrap of the steps"
    return [
        Result("Step time, median", "s", _compared(steps), sure),
        Result("Throughput", "samples/s", _compared(rates), sure),
    ]


def _compared(estimates: Sequence[Estimate | None]) -> tuple[Against | None, ...]:
    first = estimates[0] if estimates else None
    found: list[Against | None] = []
    for place, one in enumerate(estimates):
        if one is None:
            found.append(None)
            continue
        ratio = one.over(first) if first is not None and place else None
        low, high = ratio.interval if ratio else (None, None)
        found.append(Against(one.value, *one.interval, ratio.value if ratio else None, low, high))
    return tuple(found)


def _kept(rows: Sequence[Row]) -> Iterable[list[Result]]:
    """Yield what is kept with runs as a value and its percentiles; ratios of these have no interval."""
    spread = "5th to 95th percentile"
    summaries = [row.summary for row in rows]
    yield [
        Result(
            "Exposed communication", "s", _figures([one.exposed_seconds for one in summaries], 1.0), "90 %, bootstrap"
        ),
        Result("PCIe transfer, both ways", "GB/s", _figures([one.pcie for one in summaries], 1 / GIGA), spread),
    ]
    for name, (unit, title) in READINGS.items():
        shown, factor = SHOWN.get(unit, (unit, 1.0))
        yield [Result(title, shown, _figures([one.readings.get(name) for one in summaries], factor), spread)]
    for title, losses in (
        ("First loss", [one.first_loss for one in summaries]),
        ("Last loss", [one.last_loss for one in summaries]),
    ):
        values = [None if one is None else Figure(value=one, low=one, high=one, unit="") for one in losses]
        yield [Result(title, "", _figures(values, 1.0), "")]


def _figures(figures: Sequence[Figure | None], factor: float) -> tuple[Against | None, ...]:
    first = figures[0] if figures else None
    found: list[Against | None] = []
    for place, one in enumerate(figures):
        if one is None:
            found.append(None)
            continue
        ratio = one.value / first.value if place and first is not None and first.value else None
        has_spread = one.count > 1
        low, high = (one.low * factor, one.high * factor) if has_spread else (None, None)
        found.append(Against(one.value * factor, low, high, ratio))
    return tuple(found)
