"""The fabric as a table; how tables become CSV is in accounts.sheets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from accounts.sheets import lines, safe
from fabric.shown import ChassisView

__all__ = ["SLOT_COLUMNS", "lines", "safe", "slot_rows"]

SLOT_COLUMNS = (
    "chassis", "drawer", "slot", "state", "device", "kind", "manufacturer", "serial_number", "vendor_id", "device_id",
    "firmware", "host", "host_port", "link", "lanes", "generation", "below_capability", "errors", "tenant",
)  # fmt: skip


def slot_rows(views: Iterable[ChassisView]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each slot that a person sees, masked as on the page."""
    for chassis in views:
        for drawer in chassis.drawers:
            for slot in drawer.slots:
                head = (chassis.name, drawer.name, slot.number, slot.state)
                device = slot.device
                if device is None:
                    yield (*head, *("" for _ in SLOT_COLUMNS[len(head) :]))
                    continue
                yield (
                    *head, device.name, device.kind, device.manufacturer, device.serial_number, device.vendor_id,
                    device.device_id, device.firmware_version, device.host_name, device.host_port_label,
                    device.link_status, device.lanes_in_use, device.pcie_type, device.downgraded, device.errors_total,
                    device.tenant_name or "free pool",
                )  # fmt: skip
