"""Load on the uplinks and the GPUs of a run's host that is no run's: traffic at ports, and GPUs that programs use."""

from __future__ import annotations

import logging
import math
from datetime import timedelta
from typing import Any, Final

import numpy as np
from django.db.models import Q
from django.utils import timezone

from benchmarks.runs.claims import RunClaim
from benchmarks.runs.isolation import MIN_SECONDS, Overlap
from benchmarks.runs.models import Run, Series
from benchmarks.runs.recording import GPU_PREFIX, PHASE_PREFIX, STEP_SECONDS_KEY, series_values
from benchmarks.runs.results import MAX_POINTS, RX, TX, measured_span
from benchmarks.runs.rules import Composition
from benchmarks.runs.topology import ADDRESSES_KEY
from core.errors import FalconWebError
from fabric.agents.models import HostAgent
from fabric.agents.selectors import latest_report
from fabric.inventory.models import Device
from hostwire.protocol import HostReport
from telemetry.store.selectors import read_series

logger = logging.getLogger(__name__)

# Bytes a second both ways of other devices below an uplink: less than 1 % of a link of Gen 3 x16.
FOREIGN_TRAFFIC: Final = 200e6
# The share of time in which a GPU that no run uses has work; monitoring alone takes none.
FOREIGN_SHARE: Final = 0.05
# The part of the measured time in which there has to be traffic, for the figures to be disturbed.
FOREIGN_TIME: Final = 0.05
MIN_BUSY_SECONDS: Final = 5.0  # work that ends as a run begins is over by then
MAX_REPORT_SECONDS: Final = 30.0  # between two reports, for the time between them to count
BUSY_KEY: Final = "busy_gpus"  # of a run's source: its time with foreign load of GPUs, and when that was seen last
NEW_REPORT: Final = timedelta(seconds=3)  # runs are polled each second: older reports have been read


def foreign_overlaps(run: Run) -> list[Overlap]:
    """Return for how long programs that are no run used the uplinks and the host of a run that has ended."""
    busy = run.source.get(BUSY_KEY, {}).get("seconds", 0.0)
    found = [
        Overlap(by="traffic", shared=("uplink",), seconds=round(_traffic_seconds(run), 1)),
        Overlap(by="gpus", shared=("host",), seconds=round(busy, 1) if busy >= MIN_BUSY_SECONDS else 0.0),
    ]
    return [one for one in found if one.seconds >= MIN_SECONDS]


def _traffic_seconds(run: Run) -> float:
    """Return the seconds of the timed steps in which devices of no run had traffic below an uplink of this run."""
    since, until = measured_span(run, series_values(run, [STEP_SECONDS_KEY, f"{PHASE_PREFIX}timed"]))
    if not math.isfinite(until - since) or until - since < MIN_SECONDS:
        return 0.0
    seconds = 0.0
    for chassis, ports in _other_ports(run).items():
        keys = [f"port/{port}/{way}" for port in ports for way in (RX, TX)]
        points = min(MAX_POINTS, math.ceil(until - since))
        try:
            found = read_series(chassis, keys, since=since, until=until, points=points)
        except (FalconWebError, OSError) as error:
            logger.info("run %s: other traffic of chassis %s could not be read: %s", run.pk, chassis, error)
            continue
        busy = np.nansum(found.mean, axis=0) > FOREIGN_TRAFFIC
        seconds = max(seconds, float(busy.sum()) * found.step)
    return seconds if seconds >= FOREIGN_TIME * (until - since) else 0.0


def _other_ports(run: Run) -> dict[int, list[int]]:
    """Return by chassis the ports of the devices below a run's uplinks that are neither its own nor another run's."""
    uplinks = set(Composition.from_json(run.composition).all_devices.values())
    of_runs = Run.objects.filter(started_at__lt=run.ended_at, executor__gt="").exclude(ended_at__lt=run.started_at)
    rows = Device.objects.filter(host_port__in=uplinks, missing_since=None).exclude(slot__port=None)
    rows = rows.exclude(runs__in=of_runs.order_by().values("pk"))
    found: dict[int, list[int]] = {}
    for chassis, port in rows.values_list("chassis", "slot__port"):
        found.setdefault(chassis, []).append(port)
    return found


def busy_gpus_record(claim: RunClaim) -> None:
    """Record the time in which GPUs of a run's host that are no run's had work, from two reports on.

    Nothing is recorded of runs on CPUs or several hosts, nor while another run is on the host.
    """
    run = claim.run
    if run.is_on_several_hosts or run.composition.get("cpu") or run.host_id is None:
        return
    agent = HostAgent.objects.filter(host=run.host_id, reported_at__gt=timezone.now() - NEW_REPORT).first()
    report = latest_report(agent)
    if report is None:
        return
    seen: dict[str, Any] = run.source.get(BUSY_KEY, {})
    if report.sent <= seen.get("at", 0.0):
        return
    on_host = Q(host=run.host_id) | Q(nodes__host=run.host_id)
    others = Run.objects.filter(on_host, state__in=Run.ON_HOST).exclude(pk=run.pk)
    if others.exists() or not _has_foreign_load(run, report):
        if seen.get("at"):
            claim.write(source={**run.source, BUSY_KEY: {**seen, "at": 0.0}})
        return
    since_last = report.sent - seen["at"] if seen.get("at") else 0.0
    seconds = seen.get("seconds", 0.0) + (since_last if since_last <= MAX_REPORT_SECONDS else 0.0)
    claim.write(source={**run.source, BUSY_KEY: {"seconds": seconds, "at": report.sent}})


def _has_foreign_load(run: Run, report: HostReport) -> bool:
    keys = Series.objects.filter(run=run, key__startswith=GPU_PREFIX).values_list("key", flat=True)
    own = {key.split("/")[1] for key in keys} | set(run.source.get(ADDRESSES_KEY, {}))
    if len(own) < run.spec.get("devices", 1):
        return False  # it has not said yet which GPUs of the host are its own
    return any(one.address not in own and (one.gpu_share or 0.0) >= FOREIGN_SHARE for one in report.gpus)
