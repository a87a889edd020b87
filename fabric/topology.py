"""The topology picture: a pure, deterministic layered layout (hosts, host ports, switch chips, slots), in SVG units."""

from __future__ import annotations

from dataclasses import dataclass

from fabric.selectors import ChassisView, DrawerView, HostPortView, SlotView

WIDTH = 1120
SLOT_WIDTH, SLOT_HEIGHT, GAP = 124, 72, 12
HOST_Y, PORT_Y, SWITCH_Y, SLOT_Y = 8, 84, 168, 244
DRAWER_HEIGHT = 344
COLUMNS = 8
NAMES = {"gpu": "GPU", "nvme": "NVMe", "nic": "NIC", "custom": "Custom"}


@dataclass(frozen=True)
class Box:
    """A slot with its place and words."""

    slot: SlotView
    x: int
    y: int
    title: str
    line: str
    detail: str
    label: str  # read aloud

    @property
    def text_x(self) -> int:
        """Where the words begin."""
        return self.x + 10


@dataclass(frozen=True)
class Head:
    """A host port and the host above it."""

    port: HostPortView
    x: int
    y: int

    @property
    def middle(self) -> int:
        """The middle of the box."""
        return self.x + 70


@dataclass(frozen=True)
class Line:
    """A link between two boxes."""

    x1: int
    y1: int
    x2: int
    y2: int
    state: str


@dataclass(frozen=True)
class DrawerPicture:
    """One drawer, with all coordinates relative to the picture."""

    drawer: DrawerView
    y: int
    heads: tuple[Head, ...]
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]

    @property
    def switch_y(self) -> int:
        """Where the switch chip is."""
        return self.y + SWITCH_Y


@dataclass(frozen=True)
class Picture:
    """A chassis as a picture; the same view gives the same picture."""

    width: int
    height: int
    drawers: tuple[DrawerPicture, ...]


def lay_out(chassis: ChassisView) -> Picture:
    """Place everything of a chassis."""
    drawers = []
    y = 0
    for drawer in chassis.drawers:
        picture = _drawer(chassis, drawer, y)
        drawers.append(picture)
        rows = max(1, -(-len(drawer.slots) // COLUMNS))
        y += DRAWER_HEIGHT + (rows - 1) * (SLOT_HEIGHT + GAP)
    return Picture(WIDTH, max(y, 40), tuple(drawers))


def _drawer(chassis: ChassisView, drawer: DrawerView, y: int) -> DrawerPicture:
    ports = [port for port in chassis.host_ports if port.drawer_id == drawer.id]
    spread = WIDTH // max(1, len(ports))
    heads = tuple(Head(port, index * spread + spread // 2 - 70, y) for index, port in enumerate(ports))
    lines = [
        Line(head.middle, y + PORT_Y + 44, WIDTH // 2, y + SWITCH_Y, _state(head.port.link_status)) for head in heads
    ]
    boxes = []
    for index, slot in enumerate(drawer.slots):
        x = (index % COLUMNS) * (SLOT_WIDTH + GAP) + 18
        top = y + SLOT_Y + (index // COLUMNS) * (SLOT_HEIGHT + GAP)
        boxes.append(_box(drawer, slot, x, top))
        if slot.device is not None:
            attached = slot.device.host_port_id is not None
            state = _state(slot.device.link_status) if attached else "idle"
            lines.append(Line(x + SLOT_WIDTH // 2, top, WIDTH // 2, y + SWITCH_Y + 36, state))
    return DrawerPicture(drawer, y, heads, tuple(boxes), tuple(lines))


def _state(link_status: str) -> str:
    return "up" if link_status == "LinkUp" else "training" if link_status in {"Training", "Starting"} else "down"


def _box(drawer: DrawerView, slot: SlotView, x: int, y: int) -> Box:
    place = f"{drawer.name} slot {slot.number}"
    if slot.state == "empty":
        return Box(slot, x, y, f"Slot {slot.number}", "empty", "", f"{place}, empty")
    if slot.device is None:
        return Box(slot, x, y, f"Slot {slot.number}", "in use", "", f"{place}, in use")
    device = slot.device
    kind = NAMES.get(device.kind, device.kind)
    where = f"{device.host_name} · {device.host_port_label}" if device.host_port_label else "not attached"
    if slot.state == "missing":
        where = "missing"
    width = f"x{device.lanes_in_use} {device.pcie_type}" if device.lanes_in_use else device.pcie_type
    label = f"{kind} {device.name}, {place}, {where}, {width}"
    return Box(slot, x, y, f"{slot.number} · {kind}", where, device.downgraded or width, label)
