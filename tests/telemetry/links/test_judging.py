"""Verdicts that are judged where something is new, beside verdicts on everything: they must be the same."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from django.conf import settings

from accounts.models import Tenant
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port, Slot
from telemetry.links.counters import COUNTERS, LinkState, PortChange
from telemetry.links.models import LinkVerdict
from telemetry.links.services import PendingPortChanges, links_judge, links_record_changes
from tests.turns import at_night

pytestmark = pytest.mark.django_db
BEGIN = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
STATES = (
    LinkState("LinkUp", 16, 256.0),
    LinkState("LinkUp", 8, 128.0),
    LinkState("LinkDown", 0, 0.0),
    LinkState("Training", 0, None),
)
RAW = ("RXBytes", *(one.name for one in COUNTERS))
HARMLESS = tuple(name for name in RAW if "Fatal" not in name)


@pytest.fixture
def ports(db: None) -> list[Port]:
    """Eight ports of two chassis: of slots with devices (attached, idle, held, gone), and of host ports."""
    tenant = Tenant.objects.create(name="Vision group")
    made = []
    for number in range(8):
        chassis, _ = Chassis.objects.get_or_create(name=f"falcon-{number % 2}", url=f"https://127.0.0.1:{number % 2}")
        drawer, _ = Drawer.objects.get_or_create(chassis=chassis, uri="/d", name="Drawer 1", number=1)
        port = Port.objects.create(
            chassis=chassis, uri=f"/p{number}", name=f"{number}", width=16, max_speed_gbps=256.0,
            configured_width=8 if number == 3 else 16, approved_width=16,
        )  # fmt: skip
        held = tenant if number in {0, 5} else None
        if number > 3:
            HostPort.objects.create(
                chassis=chassis, uri=f"/z{number}", name=f"H{number}", label=f"H{number}", drawer=drawer, port=port,
                endpoint_uri=f"/e{number}", tenant=held, tenant_since=BEGIN if held else None,
            )  # fmt: skip
        else:
            slot = Slot.objects.create(chassis=chassis, uri=f"/s{number}", name=f"{number}", port=port, drawer=drawer)
            Device.objects.create(
                chassis=chassis, uri=f"/g{number}", name=f"{number}", slot=slot, max_lanes=16, max_pcie_type="Gen4",
                tenant=held, tenant_since=BEGIN - timedelta(days=1) if held else None,
                missing_since=BEGIN if number == 2 else None,
            )  # fmt: skip
        made.append(port)
    for device, host_port in zip(Device.objects.order_by("pk")[:2], HostPort.objects.order_by("pk"), strict=False):
        Device.objects.filter(pk=device.pk).update(host_port=host_port)
    return made


class Played:
    """Readings of ports by chance, a step at a time, noted as the recorder does."""

    def __init__(self, ports: list[Port], seed: int) -> None:
        self.ports = ports
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.now = BEGIN
        self.raw = {port.pk: Counter(dict.fromkeys(RAW, 0)) for port in ports}

    def step(self, *, every: bool = False) -> set[int]:
        """Let time pass and some ports tell something; returns which (ids)."""
        before, self.now = self.now, self.now + timedelta(seconds=self.random.choice((1, 5, 5, 20, 61, 601, 4000)))
        told = [port for port in self.ports if every or self.random.random() < 0.3]
        for port in told:
            pending = PendingPortChanges()
            pending.add(self.change(port, before, is_first=every))
            links_record_changes({port.pk: pending})
        return {port.pk for port in told}

    def change(self, port: Port, before: datetime, *, is_first: bool) -> PortChange:
        some = self.random.sample(RAW if self.random.random() < 0.1 else HARMLESS, self.random.choice((0, 1, 3)))
        gained = {name: self.random.choice((1, 1, 4, 300, 100_000)) for name in some}
        self.raw[port.pk].update(gained)
        reset = None
        if self.random.random() < 0.1:
            reset = dict(self.raw[port.pk])
            self.raw[port.pk] = Counter(dict.fromkeys(RAW, 0))
        return PortChange(
            port=port.pk, at=self.now.timestamp(), seen_until=before.timestamp(), reset=reset, how="bmc",
            state=self.random.choices(STATES, (8, 1, 1, 1))[0] if is_first or self.random.random() < 0.3 else None,
            gained={name: count for name, count in gained.items() if name != "RXBytes"}, raw=dict(self.raw[port.pk]),
        )  # fmt: skip


def ports_of(found: dict[int, frozenset[int]]) -> frozenset[int]:
    """Return all ports of what is found by chassis."""
    return frozenset().union(*found.values())


def rows() -> list[dict[str, Any]]:
    """Return all that is kept of verdicts, but for when it was judged."""
    fields = [one.attname for one in LinkVerdict._meta.concrete_fields if one.attname not in {"judged_at", "since"}]
    return list(LinkVerdict.objects.order_by("port", "tenant").values(*fields))


@pytest.mark.parametrize("seed", [0, *at_night(1, 2, 3, 4, 5)])
def test_what_is_new_and_what_time_may_change_is_all_that_has_to_be_judged(ports: list[Port], seed: int) -> None:
    played = Played(ports, seed)
    played.step(every=True)
    chassis = sorted({port.chassis_id for port in ports})
    restless = ports_of(links_judge(chassis_id__in=chassis, now=played.now))
    levels, calm = set(), set()
    for _ in range(25):
        wanted = restless | played.step()
        restless = (restless - wanted) | ports_of(links_judge(pk__in=wanted, now=played.now))
        found = rows()
        everything = ports_of(links_judge(chassis_id__in=chassis, now=played.now))
        assert found == rows()
        assert everything == restless
        levels |= {one["level"] for one in found}
        calm |= {port.pk for port in ports} - wanted
    # Or this would show nothing.
    assert len(levels) >= 4, levels
    assert calm


@pytest.mark.django_db(transaction=True)
def test_pages_of_a_chassis_are_told_where_a_verdict_is_another_and_only_there(ports: list[Port]) -> None:
    port, at = ports[0], BEGIN.timestamp()
    pending = PendingPortChanges()
    pending.add(PortChange(port=port.pk, at=at, state=STATES[1]))
    links_record_changes({port.pk: pending})
    with redis.Redis.from_url(settings.REDIS_URL) as client, client.pubsub() as heard:
        heard.subscribe(f"changed:{port.chassis_id}")
        assert heard.get_message(timeout=30)["type"] == "subscribe"
        links_judge(chassis_id=port.chassis_id, now=BEGIN)
        assert heard.get_message(timeout=30)["type"] == "message"
        links_judge(chassis_id=port.chassis_id, now=BEGIN + timedelta(seconds=5))
        assert heard.get_message(timeout=0.2) is None
