"""The site's own metrics: alerts, operations and leases for everybody, the pipeline for administrators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, QuerySet
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from accounts.models import User
from fabric.inventory.models import Chassis
from fabric.leases.models import Lease
from fabric.operations.models import Operation
from telemetry.alerts.models import Alert
from telemetry.instrumentation.metrics import LAG_BOUNDS, PROBLEMS
from telemetry.pipeline.rules import PipelineSnapshot, StorageSizes, Undelivered
from telemetry.pipeline.selectors import pipeline_snapshot, storage_sizes, undelivered_now

# Counters of each chassis: name and description of the metric.
CHASSIS_COUNTERS = {
    "polls_done": ("falconweb_polls", "Polls whose readings were published."),
    "polls_late": ("falconweb_polls_late", "Polls whose readings came after half of the period."),
    "polls_skipped": ("falconweb_polls_skipped", "Beats that passed before they could be polled."),
    "polls_failed": (
        "falconweb_polls_failed",
        "Beats at which the chassis did not answer correctly.",
    ),
}
SITE_COUNTERS = {
    "readings_taken": ("falconweb_readings", "Readings taken, of all chassis."),
    "frames_sent": ("falconweb_frames_sent", "Frames sent to browsers."),
    "frames_skipped": ("falconweb_frames_skipped", "Frames that a slow browser did not accept before the next one."),
}
PROCESS_GAUGES = {
    "loop_lag_seconds": ("falconweb_process_loop_lag_seconds", "Maximum recent delay of the event loop."),
    "memory_bytes": ("falconweb_process_memory_bytes", "Resident memory."),
    "open_files": ("falconweb_process_open_files", "Open files and sockets."),
    "sockets_open": ("falconweb_process_sockets", "Live sockets of browsers."),
    "sockets_slow": ("falconweb_process_sockets_slow", "Live sockets that accept nothing at the moment."),
    "store_queue": ("falconweb_process_store_queue", "Chunks of readings that wait to be stored."),
}


def site_metrics(person: User, version: str) -> bytes:
    """Return the site's own metrics that the person may see, as text; `version` is the site's.

    Raises Unavailable without Redis, for administrators.
    """
    found: list[Metric] = [
        InfoMetricFamily("falconweb_build", "The version of the site.", {"version": version}),
        *_row_metrics(person),
    ]
    if person.is_administrator:
        names = dict(Chassis.objects.filter(enabled=True).values_list("pk", "name"))
        found += _pipeline_metrics(pipeline_snapshot(), names)
        found += _storage_metrics(storage_sizes(), undelivered_now())
    return bytes(generate_latest(_StaticCollector(found)))


@dataclass(frozen=True)
class _StaticCollector(Collector):
    """A collector of one request's metrics, so that processes keep no state."""

    metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def _row_metrics(person: User) -> Iterator[Metric]:
    """Yield the numbers of open alerts, operations and leases."""
    alerts = GaugeMetricFamily(
        "falconweb_alerts", "Alerts that are open.", labels=["chassis", "severity", "state"]
    )  # fmt: skip
    for (chassis, severity, state), n in _grouped(
        Alert.objects.visible_to(person).filter(state__in=Alert.OPEN), "chassis__name", "severity", "state"
    ):
        alerts.add_metric([chassis, severity.lower(), state], n)
    yield alerts
    operations = GaugeMetricFamily("falconweb_operations", "Operations by state.", labels=["kind", "state"])
    for of, n in _grouped(Operation.objects.visible_to(person), "kind", "state"):
        operations.add_metric(of, n)
    yield operations
    leases = GaugeMetricFamily("falconweb_leases", "Leases that are not over.", labels=["state"])
    ends = GaugeMetricFamily(
        "falconweb_lease_end_timestamp_seconds", "When a lease ends.", labels=["lease", "tenant"]
    )  # fmt: skip
    states: Counter[str] = Counter()
    for pk, tenant, state, end in (
        Lease.objects.visible_to(person).open().values_list("pk", "tenant_name", "state", "ends_at").order_by("pk")
    ):
        states[state] += 1
        if end is not None and state in Lease.IN_EFFECT:
            ends.add_metric([str(pk), tenant], end.timestamp())
    for state, n in sorted(states.items()):
        leases.add_metric([state], n)
    yield leases
    yield ends


def _grouped(rows: QuerySet[Any], *names: str) -> list[tuple[list[str], int]]:
    """Return how many rows have the same values of these fields, in order of them."""
    # The joins of visibility may yield a row twice.
    distinct = rows.model._default_manager.filter(pk__in=rows.order_by().values("pk"))  # noqa: SLF001 - Django documents it
    counted = distinct.order_by(*names).values_list(*names).annotate(n=Count("pk"))
    return [(list(of), n) for *of, n in counted]


