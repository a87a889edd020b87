"""Attach and detach at services whose zones take any device, however many have it, and lie."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from accounts.models import User
from core.failpoints import Failpoint, set_failpoint_handler
from fabric.execution.services import execute
from fabric.inventory.models import Chassis, HostPort, Port
from fabric.operations.models import Operation
from fabric.operations.services import operation_request
from falconweb.testing import device_in, host_port_of
from tests.bmc.nonsense import ROOT, Asked, NonsenseServer, Reply, service_root
from tests.fabric.conftest import put_back

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def service() -> Iterator[NonsenseServer]:
    """A service at the address of falcon-1, whose zones have what is put into them, and whose links are all up."""
    chassis = put_back()
    link = {"LinkStatus": "LinkUp", "ActiveWidth": 16, "CurrentSpeedGbps": 512, "PortType": "DownstreamPort"}
    with NonsenseServer(
        {ROOT: service_root(), **dict.fromkeys(Port.objects.values_list("uri", flat=True), link)}
    ) as server:
        for row in HostPort.objects.all():
            zone_holds(server, row, row.endpoint_uri)
        Chassis.objects.filter(pk=chassis.pk).update(url=server.url, fingerprint="", username="")
        yield server


def zone_holds(server: NonsenseServer, port: HostPort, *members: str) -> None:
    ends = [{"@odata.id": uri} for uri in members]
    server.routes[port.uri] = {"@odata.id": port.uri, "Id": port.label, "Links": {"Endpoints": ends}}


def test_a_device_that_somebody_else_attached_at_the_same_moment_is_not_done(
    service: NonsenseServer, administrator: User
) -> None:
    chassis = Chassis.objects.get()
    device, target, other = (
        device_in(chassis, drawer=1, slot=7),
        host_port_of(chassis, "H1"),
        host_port_of(chassis, "H2"),
    )
    service.routes[device.uri] = {"@odata.id": device.uri, "SerialNumber": device.serial_number}

    def attached(asked: Asked) -> Reply:
        zone_holds(service, target, *(end["@odata.id"] for end in json.loads(asked.body)["Links"]["Endpoints"]))
        zone_holds(service, other, other.endpoint_uri, device.endpoint_uri)
        return Reply(200)

    service.routes[f"PATCH {target.uri}"] = attached
    operation = operation_request(person=administrator, device=device, target=target)
    execute(str(operation.pk), worker="test")
    ended = Operation.objects.get(pk=operation.pk)
    assert (ended.state, ended.error) == (
        "failed",
        f"The chassis does not show {device.name} at H1 alone: somebody else may have changed it.",
    )


def test_an_operation_ends_whatever_keeps_its_result_from_being_stored(
    service: NonsenseServer, administrator: User
) -> None:
    chassis = Chassis.objects.get()
    device, target = device_in(chassis, drawer=1, slot=7), host_port_of(chassis, "H1")
    service.routes[device.uri] = {"@odata.id": device.uri, "SerialNumber": device.serial_number}

    def attached(asked: Asked) -> Reply:
        zone_holds(service, target, *(end["@odata.id"] for end in json.loads(asked.body)["Links"]["Endpoints"]))
        return Reply(200)

    def fail(name: Failpoint, about: object) -> None:
        if name == "operation.mirrored":
            raise OverflowError

    service.routes[f"PATCH {target.uri}"] = attached
    operation = operation_request(person=administrator, device=device, target=target)
    set_failpoint_handler(fail)
    try:
        execute(str(operation.pk), worker="test")
    finally:
        set_failpoint_handler(None)
    operation.refresh_from_db()
    assert (operation.state, operation.error) == (
        "failed",
        "An error of the site stopped it; see the log of the worker.",
    )
