"""The site's own metrics: alerts, operations and leases for everybody, the pipeline for administrators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

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
from telemetry.pipeline.selectors import agents_heard, pipeline_snapshot, storage_sizes, undelivered_now

# Counters of each chassis: name and description of the metric.
CHASSIS_COUNTERS = {
    "polls_done": ("falconweb_polls", "Polls whose readings were published."),
    "polls_late": ("falconweb_polls_late", "Polls whose readings came after half of the period."),
    "polls_skipped": ("falconweb_polls_skipped", "Beats that passed before they could be polled."),
    "polls_failed": ("falconweb_polls_failed", "Beats at which the chassis did not answer correctly."),
}
SITE_COUNTERS = {
    "readings_taken": ("falconweb_readings", "Readings taken, of all chassis."),
    "csp_reports": ("falconweb_csp_reports", "Violations of the content security policy that browsers reported."),
    "frames_sent": ("falconweb_frames_sent", "Frames sent to browsers."),
    "frames_skipped": ("falconweb_frames_skipped", "Frames that a slow browser did not accept before the next one."),
}
PROCESS_GAUGES = {
    "loop_lag_seconds": ("falconweb_process_loop_lag_seconds", "Maximum recent delay of the event loop."),
    "memory_bytes": ("falconweb_process_memory_bytes", "Resident memory."),
    "open_files": ("falconweb_process_open_files", "Open files and sockets."),
    "sockets_open": ("falconweb_process_sockets", "Live sockets of browsers."),
    "sockets_slow": ("falconweb_process_sockets_slow", "Live sockets that accept nothing at the moment."),
    "stretched_period_seconds": (
        "falconweb_process_stretched_period_seconds",
        "Period at which a worker reads its chassis that does not bear the one that is set; 0 for one that does.",
    ),
    "store_lag_seconds": ("falconweb_process_store_lag_seconds", "Age of the readings that wait longest to be stored."),
    "store_queue": ("falconweb_process_store_queue", "Chunks of readings that wait to be stored."),
}


RESTARTED_KINDS = ("agent", "broker", "scheduler", "web", "worker")

Samples = Iterable[tuple[list[str], float]]


def site_metrics(person: User, version: str) -> bytes:
    """Return the site's own metrics that the person may see; raises Unavailable without Redis, for administrators."""
    found: list[Metric] = [
        InfoMetricFamily("falconweb_build", "The version of the site.", {"version": version}),
        *_row_metrics(person),
    ]
    if person.is_administrator:
        names = dict(Chassis.objects.filter(enabled=True).values_list("pk", "name"))
        pipeline = pipeline_snapshot()
        found += _pipeline_metrics(replace(pipeline, processes=pipeline.processes + agents_heard()), names)
        found += _storage_metrics(storage_sizes(), undelivered_now())
    return bytes(generate_latest(_StaticCollector(found)))


