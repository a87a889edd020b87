"""Charts of bandwidth: GPU pairs, PCIe traffic, storage reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from benchmarks.figures.charts import (
    BOOTSTRAP_NOTE,
    PERCENTILE_NOTE,
    Chart,
    ChartAxis,
    ChartMark,
    Estimate,
    MarkKey,
    ReadingSpread,
    estimate_mark,
    estimate_marks,
    omission_note,
    runs_by_mark,
    seconds_a_step,
    sort_marks,
    spread_mark,
    spread_marks,
)
from benchmarks.figures.rows import (
    GIGA,
    NOT_RECORDED,
    STEP_SECONDS_KEY,
    STORAGE_LABELS,
    Floats,
    RunData,
    combined_labels,
    configuration_labels,
    drawer_of,
    storage_label,
    work_labels,
)
from benchmarks.model.topology import LOCAL, Topology
from core.language import _, _n, gettext_noop, joined

# Translated by who shows them.
LOCALS, FALCON_LOCAL, FALCONS = gettext_noop("local-local"), gettext_noop("Falcon-local"), "Falcon-Falcon"
PROCESSES, PLACES_NOT_RECORDED = gettext_noop("processes on the CPU"), gettext_noop("places not recorded")
PAIRS: Final = (LOCALS, FALCON_LOCAL, FALCONS, PROCESSES, PLACES_NOT_RECORDED)
BOTH_WAYS, WRITE = gettext_noop("both ways together"), gettext_noop("P2P write")
STANDARD_TABLES: Final = {"bandwidth": BOTH_WAYS, "latency": WRITE}
# The published table (its source: performance model, design notes): bidirectional bandwidth in GB/s, P2P write latency
# in microseconds. That of local pairs is a mean over single and double NVLinks.
PUBLISHED_PAIRS: Final = {"bandwidth": (72.37, 19.64, 24.47), "latency": (1.85, 2.66, 2.08)}
RATE_UNITS: Final = {"b/s": 1e-9, "kb/s": 1e-6, "mb/s": 1e-3, "gb/s": 1.0, "kib/s": 2**10 / 1e9, "mib/s": 2**20 / 1e9,
                "gib/s": 2**30 / 1e9}  # fmt: skip
TIME_UNITS: Final = {"s": 1e6, "ms": 1e3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ns": 1e-3}
Quantity = Literal["bandwidth", "latency"]


def pair_matrices(row: RunData) -> Iterator[tuple[Quantity, str, Floats]]:
    """Yield quantity, name and values of a run's tables that have a value for each pair of devices.

    Values are f8[devices, devices], row to column: GB/s or microseconds; NaN for none. 'bandwidth' is bidirectional,
    'latency' that of a small write; other tables keep their names, and are left out if they are equal to one of these.
    """
    known: dict[Quantity, list[Floats]] = {"bandwidth": [], "latency": []}
    for name, table in sorted(row.summary.tables.items(), key=lambda one: one[0] not in STANDARD_TABLES):
        unit = row.summary.units.get(name, "").strip().lower()
        quantity: Quantity = "latency" if "latency" in name.lower() else "bandwidth"
        factors = TIME_UNITS if quantity == "latency" else RATE_UNITS
        values = _square_array(table)
        # The default units are those of the published tools: GB/s, microseconds.
        if values is None or (unit and unit not in factors):
            continue
        if any(one.shape == values.shape and np.array_equal(one, values, equal_nan=True) for one in known[quantity]):
            continue
        known[quantity].append(values)
        shown = _(STANDARD_TABLES[name]) if name in STANDARD_TABLES else name.replace("_", " ")
        yield quantity, shown, values * factors.get(unit, 1.0)


def _square_array(table: Any) -> Floats | None:
    """Return a table as a square of at least two devices; None for anything else."""
    if not isinstance(table, list) or len(table) < 2:
        return None
    if not all(isinstance(line, list) and len(line) == len(table) for line in table):
        return None
    try:
        return np.array([[np.nan if one is None else float(one) for one in line] for line in table], dtype=np.float64)
    except (TypeError, ValueError):
        return None


def pair_class(topology: Topology | None, one: int, other: int) -> str:
    """Return the class of a pair of devices, given by their ranks."""
    if topology is not None and not topology.accelerators:
        return PROCESSES
    if topology is None or max(one, other) >= len(topology.accelerators):
        return PLACES_NOT_RECORDED
    places = [topology.accelerators[rank].place for rank in (one, other)]
    locals_ = sum(place == LOCAL for place in places)
    return (FALCONS, FALCON_LOCAL, LOCALS)[locals_]


def has_pairs(row: RunData) -> bool:
    """Return whether a run measured pairs of devices."""
    return next(pair_matrices(row), None) is not None


def gpu_pair_charts(rows: Sequence[RunData], *, published: bool = False) -> tuple[Chart, ...]:
    """Return bandwidth (GB/s) and latency (us) by class of GPU pair, with published figures on request."""
    having = [row for row in rows if has_pairs(row)]
    note = omission_note(
        [row for row in rows if row.workload == "gpu_bandwidth" and row not in having], _("without a table of pairs")
    )
    crossing = [
        row for row in having if row.topology and len({drawer_of(one) for one in row.topology.accelerators} - {""}) > 1
    ]
    drawers = (
        _n(
            "Falcon-Falcon includes pairs within a drawer and across drawers of {count} of these runs.",
            "Falcon-Falcon includes pairs within a drawer and across drawers of {count} of these runs.",
            len(crossing),
        )
        if crossing
        else ""
    )
    return (
        _pair_chart(
            having,
            "bandwidth",
            title=_("Bandwidth between two GPUs"),
            caption=_(
                "The mean over all pairs of a class, in both directions if they were measured separately. ‘Both ways "
                "together’ is bidirectional: the sum of simultaneous traffic to and from."
            ),
            unit="GB/s",
            published=published,
        ).with_notes(note, drawers),
        _pair_chart(
            having,
            "latency",
            title=_("Latency of a small write between two GPUs"),
            caption=_("The mean over all pairs of a class."),
            unit="µs",
            published=published,
        ).with_notes(note, drawers),
    )


def _pair_chart(
    rows: Sequence[RunData], quantity: Quantity, *, title: str, caption: str, unit: str, published: bool
) -> Chart:
    return Chart(
        name=f"gpu-{quantity}",
        title=title,
        caption=caption,
        kind="bars",
        groups=_("Counting"),
        x=ChartAxis(title=_("Pair"), kind="category"),
        y=ChartAxis(title=_("Bandwidth") if quantity == "bandwidth" else _("Latency"), unit=unit),
        interval=_("5th to 95th percentile over the pairs"),
        counts=_("pairs"),
        marks=_pair_marks(rows, quantity, published=published),
    )


def _pair_marks(rows: Sequence[RunData], quantity: Quantity, *, published: bool) -> tuple[ChartMark, ...]:
    values: dict[MarkKey, list[float]] = {}
    runs: dict[MarkKey, dict[str, None]] = {}
    usual = _(STANDARD_TABLES[quantity])
    for row in rows:
        for measured, counted, matrix in pair_matrices(row):
            if measured != quantity:
                continue
            for one, other in np.argwhere(np.isfinite(matrix)).tolist():
                if one == other:
                    continue
                cell = MarkKey(_(pair_class(row.topology, one, other)), counted, row.provenance)
                values.setdefault(cell, []).append(float(matrix[one, other]))
                runs.setdefault(cell, {})[row.id] = None
    marks = []
    for cell, found in values.items():
        spread = ReadingSpread.of(found)
        if len(found) == 1:
            spread = replace(spread, low=None, high=None)
        marks.append(spread_mark(cell, spread, tuple(runs[cell])))
    if published:
        marks += [
            ChartMark(x=_(pair), group=usual, provenance="published", value=value, count=0)
            for pair, value in zip(PAIRS, PUBLISHED_PAIRS[quantity], strict=False)
        ]
    return sort_marks(marks, [_(pair) for pair in PAIRS], [usual])


# Translated by who shows them.
TO, FROM, BOTH = gettext_noop("to the devices"), gettext_noop("from the devices"), gettext_noop("together")
DEVICE_LINK_PREFIX: Final = "link/device-"
TIMED_PHASE_KEY: Final = "phase/timed"


@dataclass(frozen=True)
class RunTraffic:
    """The PCIe traffic of a run: bytes a second by direction. `counted` is the source, '' for the chassis' links."""

    counted: str
    by_direction: dict[str, ReadingSpread]


