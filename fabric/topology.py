"""The topology picture: a pure, deterministic layered layout (hosts, host ports, switch chips, slots), in SVG units."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fabric.bmc.values import LANE_GBPS
from fabric.selectors import ChassisView, DeviceView, DrawerView, HostPortView, SlotView, SwitchView

WIDTH = 1120
SLOT_WIDTH, SLOT_HEIGHT, GAP, MARGIN = 124, 100, 12, 18
HEAD_WIDTH, HEAD_HEIGHT = 160, 64
HANDLE = 32  # at the narrowest a picture gets, still more than the 24 px that fingers need
SWITCH_WIDTH, SWITCH_HEIGHT = 250, 34
HEAD_Y, SWITCH_Y, SLOT_Y = 14, 140, 240
BARE_SLOT_Y = 66  # where there is neither host port nor switch above
DRAWER_GAP = 24  # between a drawer's slots and the next drawer
DRAWER_HEIGHT = SLOT_Y + SLOT_HEIGHT + DRAWER_GAP
EDGE = 4  # below the last box, for the widest of its strokes
NAME_WIDTH = 180  # kept for the drawer's name and mode
COLUMNS = 8
NAMES = {"gpu": "GPU", "nvme": "NVMe", "nic": "NIC", "custom": "Custom"}
MODES = {
    "StandardOneHost": "Standard, one host",
    "StandardTwoHosts": "Standard, two hosts",
    "Advanced": "Advanced",
    "Unknown": "Mode not reported",
}
WIDEST_GBPS = 256.0  # x16 Gen4, drawn widest
HALF_GAP = 1.5  # between the two half-links of a link


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

    @property
    def handle_x(self) -> int:
        """Where the handle is that picks the device up: in the upper right corner."""
        return self.x + SLOT_WIDTH - HANDLE


@dataclass(frozen=True)
class Head:
    """A host port and the host behind it."""

    port: HostPortView
    x: int
    y: int
    line: str
    label: str

    @property
    def middle(self) -> int:
        """The middle of the box."""
        return self.x + HEAD_WIDTH // 2


@dataclass(frozen=True)
class Chip:
    """A switch chip."""

    switch: SwitchView
    x: int
    y: int

    @property
    def middle(self) -> int:
        """The middle of the box."""
        return self.x + SWITCH_WIDTH // 2


@dataclass(frozen=True)
class HalfLink:
    """One direction of a link: width shows capacity, colour (set live) the load of `port`'s `direction`."""

    x1: float
    y1: float
    x2: float
    y2: float
    width: float
    state: str  # up, training, down, idle (nobody's), unknown (not told)
    port: int | None
    direction: str  # rx, tx: as the port counts
    node: str  # whose link: 'device-3', 'host-port-2'