def _pipeline_metrics(pipeline: PipelineSnapshot, names: dict[int, str]) -> Iterator[Metric]:
    for name, (metric, words) in CHASSIS_COUNTERS.items():
        family = CounterMetricFamily(metric, words, labels=["chassis"])
        for pk, chassis in names.items():
            family.add_metric([chassis], pipeline.count(name, pk).total)
        yield family
    for name, (metric, words) in SITE_COUNTERS.items():
        yield CounterMetricFamily(metric, words, value=_total(pipeline, name))
    yield from _bad_input(pipeline, names)
    yield _lag_histogram(pipeline)
    newest = GaugeMetricFamily("falconweb_poll_newest_lag_seconds", "How late the newest poll was.", labels=["chassis"])
    for pk, notes in sorted(pipeline.notes.items()):
        if pk in names and "poll_lag_seconds" in notes:
            newest.add_metric([names[pk]], notes["poll_lag_seconds"])
    yield newest
    yield from _process_metrics(pipeline)
    yield GaugeMetricFamily("falconweb_task_queue_length", "Tasks that wait for a worker.", value=pipeline.queue)
    yield GaugeMetricFamily("falconweb_redis_memory_bytes", "Memory that Redis uses.", value=pipeline.redis_bytes)


def _bad_input(pipeline: PipelineSnapshot, names: dict[int, str]) -> Iterator[Metric]:
    words = "Input that was rejected, dropped or lost; the pipeline page explains each"
    # Zeros, too: to Prometheus, a counter that starts at one has not increased.
    whole = CounterMetricFamily("falconweb_bad_input", f"{words}.", labels=["what"])
    for what in sorted(set(PROBLEMS) - set(CHASSIS_COUNTERS)):
        whole.add_metric([what], _total(pipeline, what))
    yield whole
    of_chassis = CounterMetricFamily(
        "falconweb_chassis_bad_input", f"{words}. Only chassis with any.", labels=["what", "chassis"]
    )
    found = [one for one in pipeline.counts.items() if one[0][0] in PROBLEMS and one[0][0] not in CHASSIS_COUNTERS]
    for (what, chassis), counted in sorted(found, key=lambda one: (one[0][0], one[0][1] or 0)):
        if chassis in names:
            of_chassis.add_metric([what, names[chassis]], counted.total)
    yield of_chassis


def _lag_histogram(pipeline: PipelineSnapshot) -> Metric:
    family = HistogramMetricFamily("falconweb_poll_lag_seconds", "Time from a beat to the publication of its readings.")
    running, buckets = 0, []
    for bound in (*map(str, LAG_BOUNDS), "inf"):
        running += _total(pipeline, f"poll_lag_le_{bound}")
        buckets.append(("+Inf" if bound == "inf" else bound, float(running)))
    family.add_metric([], buckets, sum_value=_total(pipeline, "poll_lag_milliseconds") / 1000)
    return family


def _process_metrics(pipeline: PipelineSnapshot) -> Iterator[Metric]:
    up = GaugeMetricFamily("falconweb_process_up", "Processes with heartbeats.", labels=["process", "kind"])
    cpu = CounterMetricFamily("falconweb_process_cpu_seconds", "CPU time used.", labels=["process", "kind"])
    gauges = {
        name: GaugeMetricFamily(metric, words, labels=["process", "kind"])
        for name, (metric, words) in PROCESS_GAUGES.items()
    }
    for one in pipeline.processes:
        of = [one.name, one.kind]
        up.add_metric(of, 1)
        cpu.add_metric(of, one.gauges.get("cpu_seconds", 0.0))
        for name, family in gauges.items():
            if name in one.gauges:
                family.add_metric(of, one.gauges[name])
    yield up
    yield cpu
    yield from gauges.values()


def _storage_metrics(sizes: StorageSizes, waiting: list[Undelivered]) -> Iterator[Metric]:
    databases = GaugeMetricFamily("falconweb_database_bytes", "Size of a database.", labels=["database"])
    for name, size in (("site", sizes.database), ("readings", sizes.readings)):
        if size is not None:
            databases.add_metric([name], size)
    yield databases
    for name, words in (("rows", "Rows of readings and buckets"), ("chunks", "Chunks"), ("bytes", "Packed readings")):
        tiers = GaugeMetricFamily(f"falconweb_store_{name}", f"{words} that are stored, by tier.", labels=["tier"])
        for tier in sizes.tiers:
            tiers.add_metric([tier.tier], getattr(tier, name))
        yield tiers
    if sizes.disk_free is not None:
        yield GaugeMetricFamily("falconweb_disk_free_bytes", "Free space on the data disk.", value=sizes.disk_free)
    undelivered = GaugeMetricFamily("falconweb_undelivered", "Undelivered items.", labels=["what"])
    oldest = GaugeMetricFamily(
        "falconweb_undelivered_oldest_timestamp_seconds", "Since when the oldest item waits.", labels=["what"]
    )  # fmt: skip
    for one in waiting:
        undelivered.add_metric([one.what], one.count)
        if one.count:
            oldest.add_metric([one.what], one.oldest_at)
    yield undelivered
    yield oldest


def _total(pipeline: PipelineSnapshot, name: str) -> int:
    """Return the sum of a counter over all chassis and the site as a whole."""
    return sum(counted.total for (of, _), counted in pipeline.counts.items() if of == name)
