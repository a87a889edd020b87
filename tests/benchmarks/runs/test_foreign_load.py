"""What is noted of programs that are no run and used the links or the GPUs of a run's host meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone

from benchmarks.runs.claims import RunClaim
from benchmarks.runs.foreign_load import BUSY_KEY, busy_gpus_record, foreign_overlaps
from benchmarks.runs.isolation import shown_overlaps
from benchmarks.runs.models import Run
from benchmarks.runs.recording import series_append
from benchmarks.runs.topology import ADDRESSES_KEY
from fabric.agents.models import HostAgent
from fabric.agents.selectors import latest_report
from fabric.bmc.series import ChassisReading, Quantity, ReadingSeries
from fabric.bmc.types import Inventory
from fabric.inventory.models import Device
from fabric.inventory.selectors import ReadingOwner
from hostwire.protocol import GpuReading
from telemetry.live.catalogue import ReadingContext, SeriesCatalogue
from telemetry.store.recorder import ReadingRecorder
from telemetry.store.writer import StoreWriter
from tests.benchmarks.runs.lab import Lab

pytestmark = [pytest.mark.process, pytest.mark.django_db(databases=["default", "readings"], transaction=True)]


@pytest.fixture
def writer() -> Iterator[StoreWriter]:
    writer = StoreWriter(gather=0.0)
    yield writer
    writer.stop()


def going(lab: Lab, *slots: int, **more: Any) -> Run:
    """Return a run that has been on its host for 100 s."""
    run = lab.ask(lab.place(*slots), **more)
    begun = timezone.now() - timedelta(seconds=100)
    Run.objects.filter(pk=run.pk).update(state="running", started_at=begun, host=lab.host)
    return Run.objects.get(pk=run.pk)


def ended(run: Run) -> Run:
    Run.objects.filter(pk=run.pk).update(state="returning", ended_at=timezone.now())
    return Run.objects.get(pk=run.pk)


def carry(device: Device, writer: StoreWriter, run: Run, *, seconds: int, rate: float) -> None:
    """Let a device receive so many bytes a second for the first seconds of a run, and almost nothing after that."""
    assert device.slot is not None
    assert run.started_at is not None
    port = device.slot.port_id
    assert port is not None
    series = [
        ReadingSeries(property=f"/p#/{name}", owner_uri="/p", quantity=quantity, unit="B")
        for name, quantity in (("RXBytes", Quantity.RX_BYTES), ("TXBytes", Quantity.TX_BYTES))
    ]
    owners = {"/p": ReadingOwner("port", port)}
    recorder, catalogue = ReadingRecorder(device.chassis_id, writer), SeriesCatalogue(series, owners)
    recorder.begin(ReadingContext(device.chassis_id, catalogue, Inventory(), owners))
    for at in range(100):
        values = (rate * min(at, seconds) + at, 0.0)
        recorder.take(catalogue.sample(ChassisReading(at=run.started_at.timestamp() + at, values=values)))
    asyncio.run(recorder.close())
    writer.stop(20.0)


@pytest.mark.parametrize(("seconds", "rate", "noted"), [(40, 1e9, 40), (40, 1e8, 0), (3, 1e9, 0)])
def test_traffic_of_a_device_that_no_run_has_is_noted(
    lab: Lab, writer: StoreWriter, seconds: int, rate: float, noted: int
) -> None:
    run = going(lab, 1)
    carry(lab.device(2), writer, run, seconds=seconds, rate=rate)
    run = ended(run)
    found = [one for one in foreign_overlaps(run) if one.by == "traffic"]
    assert [one.shared for one in found] == [("uplink",)] * bool(noted)
    assert sum(one.seconds for one in found) == pytest.approx(noted, abs=3)


def test_traffic_of_a_run_is_none_of_others(lab: Lab, writer: StoreWriter) -> None:
    run, other = going(lab, 1), going(lab, 2)
    carry(lab.device(2), writer, run, seconds=60, rate=1e9)
    assert foreign_overlaps(ended(run)) == []
    Run.objects.filter(pk=other.pk).update(started_at=timezone.now() + timedelta(hours=1))
    assert [one.by for one in foreign_overlaps(ended(run))] == ["traffic"]


def report(lab: Lab, at: float, **shares: float) -> None:
    """Let the host report the work of its GPUs, so many seconds after the first report."""
    agent = HostAgent.objects.get(host=lab.host)
    known = latest_report(agent)
    assert known is not None
    gpus = tuple(GpuReading(address=name, gpu_share=share) for name, share in shares.items())
    sent = 1_800_000_000.0 + at
    agent.report = msgspec.to_builtins(msgspec.structs.replace(known, gpus=gpus, sent=sent))
    agent.reported_at = timezone.now()
    agent.save()


def test_work_of_a_gpu_that_no_run_has_is_noted_between_two_reports(lab: Lab) -> None:
    run = going(lab, 1)
    Run.objects.filter(pk=run.pk).update(source={ADDRESSES_KEY: {"own": "falcon-1/slot 1"}})
    claim = RunClaim.claim(str(run.pk), "test")
    assert claim is not None
    for at, share in ((0, 0.9), (10, 0.9), (20, 0.9), (30, 0.01), (40, 0.9), (100, 0.9), (110, 0.9)):
        report(lab, at, own=1.0, other=share)
        # Who polls the same report again counts nothing twice.
        for _ in range(2):
            busy_gpus_record(claim)
    # From 0 to 20 and from 100 to 110; it does not count between reports that are a minute apart.
    run = ended(Run.objects.get(pk=run.pk))
    (found,) = foreign_overlaps(run)
    assert (found.by, found.shared, found.seconds) == ("gpus", ("host",), 30.0)
    Run.objects.filter(pk=run.pk).update(overlaps=msgspec.to_builtins([found]))
    (shown,) = shown_overlaps(lab.person, Run.objects.get(pk=run.pk))
    assert (shown.by, shown.run, shown.seconds) == ("gpus", None, 30.0)


@pytest.mark.parametrize("why", ["own", "monitoring", "unknown", "old report", "another run", "on the CPU"])
def test_work_that_may_be_of_a_run_is_not_noted(lab: Lab, why: str) -> None:
    run = going(lab, 1)
    Run.objects.filter(pk=run.pk).update(source={ADDRESSES_KEY: {"own": "falcon-1/slot 1"}})
    if why == "own":
        series_append(run, "gpu/other/utilisation", at=[1.0], values=[1.0], unit="")
    elif why == "unknown":
        Run.objects.filter(pk=run.pk).update(source={})
    elif why == "another run":
        going(lab, 2)
    elif why == "on the CPU":
        Run.objects.filter(pk=run.pk).update(composition={"host": lab.host.pk, "cpu": True})
    claim = RunClaim.claim(str(run.pk), "test")
    assert claim is not None
    for at in (0, 10):
        report(lab, at, own=1.0, other=0.02 if why == "monitoring" else 0.9)
        if why == "old report":
            HostAgent.objects.update(reported_at=timezone.now() - timedelta(seconds=20))
        busy_gpus_record(claim)
    assert BUSY_KEY not in Run.objects.get(pk=run.pk).source
