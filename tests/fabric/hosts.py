"""A host that tells of its cards what a test wants it to: the reports of an agent, without one that would answer."""

from __future__ import annotations

import time
from collections.abc import Collection

from fabric.agents.services import agent_register, report_store
from fabric.inventory.models import Device, Host
from hostwire.protocol import DeviceHolder, HostReport, PciDevice
from hostwire.signing import new_key, seal_report

MARIA = DeviceHolder(kind="process", what="/dev/nvidia0", pid=4711, command="train", owner="maria")
VICTOR = DeviceHolder(kind="process", what="/dev/nvidia1", pid=4712, command="secret", owner="victor")


class TellingHost:
    """A host whose agent is enrolled, and says what `tell` is told to say."""

    def __init__(self, name: str) -> None:
        self.host, self.key, self.number = Host.objects.get(name=name), new_key(), 0
        agent_register(host=self.host, key=self.key)

    def tell(
        self,
        holders: dict[Device, DeviceHolder] | None = None,
        *,
        silent: Collection[Device] = (),
        unseen: Collection[Device] = (),
        own: Collection[PciDevice] = (),
    ) -> None:
        """Report what is attached to it but the `unseen`, and cards of its `own`; the `silent` tell no serial."""
        devices = [one for one in Device.objects.filter(host_port__host=self.host) if one not in unseen]
        self.number += 1
        report = HostReport(
            host=self.host.identity, number=self.number, started=1.0, sent=time.time(), version="1",
            devices=(*(card(one, serial="" if one in silent else one.serial_number) for one in devices), *own),
            holders={card(device).address: (holder,) for device, holder in (holders or {}).items()},
        )  # fmt: skip
        report_store(seal_report(report, self.key))


def card(device: Device, *, serial: str = "", at: int = 0x40) -> PciDevice:
    """Return a device as its host shows it."""
    return PciDevice(
        address=f"0000:{at + device.pk % 64:02x}:00.0", vendor_id=device.vendor_id, device_id=device.device_id,
        subsystem_vendor_id=device.subsystem_vendor_id, subsystem_id=device.subsystem_id, serial=serial,
    )  # fmt: skip
