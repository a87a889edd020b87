"""What a poller says and does of a BMC that is away, restarts, or refuses its password."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import redis.asyncio
from django.conf import settings
from django.test import Client
from django.utils import timezone

from accounts.models import User
from core.errors import Unavailable
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.types import Inventory
from fabric.bmc.walk_turns import WalkTurns
from fabric.inventory.access import FIRST_RETRY
from fabric.inventory.locate import part_locate
from fabric.inventory.models import Chassis, ManagedPart
from fabric.inventory.sync import inventory_apply
from fabric.signals import sign_in_due
from falconweb.testing import add_chassis
from falconweb.testing.processes import SimulatorProcess
from telemetry.live.frames import FrameOutbox
from telemetry.polling import chassis_poller
from telemetry.polling.chassis_poller import ChassisPoller, PollerContext, cancel_and_wait
from telemetry.polling.pace import ReadingPace
from tests.bmc.nonsense import NonsenseServer, Reply
from tests.bmc.test_openbmc import bmcweb
from tests.waiting import eventually_in_loop

pytestmark = pytest.mark.django_db(transaction=True)


def inventory_of(chassis: Chassis) -> Inventory:
    """Return what a walk of a chassis finds."""

    async def walk() -> Inventory:
        async with BmcClient(chassis.address()) as bmc:
            return await discover(bmc)

    return asyncio.run(walk())


async def poll_through(chassis: Chassis, *stages: Callable[[], Any]) -> None:
    """Poll a chassis until each stage in turn has become true."""
    bus = redis.asyncio.Redis.from_url(settings.REDIS_URL)
    turns = WalkTurns()
    context = PollerContext(
        bus, FrameOutbox(bus, "test"), lambda _: True, lambda _: 0.0, turns, ReadingPace(turns, int)
    )
    task = asyncio.create_task(ChassisPoller(chassis.pk, context).run())
    try:
        for stage in stages:
            await eventually_in_loop(partial(asyncio.to_thread, stage), bool)
    finally:
        await cancel_and_wait(task)
        await context.outbox.close()
        await bus.aclose()


def test_a_dead_bmc_is_not_said_to_answer_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chassis_poller, "RETRY_DELAYS", (0.05,))
    routes = bmcweb()
    routes["/redfish/v1"].pop("ProtocolFeaturesSupported")
    with NonsenseServer(routes) as server, caplog.at_level(logging.INFO, chassis_poller.__name__):
        chassis = Chassis.objects.create(name="openbmc", url=server.url)
        inventory_apply(chassis=chassis, inventory=inventory_of(chassis))
        server.asked.clear()
        monkeypatch.setattr(server, "answer", lambda _asked: Reply(hang_up=True))
        turns = Counter[str]()
        turn = WalkTurns.turn
        monkeypatch.setattr(WalkTurns, "turn", lambda own, pace: (turns.update(["taken"]), turn(own, pace))[-1])

        def is_back() -> bool:
            """Have it answer, once it was asked in vain for a while: tried more often than once a beat."""
            if len(server.asked) < 30:
                return False
            assert "answers again" not in caplog.text
            assert turns["taken"] <= 1, "but at first, it takes no turn of those that answer"
            monkeypatch.setattr(server, "answer", partial(NonsenseServer.answer, server))
            return True

        asyncio.run(poll_through(chassis, is_back, lambda: "answers again" in caplog.text))
    assert caplog.text.count("answers again") == 1


@pytest.fixture
def strict() -> Iterator[SimulatorProcess]:
    """falcon-1, which locks an account after five refused passwords."""
    with SimulatorProcess("--lock-after", "5", chassis="falcon-1") as process:
        yield process


def refused(simulator: SimulatorProcess) -> int:
    """Return how many passwords of the site's account the BMC has refused in a row."""
    return int(simulator.state()["refused_passwords"].get("administrator", 0))


def wait_of(chassis: Chassis) -> timedelta:
    """Return how long until the password of a chassis is tried again."""
    assert chassis.next_sign_in_at is not None
    return chassis.next_sign_in_at - timezone.now()


