"""The fabric as a user sees it: values for pages and the API, limited to the visible parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from core.language import _, english
from fabric.bmc.chassis_profiles import ChassisProfile, profile_of
from fabric.operations.rules import DeviceSnapshot

SlotState = Literal["empty", "in_use", "in_pool", "occupied", "missing"]


@dataclass(frozen=True, kw_only=True)
class DeviceView:
    """A device that the user may see."""

    id: int
    name: str
    kind: str
    kind_label: str
    model: str
    manufacturer: str
    serial_number: str
    vendor_id: str
    device_id: str
    firmware_version: str
    pcie_type: str
    max_pcie_type: str
    lanes_in_use: int | None
    max_lanes: int | None
    link_status: str
    downgraded: str  # 'x8 of x16', 'Gen2 of Gen3', '' when the link runs at its capability
    host_port_id: int | None
    host_name: str
    host_port_label: str
    held_elsewhere: bool  # attached to a host port that the user may not see: only its owner can move it
    tenant_name: str
    missing_since: datetime | None
    drift: str  # the approved state where it differs from the found one, in words; '' where it does not
    operation_summary: str  # of the open operation on it, '' for none
    port_uri: str
    errors_total: int

    @property
    def is_movable(self) -> bool:
        """Whether the user may attach it elsewhere, where they may compose its chassis at all."""
        return self.missing_since is None and not self.operation_summary and not self.held_elsewhere


@dataclass(frozen=True, kw_only=True)
class SlotView:
    """A slot; without id, device and port where its device is not visible: another tenant's, or unassigned.

    A device outside slots, as some services have, is shown in one without number.
    """

    id: int | None
    number: int | None
    state: SlotState
    device: DeviceView | None = None
    port_id: int | None = None
    name: str = ""  # where it may be shown

    @property
    def label(self) -> str:
        """The number, else the name, as of slots that share a number; '' outside slots."""
        return "" if self.number is None else f"{self.number}" if self.number else self.name or "–"

    @property
    def title(self) -> str:
        """The device with its slot, as in dialogs: 'GPU 3, slot 3'."""
        name = self.device.name if self.device else ""
        return _("{name}, slot {number}", name=name, number=self.label) if self.label else name


@dataclass(frozen=True, kw_only=True)
class DrawerView:
    """A drawer; `id` is None for the slots of a service without drawers."""

    id: int | None
    name: str
    number: int
    mode: str
    switches: tuple[str, ...]  # models of the chips, else their names
    slots: tuple[SlotView, ...]
    drift: str = ""  # the approved mode where it differs


@dataclass(frozen=True, kw_only=True)
class HostPortView:
    """A host port that the user may see, and the visible devices attached to it."""

    id: int
    label: str
    number: int
    drawer_id: int | None
    host_id: int | None
    host_name: str
    port_id: int | None
    width: int | None
    active_width: int | None
    speed_gbps: float | None
    max_speed_gbps: float | None
    link_status: str
    downgraded: str  # 'x8 of x16', '' where the link runs at its capability
    tenant_name: str
    device_ids: tuple[int, ...] = field(default=())
    drift: str = ""  # the approved host of its cable, where it differs


@dataclass(frozen=True, kw_only=True)
class ChassisView:
    """A chassis with all parts that the user may see."""

    id: int
    name: str
    model: str
    serial_number: str
    firmware_version: str
    health: str
    dialect: str
    monitored_only: bool
    enabled: bool
    last_error: str
    refused_at: datetime | None  # for administrators: since when the stored password is refused
    next_sign_in_at: datetime | None
    inventory_at: datetime | None
    drawers: tuple[DrawerView, ...]
    host_ports: tuple[HostPortView, ...]
    may_compose: bool
    progress: str = ""  # of a walk that goes on, in words
    limits: tuple[str, ...] = ()  # what is left out of it, in sentences


@dataclass(frozen=True, kw_only=True)
class ModeChoice:
    """A mode that a drawer is not in, with what blocks it now, and which drafted attachments it would break."""

    mode: str
    name: str
    about: str
    reason: str
    broken: list[tuple[DeviceSnapshot, str]]


SLOT_COLUMNS = (
    "chassis", "drawer", "slot", "state", "device", "kind", "manufacturer", "serial_number", "vendor_id", "device_id",
    "firmware", "host", "host_port", "link", "lanes", "generation", "below_capability", "errors", "tenant",
)  # fmt: skip


def slot_table_rows(views: Iterable[ChassisView]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each slot that a user sees, masked as on the page."""
    for chassis in views:
        for drawer in chassis.drawers:
            for slot in drawer.slots:
                head = (chassis.name, english(drawer.name), slot.number, slot.state)
                device = slot.device
                if device is None:
                    yield (*head, *("" for _ in SLOT_COLUMNS[len(head) :]))
                    continue
                yield (
                    *head, device.name, device.kind, device.manufacturer, device.serial_number, device.vendor_id,
                    device.device_id, device.firmware_version, device.host_name, device.host_port_label,
                    device.link_status, device.lanes_in_use, device.pcie_type, english(device.downgraded),
                    device.errors_total, device.tenant_name or "unassigned",
                )  # fmt: skip


LINE_HEIGHT = 24  # of the view box of a sparkline; a step to the right is 10


def sparkline_path(values: Sequence[float | None]) -> str:
    """Return values as the path of a line from 0 to the highest, with a gap where there is none; '' of none."""
    highest = max((one for one in values if one is not None), default=0.0) or 1.0
    points, before = [], None
    for place, value in enumerate(values):
        if value is not None:
            y = (LINE_HEIGHT - 1) - (LINE_HEIGHT - 2) * value / highest
            # A lone point between gaps is a dot.
            points.append(f"{'M' if before is None else 'L'}{place * 10} {y:.1f}{'h.1' if before is None else ''}")
        before = value
    return "".join(points)


def rate_label(rate: float) -> str:
    """Return a rate (B/s) with its unit: '12.40 GB/s', '1.20 TB/s'."""
    return f"{rate / 1e12:.2f} TB/s" if rate >= 1e12 else f"{rate / 1e9:.2f} GB/s"


def limits_label(manufacturer: str, model: str) -> str:
    """Return which limits of drawers and modes are known of a model of chassis."""
    known = profile_of(manufacturer, model)
    if not known.key:
        return _("not known of this model: the BMC decides")
    if known == ChassisProfile(key=known.key, name=known.name):
        return _("none published of {name}: the BMC decides", name=known.name)
    return _("as published of {name}", name=known.name)
