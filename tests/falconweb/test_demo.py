"""What a first `make up` opens on, and where none of it may come."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import urllib.request
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pytest_django.fixtures import Settings

from fabric.history.models import Attachment
from fabric.history.services import attachments_record
from fabric.inventory.models import Chassis, Device
from falconweb import demo
from falconweb.launch.processes import ChildProcess, terminate_all
from falconweb.launch.simulation import DEMO_LAB
from simulator.lab import load_lab
from telemetry.live.catalogue import SeriesEntry
from telemetry.store.models import Chunk, Gap
from telemetry.store.selectors import read_series
from tests.site import RunningSite, processes_of
from tests.waiting import wait_for


def entry(key: str, unit: str) -> SeriesEntry:
    """Return a series as a catalogue has it."""
    kind, pk, quantity = key.split("/")
    return SeriesEntry(key=key, object=kind, id=int(pk), quantity=quantity, label=quantity, unit=unit)


HOT = entry("device/7/temperature_celsius", "°C")
BUSY = entry("device/7/utilisation_percent", "%")
SENT = entry("port/5/tx_bytes_per_second", "B/s")
WIDTH = entry("port/5/link_width_lanes", "lanes")
ENERGY = entry("chassis/0/energy_kilowatt_hours", "kWh")
ENTRIES = [HOT, BUSY, SENT, WIDTH, ENERGY]
VALUES = np.array([70.0, 99.0, 2e9, 8.0, 0.02])


def test_the_hour_is_that_of_a_device_at_work_and_its_port_moves_with_it() -> None:
    table = demo.simulated_hour(ENTRIES, VALUES, {("port", 5): ("device", 7)})
    hot, busy, sent, width, energy = table.T
    # It works most of the time, and pauses between epochs.
    assert 85 < np.median(busy) < busy.max() <= 100
    assert 0 < busy.min() < 40
    assert 60 < hot.min() < hot.max() < 80
    assert abs(hot.mean() - 70) < 0.5
    assert np.abs(np.diff(hot)).max() < 2
    assert set(width) == {8.0}
    assert np.isnan(energy).all()
    rate = np.diff(sent)
    assert 0 < rate.min() < rate.max() < 2.1e9
    assert np.corrcoef(rate, busy[1:])[0, 1] > 0.99
    assert np.array_equal(table[:, :4], demo.simulated_hour(ENTRIES, VALUES, {("port", 5): ("device", 7)})[:, :4])


@pytest.mark.process
@pytest.mark.django_db(transaction=True, databases="__all__")
def test_an_hour_is_stored_without_a_hole_and_said_to_be_simulated() -> None:
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1")
    device = Device.objects.create(chassis=chassis, uri="/1", name="GPU 1", kind="gpu")
    attachments_record([device.pk])
    until = time.time() // 60 * 60
    demo.store_hour(chassis.pk, ENTRIES, VALUES, until)
    found = read_series(chassis.pk, [HOT["key"], SENT["key"]], since=until - 3600, until=until, points=60)
    assert found.count[0].tolist() == [60] * 60
    assert float(np.nanmax(found.mean[1])) < 4e9
    assert [(gap.since, gap.until, gap.reason) for gap in found.gaps] == [(until - 3600, until, demo.SIMULATED)]
    assert Attachment.objects.get().since.timestamp() == until - 3600


@pytest.mark.parametrize("address", ["https://10.0.0.9", "https://127.0.0.1:8443"])
@pytest.mark.django_db(databases="__all__")
def test_a_site_with_a_real_chassis_gets_nothing_over_a_tunnel_either(
    address: str, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CONFIG = replace(settings.CONFIG, data=tmp_path)
    (tmp_path / "simulator").mkdir()
    (tmp_path / "simulator" / "ports.json").write_text('{"falcon-1": [4001, 4002]}')
    Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:4001")
    monkeypatch.setattr(demo, "START_SECONDS", 0.0)
    with pytest.raises(TimeoutError):  # it waits for readings of the simulated one alone
        demo.demo_fill()
    Chassis.objects.create(name="rack-9", url=address)
    demo.demo_fill()
    assert not Chunk.objects.exists()
    assert not Gap.objects.exists()
    assert not Attachment.objects.exists()


def test_of_the_labs_gpus_two_of_each_model_are_detached_over_both_chassis() -> None:
    detached = [
        (name, slot.device)
        for name, chassis in load_lab(DEMO_LAB).chassis.items()
        for drawer in chassis.drawers
        for slot in drawer.slots.values()
        if slot.attached_to is None and slot.device.endswith("16GB")
    ]
    assert detached == [("falcon-1", "V100-PCIE-16GB")] * 2 + [("falcon-2", "P100-PCIE-16GB")] * 2


@pytest.mark.process
def test_what_fills_a_site_is_not_started_again(tmp_path: Path) -> None:
    log = tmp_path / "demo.log"
    child = ChildProcess("demo", lambda: os.write(1, b"filled\n"), environment=os.environ, log=log, once=True)
    child.start()
    wait_for(lambda: not child.alive, "it did not end")
    assert [child.restart_if_dead() for _ in range(3)] == ["", "", ""]
    assert log.read_text() == "filled\n"
    terminate_all([child])


def contents(data: Path) -> dict[str, int]:
    """Return how many plans, finished runs, and gaps a site has."""
    found = {}
    for file, name, query in (
        ("falconweb", "plans", "SELECT count(*) FROM fabric_plan"),
        ("falconweb", "runs", "SELECT count(*) FROM runs_run WHERE state = 'completed'"),
        ("readings", "gaps", "SELECT count(*) FROM store_gap WHERE reason LIKE 'Simulated: %'"),
    ):
        with closing(sqlite3.connect(f"file:{data}/{file}.sqlite3?mode=ro", uri=True)) as connection:
            found[name] = connection.execute(query).fetchone()[0]
    return found


def faults(data: Path) -> list[str]:
    """Return the faults of the first simulated chassis."""
    control = json.loads((data / "simulator" / "ports.json").read_text())["falcon-1"][1]
    with urllib.request.urlopen(f"http://127.0.0.1:{control}/faults", timeout=60) as reply:
        return [f"{one['kind']} {one['target']}" for one in json.load(reply)]


@pytest.mark.nightly
@pytest.mark.process
def test_a_first_start_fills_a_site_and_a_second_one_adds_nothing(tmp_path: Path) -> None:
    full = {"plans": 1, "runs": 2, "gaps": 2}
    with RunningSite(tmp_path, arguments=["--demo"]) as site:
        assert faults(tmp_path) == ["link_downgrade drawer2slot3"]
        wait_for(lambda: contents(tmp_path) == full, lambda: f"{contents(tmp_path)}", seconds=120)
        assert site.stop() == 0
    with RunningSite(tmp_path, arguments=["--demo"]) as site:
        assert faults(tmp_path) == []
        assert not processes_of(site, "demo")
        assert contents(tmp_path) == full
