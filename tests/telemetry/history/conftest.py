"""A chassis of two tenants whose readings are in the store, written there by the store's own recorder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

import numpy as np
import pytest
import redis
from django.conf import settings
from django.test import Client

from accounts.models import Role, Tenant, User
from fabric.bmc.types import Inventory
from fabric.history.models import Attachment
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port, Slot
from telemetry.live.catalogue import ReadingContext, Sample, SeriesCatalogue, SeriesEntry
from telemetry.store.models import Chunk
from telemetry.store.recorder import ReadingRecorder
from telemetry.store.writer import StoreWriter

Values = Callable[[float], Sequence[float]]
MINUTES = 12  # that are recorded


@dataclass
class Lab:
    """Chassis, two drawers, three slots: two devices of 'One' and 'Two' in the first drawer, one in the second."""

    chassis: Chassis
    drawers: list[Drawer]
    slots: list[Slot]
    devices: list[Device]
    host: Host
    tenants: list[Tenant]
    entries: list[SeriesEntry]
    began: float  # of what is recorded, Unix s, a whole minute; it lasts MINUTES
    clients: dict[str, Client] = field(default_factory=dict)
    people: dict[str, User] = field(default_factory=dict)

    @property
    def ended(self) -> float:
        return self.began + MINUTES * 60

    def at(self, seconds: float) -> datetime:
        """Return a moment after the beginning."""
        return datetime.fromtimestamp(self.began + seconds, UTC)


def entry(  # noqa: PLR0917 - rows of a table
    kind: str, pk: int, quantity: str, label: str, unit: str, detail: str = ""
) -> SeriesEntry:
    key = f"{kind}/{pk}/{quantity}" + (f"/{detail}" if detail else "")
    return SeriesEntry(key=key, object=kind, id=pk, quantity=quantity, label=label, unit=unit)


def forget_live(chassis: int) -> None:
    """Let nothing of a chassis be live: a test before may have left what it read of another row with this number."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.delete(f"live:catalogue:{chassis}")


def record(chassis: int, entries: Sequence[SeriesEntry], times: Sequence[float], values: Values) -> None:
    """Have readings stored: `values(at)` are counted, in the order of the entries."""
    catalogue = SeriesCatalogue((), {})
    catalogue.entries = list(entries)
    writer = StoreWriter(gather=0.0)
    recorder = ReadingRecorder(chassis, writer)
    recorder.begin(ReadingContext(chassis, catalogue, cast("Inventory", None), {}))
    for at in times:
        counted = np.array(values(at), dtype=np.float64)
        recorder.take(Sample(at=at, measured_at=at, counted=counted, values=counted))
    asyncio.run(recorder.close())
    writer.stop()
    assert Chunk.objects.filter(chassis=chassis).exists()


def make_lab(began: float) -> Lab:
    """Make rows and people; see Lab."""
    one, two, three = (Tenant.objects.create(name=name) for name in ("One", "Two", "Three"))
    chassis = Chassis.objects.create(name="falcon", url="https://127.0.0.1:1")
    forget_live(chassis.pk)
    drawers = [
        Drawer.objects.create(chassis=chassis, uri=f"/d{number}", name=f"Drawer {number}", number=number)
        for number in (1, 2)
    ]
    host = Host.objects.create(name="node-a", identity="a")
    host_port = HostPort.objects.create(
        chassis=chassis, uri="/z1", name="H1", endpoint_uri="/e1", drawer=drawers[0], host=host, label="H1", tenant=one
    )
    slots, devices, entries = [], [], []
    for number, (drawer, tenant) in enumerate(((0, one), (0, two), (1, one)), 1):
        port = Port.objects.create(chassis=chassis, uri=f"/p{number}", name=f"Port {number}")
        slot = Slot.objects.create(
            chassis=chassis, uri=f"/s{number}", name=f"Slot {number}", drawer=drawers[drawer], port=port, number=number
        )
        device = Device.objects.create(
            chassis=chassis, uri=f"/v{number}", name=f"GPU {number}", slot=slot, tenant=tenant, kind="gpu",
            host_port=host_port if number == 1 else None,
        )  # fmt: skip
        slots.append(slot)
        devices.append(device)
        entries += [
            entry("device", device.pk, "temperature_celsius", "Temperature", "°C"),
            entry("device", device.pk, "power_watts", "Power", "W"),
            entry("port", port.pk, "rx_bytes_per_second", "Receive", "B/s"),
            entry("port", port.pk, "tx_bytes_per_second", "Transmit", "B/s"),
            entry("port", port.pk, "errors", "Replay count", "", "ReplayCount"),
        ]
    entries.append(entry("chassis", 0, "temperature_celsius", "=Inlet, left", "°C"))
    lab = Lab(chassis, drawers, slots, devices, host, [one, two, three], entries, began)
    lab.people = {
        "administrator": User.objects.create_superuser("administrator", password="x"),
        "owner": User.objects.create_user("owner", password="x", role=Role.USER, tenant=one),
        "other": User.objects.create_user("other", password="x", role=Role.VIEWER, tenant=two),
        "stranger": User.objects.create_user("stranger", password="x", role=Role.USER, tenant=three),
    }
    for name, person in lab.people.items():
        lab.clients[name] = Client()
        lab.clients[name].force_login(person)
    return lab


def counted(at: float, began: float) -> list[float]:
    """Return what all series count at a time.

    Device n has n x 10 degrees, and 1 more in the second half of each minute, and n x 100 W; its port receives n MB a
    second and sends twice that; it counts one replay each 10 s.
    """
    second = at - began
    found: list[float] = []
    for number in (1, 2, 3):
        warm = number * 10.0 + (1.0 if second % 60 >= 30 else 0.0)
        found += [warm, number * 100.0, number * 1e6 * second, number * 2e6 * second, float(second // 10)]
    return [*found, 21.5]


@pytest.fixture
def lab(transactional_db: None) -> Lab:
    """The chassis with twelve minutes of readings, which ended half an hour ago."""
    made = make_lab(time.time() // 60 * 60 - 1800 - MINUTES * 60)
    times = [made.began + second for second in range(MINUTES * 60)]
    record(made.chassis.pk, made.entries, times, lambda at: counted(at, made.began))
    return made


def attached(lab: Lab, device: Device, since: float, until: float | None, **those: object) -> Attachment:
    """Keep that a device was somewhere from a second after the beginning until another."""
    facts = {"slot": device.slot, "tenant": device.tenant, **those}
    return Attachment.objects.create(
        chassis=lab.chassis, device=device, device_name=device.name, since=lab.at(since),
        until=None if until is None else lab.at(until), origin="found", **facts,
    )  # fmt: skip
