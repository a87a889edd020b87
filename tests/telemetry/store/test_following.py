"""A real poller and a simulated chassis: what is read is stored, and read back with the newest end."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from fabric.inventory.models import Chassis
from falconweb.testing import add_chassis
from falconweb.testing.processes import SimulatorProcess
from telemetry.instrumentation import metrics
from telemetry.live.frames import current_catalogue
from telemetry.store import selectors
from telemetry.store.models import Chunk, Gap
from telemetry.store.recorder import NOT_READ
from telemetry.store.writer import process_writer
from tests.telemetry.polling.worker import polling
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
    keys = [entry["key"] for entry in current_catalogue(chassis.pk)[:1]]
    found = selectors.read_series(chassis.pk, keys, since=since, until=time.time() + 1, points=600)
    return int(found.count.sum())


def test_readings_of_a_chassis_are_shown_at_once_and_stored_when_the_worker_ends(chassis: Chassis) -> None:
    began = time.time()
    with polling():
        wait_for(lambda: current_catalogue(chassis.pk))
        wait_for(lambda: count(chassis, began) >= 4)
        live = {entry["key"] for entry in current_catalogue(chassis.pk)}
        shown = {entry["key"] for entry in selectors.known_series(chassis.pk, since=began, until=time.time())}
        assert shown >= live
        assert len(shown) > 500  # error counters have a rate as well
    wait_for(lambda: Gap.objects.filter(chassis=chassis.pk, reason=NOT_READ, until=None).exists())
    process_writer().stop()
    rows = sum(Chunk.objects.filter(chassis=chassis.pk).values_list("rows", flat=True))
    # On a busy machine the simulated BMC gives one report twice, which is stored once.
    repeated = metrics.counter_values().get(("readings_repeated", chassis.pk), 0) / len(current_catalogue(chassis.pk))
    assert rows + repeated >= 4
    assert count(chassis, began) >= rows
    by_quantity = {entry["quantity"]: entry["key"] for entry in current_catalogue(chassis.pk)}
    keys = [by_quantity[name] for name in ("temperature_celsius", "rx_bytes_per_second", "errors", "link_width_lanes")]
    found = selectors.read_series(chassis.pk, keys, since=began, until=time.time(), points=1)
    assert 15 < found.mean[0][0] < 100
    assert found.count[0][0] >= rows
    assert found.mean[3][0] in {0.0, 1.0, 2.0, 4.0, 8.0, 16.0}
