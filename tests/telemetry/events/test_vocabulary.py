"""One vocabulary for the events of fabrics: DMTF's names, whichever registry a BMC uses."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from fabric.bmc.events import RedfishEvent as Record
from fabric.inventory.models import Chassis, Device, Port, Switch
from telemetry.events.fabric_messages import SAME_EVENTS
from telemetry.events.ingestion import log_records_ingest
from telemetry.events.models import Event
from telemetry.events.rules import MESSAGE_CATALOGUE, event_severity, find_message, message_name

SWITCH = "/redfish/v1/Fabrics/PCIe/Switches/Switch1"
PORT = f"{SWITCH}/Ports/Port3"
GPU = "/redfish/v1/Chassis/drawer1/PCIeDevices/GPU3"
# One event a line: as DMTF's registry has it, as OCP's has it, each with the severity that its registry gives it.
TWICE = (
    ("Fabric.1.1.0.CableInserted", "OK", "AcceleratorFabric.1.0.0.CableInserted", "OK"),
    ("Fabric.1.1.0.CableRemoved", "Warning", "AcceleratorFabric.1.0.0.CableRemoved", "OK"),
    ("Fabric.1.0.2.DownstreamLinkDropped", "Warning", "AcceleratorFabric.1.0.0.ConnectionDropped", "OK"),
    ("Fabric.1.1.0.DownstreamLinkEstablished", "OK", "AcceleratorFabric.1.0.0.ConnectionEstablished", "OK"),
    ("Fabric.1.0.DegradedDownstreamLinkEstablished", "Warning",
     "acceleratorfabric.1.0.degradedconnectionestablished", "Warning"),
    ("Fabric.1.0.DownstreamLinkFlapDetected", "Warning", "AcceleratorFabric.1.0.0.LinkFlapDetected", "Warning"),
)  # fmt: skip


def ingest(chassis: Chassis, *records: Record) -> list[Event]:
    log_records_ingest(chassis_id=chassis.pk, records=records, owners={}, ahead=timedelta(0))
    return list(Event.objects.order_by("pk"))


def record(number: int, message_id: str, severity: str, origin: str = "", *arguments: str) -> Record:
    return Record(
        event_id=str(number), message_id=message_id, message=f"Message {number}.", severity=severity,
        timestamp=timezone.now().isoformat(), origin_uri=origin, arguments=arguments, entry_uri=f"/log/{number}",
    )  # fmt: skip


@pytest.fixture
def chassis(db: None) -> Chassis:
    row = Chassis.objects.create(name="falcon", url="https://127.0.0.1:1", uri="/redfish/v1/Chassis/falcon")
    switch = Switch.objects.create(chassis=row, uri=SWITCH, name="Switch 1")
    Port.objects.create(chassis=row, uri=PORT, name="Port 3", switch=switch)
    Port.objects.create(chassis=row, uri=f"{SWITCH}2/Ports/Port3", name="Port 3 of another", switch=switch)
    Device.objects.create(chassis=row, uri=GPU, name="GPU 3", processor_uri="/redfish/v1/Systems/UBB/Processors/GPU3")
    return row


@pytest.mark.parametrize(("ours", "severity", "theirs", "their_severity"), TWICE)
def test_one_event_of_two_registries_is_told_alike(
    chassis: Chassis, ours: str, severity: str, theirs: str, their_severity: str
) -> None:
    first, second = ingest(chassis, record(1, ours, severity, PORT), record(2, theirs, their_severity, PORT))
    assert (second.message, second.severity, second.subject_name, second.port_id, second.link) == (
        first.message, first.severity, first.subject_name, first.port_id, first.link,
    )  # fmt: skip
    assert second.message_id == theirs
    assert find_message(theirs) is find_message(ours) is not None


def test_a_severity_that_a_bmc_gives_itself_counts() -> None:
    assert event_severity("Critical", "AcceleratorFabric.1.0.0.ConnectionDropped") == "Critical"
    assert event_severity("OK", "Fabric.1.1.0.DownstreamLinkDropped") == "OK"
    assert event_severity("", "AcceleratorFabric.1.0.0.ConnectionDropped") == "Warning"


def test_what_only_one_registry_has_keeps_its_name(chassis: Chassis) -> None:
    alone, unknown, other = ingest(
        chassis,
        record(1, "AcceleratorFabric.1.0.0.LinkTrainingFailed", ""),
        record(2, "AcceleratorFabric.1.2.0.BrandNew", "Warning"),
        record(3, "NetworkDevice.1.1.0.ConnectionDropped", "OK"),
    )
    assert (alone.message, alone.severity) == ("AcceleratorFabric.LinkTrainingFailed", "Critical")
    assert (unknown.message, unknown.severity, unknown.text) == ("AcceleratorFabric.BrandNew", "Warning", "Message 2.")
    assert (other.message, other.severity) == ("NetworkDevice.ConnectionDropped", "OK")


def test_without_an_origin_the_arguments_name_the_subject(chassis: Chassis) -> None:
    told = ingest(
        chassis,
        record(1, "Fabric.1.1.0.DownstreamLinkDropped", "Warning", "", "Switch1", "Port3"),
        record(2, "AcceleratorFabric.1.0.0.ConnectionDropped", "OK", "", "Switch1", "Port3", "0"),
        record(3, "AcceleratorFabric.1.0.0.RetryRateAboveCautionThreshold", "", "", "9", "5", "minute", "GPU3", "7"),
        record(4, "Fabric.1.1.0.DownstreamLinkDropped", "Warning", "", "Switch9", "Port3"),
        record(5, "Test.1.0.Dropped", "Warning", "", "Switch1", "Port3"),
        record(6, "Fabric.1.1.0.SwitchFailed", "", "", "Switch1"),
        record(7, "Fabric.1.1.0.PortFailed", "", "", "", "Port3"),
        record(8, "Fabric.1.1.0.PortFailed", "", "", "Switches/Switch1", "Port3"),
    )
    names = ["Port 3", "Port 3", "GPU 3", "falcon", "falcon", "Switch 1", "falcon", "Port 3"]
    assert [one.subject_name for one in told] == names


def test_each_counterpart_is_in_the_catalogue() -> None:
    assert [one.name for one in SAME_EVENTS.values() if one.name not in MESSAGE_CATALOGUE] == []
    assert [name for name in SAME_EVENTS if message_name(name) == name or name in MESSAGE_CATALOGUE] == []
