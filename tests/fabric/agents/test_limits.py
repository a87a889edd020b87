"""What a plan warns of that a host may not be able to hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.agents.limits import HostArrivals, attachment_warnings, host_warnings
from fabric.agents.models import HostAgent
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Slot
from fabric.operations.models import Plan
from hostwire.protocol import HostLimits, HostReport, PciDevice, RootPort

GIB = 2**30
DRIVERS = {"nvidia": "550.90.07", "nvme": "1.0", "mlx5_core": ""}
USUAL = HostLimits(drivers=DRIVERS)
PORT = RootPort("0000:00:02.0", 0x40, 0x4F, 4, 256 * GIB)


def gpu(pk: int | None = 1, **more: Any) -> Device:
    return Device(
        **{"pk": pk, "name": f"GPU {pk}", "kind": "gpu", "vendor_id": "0x10DE", "device_id": "0x1DB4", **more}
    )


def card(address: str = "0000:41:00.0", **more: Any) -> PciDevice:
    return PciDevice(address, "0x10de", "0x1db4", class_code="0x030200", **{"memory_window": 32 * GIB, **more})


def report(*devices: PciDevice, limits: HostLimits | None = USUAL) -> HostReport:
    return HostReport(host="h", number=1, started=1.0, sent=2.0, version="1", devices=devices, limits=limits)


GAINED = HostArrivals(name="node-a", report=report(), devices=[gpu()], nvidia_gpus=1)


@pytest.mark.parametrize(
    ("host", "says"),
    [
        (GAINED, []),
        (replace(GAINED, nvidia_gpus=9), []),
        (replace(GAINED, nvidia_gpus=10), ["would have 10 NVIDIA GPUs: CUDA connects each with 8 others"]),
        (replace(GAINED, nvidia_gpus=33), ["would have 33 NVIDIA GPUs: their driver takes 32"]),
        # An agent of before reports nothing of it.
        (replace(GAINED, nvidia_gpus=33, report=report(limits=None)), []),
        # Of a drive, the number of GPUs is no concern.
        (replace(GAINED, nvidia_gpus=33, devices=[gpu(kind="nvme")]), []),
        (replace(GAINED, nvidia_gpus=2, report=report(card(iommu="DMA-FQ"))), ["(IOMMU: DMA-FQ)"]),
        (replace(GAINED, nvidia_gpus=2, report=report(card(iommu="identity"))), []),
        (replace(GAINED, nvidia_gpus=1, report=report(card(iommu="DMA-FQ"))), []),
        (replace(GAINED, report=report(card(driver="nouveau"))), ["nouveau has NVIDIA GPUs"]),
        (
            replace(GAINED, report=report(limits=HostLimits(drivers={"nvme": ""})), devices=[gpu(1), gpu(2)]),
            ["no driver nvidia: it cannot use GPU 1 and GPU 2"],
        ),
        (replace(GAINED, report=report(limits=HostLimits(drivers=None))), []),
        (
            replace(
                GAINED, report=report(limits=HostLimits(drivers={})),
                devices=[
                    gpu(name="V100"), gpu(name="MI210", vendor_id="1002"),
                    gpu(name="P4510", kind="nvme", vendor_id="8086"),
                    gpu(name="CX-6", kind="nic", vendor_id="15b3", device_id="101b"),
                    gpu(name="CX-3", kind="nic", vendor_id="15b3", device_id="1003"), gpu(name="FPGA", kind="custom"),
                ],
            ),
            [
                "amdgpu: it cannot use MI210.", "mlx5_core: it cannot use CX-6.", "nvidia: it cannot use V100.",
                "nvme: it cannot use P4510.",
            ],
        ),
        (replace(GAINED, report=report(card(unassigned=2**25))), ["found no addresses"]),
        (replace(GAINED, root_ports={1: PORT}, memory={1: 32 * GIB}), []),
        (
            replace(
                GAINED, report=report(*(card(f"0000:4{place}:00.0") for place in range(8)), card("0001:42:00.0")),
                root_ports={1: PORT}, memory={1: 32 * GIB},
            ),
            ["0000:00:02.0 of node-a addresses for 0 GiB of memory are free; the devices need 32 GiB"],
        ),
        (
            replace(
                GAINED, devices=[gpu(1), gpu(2)], memory={1: 32 * GIB},
                root_ports=dict.fromkeys((1, 2), msgspec.structs.replace(PORT, used_buses=15, window=0)),
            ),
            ["1 bus number is free, for 2 more devices"],
        ),
    ],
)  # fmt: skip
def test_a_host_is_warned_of_what_its_agent_reports(host: HostArrivals, says: list[str]) -> None:
    found = list(host_warnings(host))
    assert len(found) == len(says), found
    assert all(words in sentence for words, sentence in zip(says, found, strict=True)), found


@pytest.fixture
def twelve(db: None) -> list[Device]:
    """Twelve GPUs of a drawer, nine of them at H1 of node-a, which has reported them."""
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1")
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1)
    host = Host.objects.create(name="node-a", identity="node-a")
    port = HostPort.objects.create(
        chassis=chassis, drawer=drawer, uri="/h1", name="H1", label="H1", endpoint_uri="/e1", host=host
    )
    found = []
    for number in range(1, 13):
        slot = Slot.objects.create(chassis=chassis, drawer=drawer, uri=f"/s{number}", name=f"{number}", number=number)
        found.append(
            gpu(
                pk=None, name=f"GPU {number}", chassis=chassis, slot=slot, uri=f"/g{number}",
                serial_number=f"S{number}",
                endpoint_uri=f"/e/{number}", host_port=port if number > 3 else None,
            )
        )  # fmt: skip
        found[-1].save()
    seen = [card(f"0000:{0x40 + number:02x}:00.0", serial=f"S{number}") for number in range(4, 13)]
    window = msgspec.structs.replace(PORT, window=330 * GIB)
    limits = HostLimits(drivers=DRIVERS, root_ports=(window,))
    HostAgent.objects.create(
        host=host, reported_at=timezone.now(), report=msgspec.to_builtins(report(*seen, limits=limits))
    )
    return found


def test_what_would_be_attached_is_counted_with_what_is_there(twelve: list[Device]) -> None:
    boss = User.objects.create_superuser("ada", password="a-long-password-1")
    port = HostPort.objects.get().pk
    ten, eleven, twelfth = (device.pk for device in twelve[:3])
    assert attachment_warnings(boss, {ten: None}) == ()
    peers = "node-a would have {} NVIDIA GPUs: CUDA connects each with 8 others"
    (only,) = attachment_warnings(boss, {ten: port})
    assert only.startswith(peers.format(10))
    # One goes, and one stays where it is.
    assert attachment_warnings(boss, {ten: port, twelve[3].pk: None, twelve[4].pk: port}) == ()
    # Of the addresses below the port, nine times 32 GiB of 330 are used.
    most, addresses = attachment_warnings(boss, {ten: port, eleven: port, twelfth: port})
    assert most.startswith(peers.format(12))
    assert "for 42 GiB of memory are free; the devices need 96 GiB" in addresses
    HostAgent.objects.update(reported_at=None)
    assert attachment_warnings(boss, {ten: port}) == ()


def test_who_sees_a_part_of_a_host_learns_no_number(twelve: list[Device]) -> None:
    tenant = Tenant.objects.create(name="Vision")
    bob = User.objects.create_user("bob", password="a-long-password-1", role="user", tenant=tenant)
    port = HostPort.objects.get()
    HostPort.objects.update(tenant=tenant)
    Device.objects.filter(pk=twelve[0].pk).update(tenant=tenant)
    wanted = {twelve[0].pk: port.pk}
    assert "10 NVIDIA GPUs" in attachment_warnings(bob, wanted)[0]
    HostPort.objects.create(chassis=port.chassis, uri="/h2", name="H2", label="H2", endpoint_uri="/e2", host=port.host)
    assert attachment_warnings(bob, wanted) == ("node-a may not be able to hold these devices. Ask an administrator.",)


def test_a_draft_says_so_on_its_page_in_the_dialog_and_by_the_api(twelve: list[Device]) -> None:
    boss = User.objects.create_superuser("ada", password="a-long-password-1")
    client = Client()
    client.force_login(boss)
    device, port = twelve[0].pk, HostPort.objects.get().pk
    plan = Plan.objects.create(title="One more", requested_by=boss, wanted={"attachments": {str(device): port}})
    says = "node-a would have 10 NVIDIA GPUs"
    (warning,) = client.get(f"/api/v1/plans/{plan.pk}/").json()["warnings"]
    assert warning.startswith(says)
    page = client.get(f"/plans/{plan.pk}/").content.decode()
    assert "The host may not hold all of it." in page
    assert says in page
    Chassis.objects.update(dialect="zone_patch")
    Drawer.objects.update(mode="Advanced")
    dialog = client.get("/compose/", {"change": f"{device}:{port}:"})
    assert says in dialog.content.decode()
    Plan.objects.update(state="done")
    assert client.get(f"/api/v1/plans/{plan.pk}/").json()["warnings"] == []


@pytest.mark.parametrize("address", ["", "x", "0000", "0000:zz:00.0", "0000::00.0", "0000:²:0"])
def test_what_an_agent_sends_as_an_address_breaks_nothing(address: str) -> None:
    host = replace(GAINED, report=report(card(address)), root_ports={1: PORT}, memory={1: GIB})
    assert list(host_warnings(host)) == []