@dataclass(frozen=True)
class DrawerPicture:
    """One drawer, with all coordinates relative to the picture."""

    drawer: DrawerView
    y: int
    mode: str
    heads: tuple[Head, ...]
    chips: tuple[Chip, ...]
    boxes: tuple[Box, ...]
    links: tuple[HalfLink, ...]


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
        rows = -(-len(drawer.slots) // COLUMNS)
        bare = 0 if picture.heads or picture.chips else SLOT_Y - BARE_SLOT_Y
        high = DRAWER_HEIGHT - bare + (rows - 1) * (SLOT_HEIGHT + GAP)
        y += high if rows else SWITCH_Y + SWITCH_HEIGHT + DRAWER_GAP
    return Picture(WIDTH, max(y - DRAWER_GAP + EDGE, 40), tuple(drawers))


def _drawer(chassis: ChassisView, drawer: DrawerView, y: int) -> DrawerPicture:
    chips = _chips(drawer, y)
    # What hangs on nothing belongs to the first part without a drawer.
    first = next((one for one in chassis.drawers if one.id is None), None)
    here = drawer.id is not None or drawer is first
    ports = [port for port in chassis.host_ports if here and port.drawer_id == drawer.id]
    heads = tuple(_head(port, index, len(ports), y) for index, port in enumerate(ports))
    links: list[HalfLink] = []
    for index, head in enumerate(heads):
        end = _chip_x(chips, index, len(heads))
        top = (head.middle, y + HEAD_Y + HEAD_HEIGHT)
        links += _link(
            top, (end, y + SWITCH_Y), head.port.max_speed_gbps, _state(head.port.link_status),
            head.port.port_id, f"host-port-{head.port.id}",
        )  # fmt: skip
    boxes = []
    # Boxes that hang on nothing stand right below the name.
    slot_y = SLOT_Y if heads or chips else BARE_SLOT_Y
    for index, slot in enumerate(drawer.slots):
        x = (index % COLUMNS) * (SLOT_WIDTH + GAP) + MARGIN
        top_y = y + slot_y + (index // COLUMNS) * (SLOT_HEIGHT + GAP)
        boxes.append(_box(drawer, slot, x, top_y))
        if slot.device is not None and (heads or chips):
            start = (_chip_x(chips, index % COLUMNS, min(COLUMNS, len(drawer.slots))), y + SWITCH_Y + SWITCH_HEIGHT)
            attached = slot.device.host_port_id is not None or slot.device.held_elsewhere
            state = _state(slot.device.link_status) if attached else "idle"
            links += _link(
                start, (x + SLOT_WIDTH // 2, top_y), _capacity(slot.device), state, slot.port_id,
                f"device-{slot.device.id}",
            )  # fmt: skip
    mode = MODES.get(drawer.mode, drawer.mode)
    return DrawerPicture(drawer, y, mode, heads, chips, tuple(boxes), tuple(links))


def _chips(drawer: DrawerView, y: int) -> tuple[Chip, ...]:
    spread = WIDTH // max(1, len(drawer.switches))
    return tuple(
        Chip(switch, index * spread + spread // 2 - SWITCH_WIDTH // 2, y + SWITCH_Y)
        for index, switch in enumerate(drawer.switches)
    )


def _chip_x(chips: tuple[Chip, ...], index: int, count: int) -> float:
    """Return where along the chips the link of the index-th of `count` neighbours begins, so that none cross."""
    if not chips:
        return WIDTH / 2
    chip = chips[min(len(chips) - 1, index * len(chips) // max(1, count))]
    share = -(-count // len(chips))
    inset = 16
    step = (SWITCH_WIDTH - 2 * inset) / max(1, share)
    return chip.x + inset + step * (index % share + 0.5)


def _head(port: HostPortView, index: int, count: int, y: int) -> Head:
    # In the middle, above the chips, as long as the drawer's name has its place.
    spread = min(max((WIDTH - 2 * NAME_WIDTH) // count, HEAD_WIDTH + GAP), (WIDTH - NAME_WIDTH) // count)
    left = max(NAME_WIDTH, (WIDTH - count * spread) // 2)
    width = f"x{port.active_width}" if port.active_width else "down" if port.link_status else ""
    devices = f"{len(port.device_ids)} device{'' if len(port.device_ids) == 1 else 's'}"
    short = "" if port.downgraded else devices
    return Head(
        port,
        left + index * spread + spread // 2 - HEAD_WIDTH // 2,
        y + HEAD_Y,
        " · ".join(word for word in (port.label, f"▼ {port.downgraded}" if port.downgraded else width, short) if word),
        f"Host {port.host_name or 'not cabled'}, host port {port.label}, {devices} attached, "
        f"link {port.downgraded or width or 'not given'}",
    )


def _link(  # noqa: PLR0917 - two ends and what runs between them
    start: tuple[float, float],
    end: tuple[float, float],
    capacity: float | None,
    state: str,
    port: int | None,
    node: str,
) -> list[HalfLink]:
    width = round(1.5 + 3.0 * math.sqrt(min(capacity or 32.0, WIDEST_GBPS) / WIDEST_GBPS), 2)
    offset = round(width / 2 + HALF_GAP / 2, 2)
    return [
        HalfLink(
            round(start[0] + side * offset, 2), start[1], round(end[0] + side * offset, 2), end[1], width, state,
            port, direction, node,
        )
        for side, direction in ((-1, "tx"), (1, "rx"))
    ]  # fmt: skip


def _capacity(device: DeviceView) -> float | None:
    """Return what the device's link could carry one way, in Gb/s."""
    lane = LANE_GBPS.get(device.max_pcie_type)
    return lane * device.max_lanes if lane and device.max_lanes else None


def _state(link_status: str) -> str:
    if not link_status:
        return "unknown"
    return "up" if link_status == "LinkUp" else "training" if link_status in {"Training", "Starting"} else "down"


def _box(drawer: DrawerView, slot: SlotView, x: int, y: int) -> Box:
    place = drawer.name if slot.number is None else f"{drawer.name} slot {slot.number}"
    if slot.state == "empty":
        return Box(slot, x, y, f"{slot.number}", "empty", "", f"{place}, empty")
    if slot.device is None:
        return Box(slot, x, y, f"{slot.number}", "in use", "", f"{place}, in use by another tenant")
    device = slot.device
    kind = NAMES.get(device.kind, device.kind)
    where = " · ".join(word for word in (device.host_name, device.host_port_label) if word) or "not attached"
    if device.held_elsewhere:
        where = "others' host"
    if slot.state == "missing":
        where = "missing"
    generation = device.pcie_type.replace("Gen", "Gen ")
    width = f"x{device.lanes_in_use} {generation}" if device.lanes_in_use else "no link"
    label = f"{kind} {device.name}, {place}, {where}, {device.downgraded or width}"
    title = kind if slot.number is None else f"{slot.number} · {kind}"
    # Below in both width and generation is too long for the box; the label says it all.
    detail = width if "," in device.downgraded else device.downgraded or width
    return Box(slot, x, y, title, where, detail, label)