def traffic_by_workload(rows: Sequence[RunData]) -> Chart:
    """Return PCIe transfer by workload, in GB/s: to and from the devices separately, and in total."""
    found = {row.id: one for row in rows if (one := run_traffic(row)) is not None}
    having = [row for row in rows if row.id in found]
    works, labels = work_labels(having), configuration_labels(having)
    several = len(set(labels.values())) > 1
    xs = combined_labels(works, labels)
    marks = []
    groups: dict[str, None] = {}
    for direction in (TO, FROM, BOTH):
        places: dict[MarkKey, list[RunData]] = {}
        for row in having:
            counted = found[row.id].counted
            if direction not in found[row.id].by_direction:
                continue
            group = joined([_(direction), *([counted] if counted else [])], ", ")
            places.setdefault(MarkKey(xs[row.id], group, row.provenance), []).append(row)
        groups |= dict.fromkeys(cell.group for cell in places)
        marks += spread_marks(places, lambda row, of=direction: found[row.id].by_direction.get(of))  # type: ignore[misc]
    apart = [row for row in having if TO not in found[row.id].by_direction]
    return Chart(
        name="pcie",
        title=_("PCIe transfer by workload"),
        caption=_(
            "Means over the timed steps, summed over all devices of a run. Unless stated otherwise, counted at the "
            "links of the chassis to its devices (ingress and egress of each), the host's own GPUs left out."
        ),
        kind="bars",
        groups=_("Direction"),
        x=ChartAxis(title=_("Workload and configuration") if several else _("Workload"), kind="category"),
        y=ChartAxis(title=_("PCIe transfer"), unit="GB/s"),
        interval=_(PERCENTILE_NOTE),
        counts=_("readings"),
        marks=sort_marks(marks, groups=list(groups)),
    ).with_notes(
        omission_note([row for row in rows if row.id not in found], _("without traffic over PCIe")),
        _n(
            "Of {count} of these runs only the sum of both directions is known.",
            "Of {count} of these runs only the sum of both directions is known.",
            len(apart),
        )
        if apart
        else "",
    )


