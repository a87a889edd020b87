"""The watch over links, fed by hand: nonsense, other catalogues, and workers that come and go."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from unittest.mock import AsyncMock

import pytest

from fabric.bmc.series import LINK_STATUSES, ChassisReading, Quantity, ReadingSeries
from fabric.bmc.types import Inventory
from fabric.bmc.walk_turns import WalkTurns
from fabric.inventory.models import Chassis, Port
from fabric.inventory.selectors import ReadingOwner
from telemetry.instrumentation import metrics
from telemetry.links.models import CounterReset, LinkCount, LinkSpan
from telemetry.links.recorder import LinkRecorder
from telemetry.links.watch import LinkWatch
from telemetry.live.catalogue import ReadingContext, SeriesCatalogue
from telemetry.polling.chassis_poller import ChassisPoller, PollerContext
from telemetry.polling.pace import ReadingPace
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
SERIES = {
    "status": Quantity.LINK_STATUS, "width": Quantity.LINK_WIDTH, "speed": Quantity.LINK_SPEED,
    "RXBytes": Quantity.RX_BYTES, "ReplayCount": Quantity.ERRORS, "BadTLPCount": Quantity.ERRORS,
}  # fmt: skip
UP, LOST = LINK_STATUSES["LinkUp"], LINK_STATUSES["LinkDown"]


@pytest.fixture
def port(transactional_db: None) -> Port:
    """A port without anything on it."""
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1")
    return Port.objects.create(chassis=chassis, uri="/p", name="Slot 1", width=16)


class Fed:
    """A watch that is told values by name; each reading comes a second after the one before."""

    def __init__(self, port: Port, names: tuple[str, ...] = tuple(SERIES)) -> None:
        self.port, self.at = port, time.time() - 1000
        self.watch = LinkWatch(port.chassis_id)
        self.begin(names)
        self.watch._loading.result(timeout=60)

    def begin(self, names: tuple[str, ...]) -> None:
        self.names = names
        series = [
            ReadingSeries(
                property=f"/p#/{name}", owner_uri="/p", quantity=SERIES[name],
                detail=name if SERIES[name] is Quantity.ERRORS else "",
            )
            for name in names
        ]  # fmt: skip
        self.catalogue = SeriesCatalogue(series, {"/p": ReadingOwner("port", self.port.pk)})
        self.watch.begin(ReadingContext(self.port.chassis_id, self.catalogue, Inventory(), {}))

    def take(self, *, after: float = 1.0, **values: float) -> None:
        self.at += after
        reading = ChassisReading(at=self.at, values=tuple(values.get(name, math.nan) for name in self.names))
        self.watch.take(self.catalogue.sample(reading))

    def close(self) -> LinkCount:
        asyncio.run(self.watch.close())
        return LinkCount.objects.get(port=self.port)


@pytest.fixture
def fed(port: Port) -> Iterator[Fed]:
    """A watch over the port."""
    made = Fed(port)
    yield made
    asyncio.run(made.watch.close())


def test_nonsense_changes_nothing_and_is_counted(fed: Fed) -> None:
    before = metrics.counter_values().get(("link_counters_negative", fed.port.chassis_id), 0)
    fed.take(status=UP, width=16, speed=256.0, RXBytes=10, ReplayCount=4)
    fed.take(status=math.nan, width=-1, ReplayCount=math.nan)
    fed.take(status=97.0, width=math.inf, ReplayCount=-7, BadTLPCount=math.inf)
    fed.take(status=UP, width=16, speed=256.0, ReplayCount=6)
    count = fed.close()
    assert count.totals.get("ReplayCount") == 2
    assert not CounterReset.objects.exists()
    assert metrics.counter_values()["link_counters_negative", fed.port.chassis_id] == before + 2
    assert {one.status for one in LinkSpan.objects.all()} <= {"LinkUp", ""}
    assert (count.status, count.width) == ("LinkUp", 16)


def test_another_catalogue_goes_on_where_the_one_before_was(fed: Fed) -> None:
    fed.take(status=UP, width=16, speed=256.0, ReplayCount=4, BadTLPCount=9)
    fed.begin(("BadTLPCount", "ReplayCount", "status"))
    fed.take(status=UP, ReplayCount=7, BadTLPCount=9)
    fed.begin(("ReplayCount",))
    fed.take(ReplayCount=8)
    fed.begin(tuple(SERIES))
    fed.take(status=UP, width=16, speed=256.0, ReplayCount=9, BadTLPCount=10)
    count = fed.close()
    assert count.totals == {"ReplayCount": 5, "BadTLPCount": 1}
    assert LinkSpan.objects.count() == 1


def test_a_watch_that_follows_another_loses_no_count(port: Port) -> None:
    first = Fed(port)
    first.take(status=UP, width=16, speed=256.0, ReplayCount=100, RXBytes=1000)
    first.take(status=UP, width=16, speed=256.0, ReplayCount=110, RXBytes=2000)
    assert first.close().totals["ReplayCount"] == 10
    second = Fed(port)
    second.at = first.at + 30
    second.take(status=UP, width=16, speed=256.0, ReplayCount=150, RXBytes=9000)
    assert second.close().totals["ReplayCount"] == 50
    # Reset while nobody looked: what it stands at is what came since.
    third = Fed(port)
    third.at = second.at + 30
    for count in (3, 4):
        third.take(status=LOST, width=0, speed=0.0, ReplayCount=count, RXBytes=10)
    assert third.close().totals["ReplayCount"] == 54
    reset = CounterReset.objects.get()
    assert (reset.how, reset.counted) == ("bmc", {"ReplayCount": 150})
    assert [one.status for one in LinkSpan.objects.order_by("since")] == ["LinkUp", "LinkDown"]


def test_a_chassis_that_was_lost_before_has_restarted(fed: Fed) -> None:
    fed.take(status=UP, ReplayCount=100, RXBytes=10)
    fed.watch.lost("falcon-1 did not answer.")
    fed.take(after=20, status=UP, ReplayCount=0, RXBytes=0)
    fed.take(status=UP, ReplayCount=0, RXBytes=1)
    fed.close()
    assert CounterReset.objects.get().how == "reboot"


def test_the_thread_ends_with_the_last_watch(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    own = LinkRecorder()  # that of the process may still be at what the tests before have left
    monkeypatch.setattr("telemetry.links.watch.process_recorder", lambda: own)
    one, two = Fed(port), Fed(port)
    one.take(status=UP)
    one.close()
    assert own._thread is not None
    asyncio.run(two.watch.close())
    wait_for(lambda: own._thread is None)


def test_who_is_told_to_end_before_his_first_step_leaves_nothing_watched(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = LinkRecorder()
    monkeypatch.setattr("telemetry.links.watch.process_recorder", lambda: own)

    async def told_to_end() -> None:
        turns = WalkTurns()
        around = PollerContext(
            AsyncMock(), AsyncMock(), is_claimed=bool, phase=float, turns=turns, pace=ReadingPace(turns, int)
        )
        task = asyncio.create_task(ChassisPoller(1, around).run())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(told_to_end())
    wait_for(lambda: own._thread is None)


def test_a_device_that_reads_all_ones_leaves_what_was_known_as_it_was(fed: Fed) -> None:
    ones = float(2**64 - 1)
    fed.take(status=UP, width=16, speed=256.0, RXBytes=10, ReplayCount=4)
    fed.take(status=UP, width=ones, speed=ones, RXBytes=ones, ReplayCount=ones)
    fed.take(status=UP, width=ones, speed=ones, RXBytes=ones, ReplayCount=ones)
    fed.take(status=UP, width=16, speed=256.0, RXBytes=20, ReplayCount=6)
    fed.take(status=UP, width=16, speed=256.0, RXBytes=30, ReplayCount=6)
    count = fed.close()
    assert (count.totals, count.raw) == ({"ReplayCount": 2}, {"ReplayCount": 6, "RXBytes": 30})
    assert (count.width, count.speed_gbps) == (16, 256.0)
    assert not CounterReset.objects.exists()
