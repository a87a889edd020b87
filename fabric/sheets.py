"""Tables as CSV, streamed, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from fabric.selectors import ChassisView

# A cell that begins so is a formula to a spreadsheet (OWASP, CSV injection), to some with the wide signs of East Asia.
FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
SLOT_COLUMNS = (
    "chassis", "drawer", "slot", "state", "device", "kind", "manufacturer", "serial_number", "vendor_id", "device_id",
    "firmware", "host", "host_port", "link", "lanes", "generation", "below_capability", "errors", "tenant",
)  # fmt: skip


class _Echo:
    """A file that hands each line back."""

    @staticmethod
    def write(line: str) -> str:
        return line


def lines(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield the lines of a table."""
    writer = csv.writer(_Echo())
    yield writer.writerow(list(columns))
    for row in rows:
        yield writer.writerow([safe(cell) for cell in row])


def safe(cell: object) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    text = "" if cell is None else str(cell)
    begins = text.lstrip(" ").startswith(FORMULA_BEGINS)
    return f"'{text}" if begins and not isinstance(cell, int | float) else text


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
