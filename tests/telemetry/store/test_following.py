"""A real poller and a simulated chassis: what is read is stored, and read back with the newest end."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from fabric.models import Chassis
from falconweb.testing import add_chassis
from telemetry.live import catalogue
from telemetry.pipeline import tally
from telemetry.store import reading
from telemetry.store.models import Chunk, Gap
from telemetry.store.recorder import NOT_READ
from telemetry.store.writer import the_writer
from tests.processes import SimulatorProcess
from tests.telemetry.worker import polling
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(chassis="falcon-1") as process:
        yield process


@pytest.fixture
def chassis(simulator: SimulatorProcess) -> Chassis:
    """falcon-1, not yet looked at."""
    return add_chassis(simulator)


def count(chassis: Chassis, since: float) -> int:
    """Return how many seconds of the chassis' first series are known."""
    keys = [entry["key"] for entry in catalogue(chassis.pk)[:1]]
    found = reading.read(chassis.pk, keys, since=since, until=time.time() + 1, points=600)
    return int(found.count.sum())


def test_readings_of_a_chassis_are_shown_at_once_and_stored_when_the_worker_ends(chassis: Chassis) -> None:
    began = time.time()
    with polling():
        wait_for(lambda: catalogue(chassis.pk))
        wait_for(lambda: count(chassis, began) >= 4)
        live = {entry["key"] for entry in catalogue(chassis.pk)}
        shown = {entry["key"] for entry in reading.known_series(chassis.pk, since=began, until=time.time())}
        assert shown >= live
        assert len(shown) > 500  # error counters have a rate as well
    wait_for(lambda: Gap.objects.filter(chassis=chassis.pk, reason=NOT_READ, until=None).exists())
    the_writer().stop()
    rows = sum(Chunk.objects.filter(chassis=chassis.pk).values_list("rows", flat=True))
    # On a busy machine the simulated BMC gives one report twice, which is stored once.
    repeated = tally.counts().get(("readings_repeated", chassis.pk), 0) / len(catalogue(chassis.pk))
    assert rows + repeated >= 4
    assert count(chassis, began) >= rows
    by_quantity = {entry["quantity"]: entry["key"] for entry in catalogue(chassis.pk)}
    keys = [by_quantity[name] for name in ("temperature_celsius", "rx_bytes_per_second", "errors", "link_width_lanes")]
    found = reading.read(chassis.pk, keys, since=began, until=time.time(), points=1)
    assert 15 < found.mean[0][0] < 100
    assert found.count[0][0] >= rows
    assert found.mean[3][0] in {0.0, 1.0, 2.0, 4.0, 8.0, 16.0}