@dataclass(frozen=True)
class _StaticCollector(Collector):
    """A collector of one request's metrics, so that processes keep no state."""

    metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def _family(kind: Any, name: str, words: str, labels: Sequence[str], samples: Samples) -> Metric:
    """Return a metric of a kind with the samples: values of the labels, and the sample's value."""
    family: Any = kind(name, words, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return cast("Metric", family)


def _row_metrics(person: User) -> Iterator[Metric]:
    alerts = _grouped(
        Alert.objects.visible_to(person).filter(state__in=Alert.OPEN), "chassis__name", "severity", "state"
    )
    yield _family(
        GaugeMetricFamily, "falconweb_alerts", "Alerts that are open.", ["chassis", "severity", "state"],
        (([chassis or "", severity.lower(), state], n) for (chassis, severity, state), n in alerts),
    )  # fmt: skip
    operations = _grouped(Operation.objects.visible_to(person), "kind", "state")
    yield _family(GaugeMetricFamily, "falconweb_operations", "Operations by state.", ["kind", "state"], operations)
    open_leases = Lease.objects.visible_to(person).open().order_by("pk")
    leases = list(open_leases.values_list("pk", "tenant_name", "state", "ends_at"))
    states = sorted(Counter(state for _, _, state, _ in leases).items())
    yield _family(
        GaugeMetricFamily, "falconweb_leases", "Leases that are not over.", ["state"], (([of], n) for of, n in states)
    )
    yield _family(
        GaugeMetricFamily, "falconweb_lease_end_timestamp_seconds", "When a lease ends.", ["lease", "tenant"],
        (
            ([str(pk), tenant], end.timestamp())
            for pk, tenant, state, end in leases
            if end is not None and state in Lease.IN_EFFECT
        ),
    )  # fmt: skip


def _grouped(rows: QuerySet[Any], *names: str) -> list[tuple[list[str], int]]:
    """Return how many rows have the same values of these fields, in order of them."""
    # The joins of visibility may yield a row twice.
    distinct = rows.model._default_manager.filter(pk__in=rows.order_by().values("pk"))  # noqa: SLF001 - Django documents it
    counted = distinct.order_by(*names).values_list(*names).annotate(n=Count("pk"))
    return [(list(of), n) for *of, n in counted]


def _pipeline_metrics(pipeline: PipelineSnapshot, names: dict[int, str]) -> Iterator[Metric]:
    for name, (metric, words) in CHASSIS_COUNTERS.items():
        samples = (([chassis], pipeline.count(name, pk).total) for pk, chassis in names.items())
        yield _family(CounterMetricFamily, metric, words, ["chassis"], samples)
    for name, (metric, words) in SITE_COUNTERS.items():
        yield CounterMetricFamily(metric, words, value=_total(pipeline, name))
    yield from _bad_input(pipeline, names)
    yield _lag_histogram(pipeline)
    yield _family(
        GaugeMetricFamily, "falconweb_poll_newest_lag_seconds", "How late the newest poll was.", ["chassis"],
        (
            ([names[pk]], gauges["poll_lag_seconds"])
            for pk, gauges in sorted(pipeline.gauges.items())
            if pk in names and "poll_lag_seconds" in gauges
        ),
    )  # fmt: skip
    yield from _process_metrics(pipeline)
    yield GaugeMetricFamily("falconweb_task_queue_length", "Tasks that wait for a worker.", value=pipeline.queue)
    yield GaugeMetricFamily("falconweb_redis_memory_bytes", "Memory that Redis uses.", value=pipeline.redis_bytes)


def _bad_input(pipeline: PipelineSnapshot, names: dict[int, str]) -> Iterator[Metric]:
    words = "Input that was rejected, dropped or lost; the pipeline page explains each"
    kinds = set(PROBLEMS) - set(CHASSIS_COUNTERS)
    # Zeros, too: to Prometheus, a counter that starts at one has not increased.
    whole = (([what], _total(pipeline, what)) for what in sorted(kinds))
    yield _family(CounterMetricFamily, "falconweb_bad_input", f"{words}.", ["what"], whole)
    found = sorted(
        (what, chassis, counted.total) for (what, chassis), counted in pipeline.counts.items()
        if what in kinds and chassis in names
    )  # fmt: skip
    yield _family(
        CounterMetricFamily, "falconweb_chassis_bad_input", f"{words}. Only chassis with any.", ["what", "chassis"],
        (([what, names[chassis]], total) for what, chassis, total in found),
    )  # fmt: skip


def _lag_histogram(pipeline: PipelineSnapshot) -> Metric:
    family = HistogramMetricFamily("falconweb_poll_lag_seconds", "Time from a beat to the publication of its readings.")
    running, buckets = 0, []
    for bound in (*map(str, LAG_BOUNDS), "inf"):
        running += _total(pipeline, f"poll_lag_le_{bound}")
        buckets.append(("+Inf" if bound == "inf" else bound, float(running)))
    family.add_metric([], buckets, sum_value=_total(pipeline, "poll_lag_milliseconds") / 1000)
    return family


def _process_metrics(pipeline: PipelineSnapshot) -> Iterator[Metric]:
    labels, processes = ["process", "kind"], [([one.name, one.kind], one.gauges) for one in pipeline.processes]
    up = ((of, 1) for of, _ in processes)
    yield _family(GaugeMetricFamily, "falconweb_process_up", "Processes with heartbeats.", labels, up)
    silences = (([one.name, one.kind], round(one.silence(pipeline.at), 1)) for one in pipeline.processes)
    words = "Time since the last heartbeat: a turn of its slowest loop."
    yield _family(GaugeMetricFamily, "falconweb_process_heartbeat_age_seconds", words, labels, silences)
    restarts = (([kind], _total(pipeline, f"restarts_{kind}")) for kind in RESTARTED_KINDS)
    words = "Processes that ended, or hung, and were started again by the launcher."
    yield _family(CounterMetricFamily, "falconweb_process_restarts", words, ["kind"], restarts)
    cpu = ((of, gauges.get("cpu_seconds", 0.0)) for of, gauges in processes)
    yield _family(CounterMetricFamily, "falconweb_process_cpu_seconds", "CPU time used.", labels, cpu)
    for name, (metric, words) in PROCESS_GAUGES.items():
        samples = ((of, gauges[name]) for of, gauges in processes if name in gauges)
        yield _family(GaugeMetricFamily, metric, words, labels, samples)


def _storage_metrics(sizes: StorageSizes, waiting: list[Undelivered]) -> Iterator[Metric]:
    databases = (("site", sizes.database), ("readings", sizes.readings))
    known = (([name], size) for name, size in databases if size is not None)
    yield _family(GaugeMetricFamily, "falconweb_database_bytes", "Size of a database.", ["database"], known)
    for name, words in (("rows", "Rows of readings and buckets"), ("chunks", "Chunks"), ("bytes", "Packed readings")):
        tiers = (([tier.tier], getattr(tier, name)) for tier in sizes.tiers)
        yield _family(
            GaugeMetricFamily, f"falconweb_store_{name}", f"{words} that are stored, by tier.", ["tier"], tiers
        )
    if sizes.disk_free is not None:
        yield GaugeMetricFamily("falconweb_disk_free_bytes", "Free space on the data disk.", value=sizes.disk_free)
    counts = (([one.what], one.count) for one in waiting)
    yield _family(GaugeMetricFamily, "falconweb_undelivered", "Undelivered items.", ["what"], counts)
    oldest = (([one.what], one.oldest_at.timestamp()) for one in waiting if one.oldest_at is not None)
    words = "Since when the oldest item waits."
    yield _family(GaugeMetricFamily, "falconweb_undelivered_oldest_timestamp_seconds", words, ["what"], oldest)


def _total(pipeline: PipelineSnapshot, name: str) -> int:
    """Return the sum of a counter over all chassis and the site as a whole."""
    return sum(counted.total for (of, _), counted in pipeline.counts.items() if of == name)