def run_traffic(row: RunData) -> RunTraffic | None:
    """Return the PCIe traffic of a run from its best source; None without any.

    The sources are, in this order, the counters of the chassis' links to its devices, the counters of the GPUs, which
    for GPUs of the host include PCIe traffic outside of any chassis, and the recorded sum.
    """
    links = _link_traffic(row)
    if links is not None:
        return links
    kept = row.summary.pcie
    if kept is not None:
        both = ReadingSpread(kept.value / GIGA, kept.low / GIGA, kept.high / GIGA, kept.count)
        return RunTraffic("", {BOTH: both, **(_device_traffic(row) if row.provenance == "predicted" else {})})
    sides = _device_traffic(row)
    if not sides:
        return None
    places = {one.place == LOCAL for one in row.topology.accelerators} if row.topology else set()
    whose = {frozenset({True}): _("local GPUs by their own count"), frozenset({False}): _("as GPUs count it")}
    return RunTraffic(whose.get(frozenset(places), _("all GPUs by their own count")), sides)


def _link_traffic(row: RunData) -> RunTraffic | None:
    """Return the traffic counted at chassis' links to devices (see benchmarks.runs.results); None without any."""
    links = [key for key in sorted(row.keys) if key.startswith(DEVICE_LINK_PREFIX)]
    columns = {
        way: [row.read(key) for key in links if key.endswith(name)]
        for way, name in ((TO, "/pcie_to"), (FROM, "/pcie_from"))
    }
    if not all(columns.values()):
        return None
    columns[BOTH] = columns[TO] + columns[FROM]
    since, until = _timed_span(row)
    known = {way: one for way, some in columns.items() if (one := _summed_series(some, since, until)) is not None}
    return RunTraffic("", known) if known else None


