"""Components that are no PCIe devices are on the page of what they are in, those of a device on its own."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import User
from fabric.bmc.discovery import discover
from fabric.bmc.series import Quantity, SeriesFactory
from fabric.bmc.types import Inventory
from fabric.inventory.models import Chassis, Device
from fabric.inventory.selectors import reading_owners
from fabric.inventory.sync import inventory_apply
from fabric.topology.problems import present_problems
from telemetry.live.catalogue import SeriesCatalogue
from tests.bmc.nonsense import NonsenseServer
from tests.bmc.test_odd_services import BOX, device, resource, service, to

GPU = f"{BOX}/PCIeDevices/1"
PARTS = (
    resource(f"{BOX}/PowerSubsystem/PowerSupplies/1", "PowerSupply", Name="PSU 1", Model="RKS-440", SerialNumber="77",
             PowerCapacityWatts=1600, Status={"State": "Enabled", "Health": "Critical"}),
    resource(f"{BOX}/Drives/1", "Drive", Name="Disk 1", MediaType="SSD", CapacityBytes=960_000_000_000),
    resource(f"{BOX}/Memory/1", "Memory", Name="DIMM 1", CapacityMiB=32768, OperatingSpeedMhz=3200),
    resource(f"{BOX}/Memory/1/EnvironmentMetrics", "EnvironmentMetrics", TemperatureCelsius={"Reading": 44.0}),
    device(1, Name="Accelerator"),
    resource(f"{BOX}/Processors/1", "Processor", ProcessorType="GPU", Links={"PCIeDevices": to(GPU)}, TotalCores=64),
    resource(f"{BOX}/Processors/2", "Processor", ProcessorType="DSP", Links={"PCIeDevices": to(GPU)}, Name="DSP of it"),
    resource(f"{BOX}/Processors/1/ProcessorMetrics", "ProcessorMetrics", BandwidthPercent=62.0, OperatingSpeedMHz=1400),
    resource(f"{BOX}/Processors/1/EnvironmentMetrics", "EnvironmentMetrics", EnergyJoules={"Reading": 7.2e6},
             TemperatureCelsius={"Reading": 41.0, "DataSourceUri": f"{BOX}/Sensors/t1"}),
    resource(f"{BOX}/Sensors/t1", "Sensor", ReadingType="Temperature", ReadingUnits="Cel", Reading=41.0),
    resource(f"{BOX}/Power", "Power", PowerSupplies=[{"MemberId": "0", "Name": "the same PSU again"}]),
)  # fmt: skip


async def walked(*resources: dict[str, Any]) -> Inventory:
    with NonsenseServer(service(*resources)) as server:
        async with server.client() as bmc:
            return await discover(bmc)


@pytest.fixture
def chassis(db: None) -> Chassis:
    row = Chassis.objects.create(name="box", url="https://127.0.0.1:2")
    inventory_apply(chassis=row, inventory=asyncio.run(walked(*PARTS)))
    return row


def test_each_is_where_an_operator_looks_for_it(chassis: Chassis, administrator: User, client: Client) -> None:
    client.force_login(administrator)
    page = client.get(reverse("fabric:chassis", args=[chassis.pk])).content.decode()
    for words in ("PSU 1", "RKS-440", "1600 W", "Disk 1", "SSD, 960 GB", "DIMM 1", "32 GiB, 3200 MHz"):
        assert words in page
    assert "DSP of it" not in page
    assert "the same PSU again" not in page
    own = client.get(reverse("fabric:device", args=[Device.objects.get().pk])).content.decode()
    assert "DSP of it" in own
    assert "GPU, 64 cores" in own
    assert "PSU 1" not in own


def test_of_thousands_the_unwell_are_shown_and_how_many_there_are(
    chassis: Chassis, administrator: User, client: Client
) -> None:
    drives = [
        resource(f"{BOX}/Drives/{number}", "Drive", Name=f"Disk <b>{number}</b>", Status={"Health": health})
        for number in range(300)
        for health in ["Warning" if number == 299 else "OK"]
    ]
    inventory_apply(chassis=chassis, inventory=asyncio.run(walked(*drives)))
    client.force_login(administrator)
    page = client.get(reverse("fabric:chassis", args=[chassis.pk])).content.decode()
    assert "Drives (300)" in page
    assert "200 more are not shown." in page
    assert "Disk &lt;b&gt;299&lt;/b&gt;" in page
    assert "<b>299" not in page


def test_what_is_unwell_is_named(chassis: Chassis, administrator: User) -> None:
    Chassis.objects.update(health="Critical")
    assert any("PSU 1 (Critical)" in problem.sentence for problem in present_problems(administrator, [chassis.pk]))


def test_the_metrics_of_a_part_are_its_devices_and_those_of_another_component_bear_its_name(chassis: Chassis) -> None:
    inventory = asyncio.run(walked(*PARTS))
    factory = SeriesFactory(inventory)
    metrics = [f"{one.uri}#/{pointer}" for one in inventory.metrics for pointer in one.pointers]
    series = [factory.series(name) for name in (*metrics, f"{BOX}/Sensors/t1#/Reading")]
    catalogue = SeriesCatalogue(series, reading_owners(chassis.pk, inventory))
    shown = {(one["object"], one["quantity"], one["label"]) for one in catalogue.entries}
    assert shown == {
        ("chassis", "temperature_celsius", "DIMM 1: Temperature"),
        ("device", "temperature_celsius", "Temperature"),
        ("device", "energy_kilowatt_hours", "Energy"),
        ("device", "utilisation_percent", "Utilisation"),
        ("device", "other", "Clock rate"),
    }
    (energy,) = [one for one in series if one.quantity is Quantity.ENERGY]
    assert energy.factor * 7.2e6 == pytest.approx(2.0)
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(inventory)), Inventory) == inventory