def test_a_wrong_password_is_tried_rarely_and_a_right_one_at_once(
    strict: SimulatorProcess, administrator_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chassis_poller, "RETRY_DELAYS", (0.05,))
    chassis = add_chassis(strict)
    chassis.set_password("not this one")
    chassis.uri = "/redfish/v1/Chassis/falcon"
    chassis.save()
    seen = []

    def is_refused() -> bool:
        """Whether it was refused, and looked at again and again since."""
        row = Chassis.objects.get()
        seen.append(row.next_sign_in_at)
        return bool(row.last_error) and len(seen) > 40

    asyncio.run(poll_through(chassis, is_refused))
    # By session and, once, by Basic; a worker that takes over knows that.
    asyncio.run(poll_through(chassis, lambda: len(seen) > 60 or not is_refused()))
    row = Chassis.objects.get()
    assert refused(strict) == 2
    assert row.refused_at is not None
    assert (row.refusals, row.uses_basic) == (1, False)
    assert timedelta(minutes=4) < wait_of(row) < FIRST_RETRY
    # Nobody else tries it either.
    bmc = ManagedPart.objects.create(chassis=row, uri="/m", name="BMC", kind="bmc", led_uri=row.uri)
    with pytest.raises(Unavailable):
        part_locate(person=User.objects.get(), part=bmc, lit=True)
    assert refused(strict) == 2
    page = administrator_client.get(f"/chassis/{row.pk}/").text
    assert "Refused since" in page
    assert "Try now" in page
    # The next try is one, by session only, and the one after that later.
    Chassis.objects.update(next_sign_in_at=timezone.now())
    asyncio.run(poll_through(row, lambda: Chassis.objects.get().refusals == 2))
    assert refused(strict) == 3
    again = Chassis.objects.get()
    assert timedelta(minutes=9) < wait_of(again) < 2 * FIRST_RETRY
    assert again.refused_at == row.refused_at
    # The right password is tried at once, and by nobody the wrong one.
    form = {"name": again.name, "url": again.url, "username": "administrator", "password": strict.password,
            "fingerprint": strict.fingerprint, "enabled": "on"}  # fmt: skip
    assert administrator_client.post(f"/chassis/{row.pk}/edit/", form).status_code == 302
    changed = Chassis.objects.get()
    assert (changed.refused_at, changed.refusals, changed.next_sign_in_at) == (None, 0, None)
    asyncio.run(poll_through(changed, lambda: Chassis.objects.get().inventory_at))
    assert refused(strict) == 0


def test_try_now_is_one_try_at_once(strict: SimulatorProcess, administrator_client: Client) -> None:
    chassis = add_chassis(strict)
    since = timezone.now() - timedelta(hours=3)
    Chassis.objects.update(
        refusals=7, refused_at=since, next_sign_in_at=timezone.now() + timedelta(hours=5), last_error="It is refused."
    )
    rung: list[int] = []
    sign_in_due.connect(receiver := lambda chassis_id, **_: rung.append(chassis_id))
    try:
        assert administrator_client.post(f"/chassis/{chassis.pk}/sign-in/").status_code == 302
    finally:
        sign_in_due.disconnect(receiver)
    assert rung == [chassis.pk]
    asyncio.run(poll_through(chassis, lambda: Chassis.objects.get().inventory_at))
    row = Chassis.objects.get()
    assert (row.refused_at, row.refusals, row.next_sign_in_at, row.uses_basic) == (None, 0, None, False)


def test_a_bmc_that_keeps_sessions_over_a_restart_has_one(
    strict: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chassis_poller, "RETRY_DELAYS", (0.1,))
    chassis = add_chassis(strict)

    def restarts() -> bool:
        strict.fault("bmc_reboot", seconds=0.3, keeps_sessions=True)
        return True

    def is_back(boots: int) -> bool:
        state = strict.state()
        return (state["boots"], state["streams"] > 0) == (boots, True)

    asyncio.run(
        poll_through(
            chassis, partial(is_back, 1), restarts, partial(is_back, 2), restarts, partial(is_back, 3),
            lambda: strict.state()["sessions"] == 1,
        )
    )  # fmt: skip
    assert strict.state()["sessions"] == 0