def _timed_span(row: RunData) -> tuple[float, float]:
    """Return the interval (Unix s) of a run's timed steps, or of the whole run if it is unknown."""
    since, until = -np.inf, np.inf
    if TIMED_PHASE_KEY in row.keys:
        at, _ = row.read(TIMED_PHASE_KEY)
        since = float(at[0]) if len(at) else since
    if STEP_SECONDS_KEY in row.keys:
        at, _ = row.read(STEP_SECONDS_KEY)
        until = float(at[-1]) if len(at) else until
    return since, until


def _summed_series(columns: Sequence[tuple[Floats, Floats]], since: float, until: float) -> ReadingSpread | None:
    """Return the sum of several series: its mean and percentiles over the times at which all have values."""
    parts = []
    for at, values in columns:
        inside = (at >= since) & (at <= until) & np.isfinite(values)
        parts.append((at[inside], values[inside]))
    moments, counts = np.unique(np.concatenate([at for at, _ in parts]), return_counts=True)
    totals = np.bincount(
        np.searchsorted(moments, np.concatenate([at for at, _ in parts])),
        np.concatenate([values for _, values in parts]),
        minlength=len(moments),
    )
    whole = totals[counts == len(parts)] / GIGA
    return ReadingSpread.of(whole) if len(whole) else None


def _device_traffic(row: RunData) -> dict[str, ReadingSpread]:
    """Return the traffic from readings of devices: the mean of one times their number."""
    count = len(row.topology.accelerators) if row.topology else row.spec.devices if row.spec else 0
    readings = row.summary.readings
    found = {
        way: ReadingSpread(one.value * count / GIGA, one.low * count / GIGA, one.high * count / GIGA, one.count)
        for way, name in ((TO, "pcie_to"), (FROM, "pcie_from"))
        if count and (one := readings.get(name)) is not None
    }
    if len(found) == 2 and row.provenance != "predicted":
        total = found[TO].value + found[FROM].value
        found[BOTH] = ReadingSpread(total, None, None, min(one.count for one in found.values()))
    return found


STORAGE_WORKLOAD: Final = "storage_read"


def read_rate(row: RunData) -> Estimate | None:
    """Return the read rate of a run's storage, GB/s: from its passes over a file, else from its result."""
    if row.workload != STORAGE_WORKLOAD:
        return None
    size = row.spec.options.get("file_bytes") if row.spec else None
    seconds = seconds_a_step(row)
    if seconds is not None and row.spec is not None and isinstance(size, int | float) and size > 0:
        return seconds.inverse().scaled(size * row.spec.devices / GIGA)  # each process has a file of its own
    for name, value in row.summary.tables.items():
        unit = row.summary.units.get(name, "").lower()
        if name in {"bandwidth", "read"} and unit in RATE_UNITS and isinstance(value, int | float):
            return Estimate(value * RATE_UNITS[unit], None, 1)
    return None


def storage_read_chart(rows: Sequence[RunData]) -> Chart:
    """Return the rate of sequential reads by storage."""
    asked = [row for row in rows if row.workload == STORAGE_WORKLOAD]
    having = [row for row in asked if read_rate(row) is not None]
    works = work_labels(having)
    found = estimate_marks(
        runs_by_mark(
            having,
            lambda row: storage_label(row.topology) if row.topology else _(NOT_RECORDED),
            lambda row: works[row.id],
        ),
        read_rate,
    )
    return Chart(
        name="storage-read",
        title=_("Storage read"),
        caption=_("Bytes of a file over the median time of a pass: sequential, bypassing the cache of the host."),
        kind="bars",
        groups=_("Workload"),
        x=ChartAxis(title=_("Storage"), kind="category"),
        y=ChartAxis(title=_("Read"), unit="GB/s"),
        interval=_(BOOTSTRAP_NOTE),
        counts=_("passes"),
        marks=sort_marks(
            (estimate_mark(cell, *one) for cell, one in found.items()), [_(one) for one in STORAGE_LABELS]
        ),
    ).with_notes(omission_note([row for row in asked if row not in having], _("without times of passes")))
