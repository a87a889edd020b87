"""The topology picture: a pure, deterministic layered layout (hosts, host ports, switch chips, slots), in SVG units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fabric.bmc.values import LANE_GBPS
from fabric.operations.rules import MODE_VALUE_LABELS
from fabric.topology.presentation import ChassisView, DeviceView, DrawerView, HostPortView, SlotView
from fabric.topology.problems import DRIFTED, LINK_WORDS, Status, StatusBoard

WIDTH = 1120
SLOT_WIDTH, SLOT_HEIGHT, GAP, MARGIN = 124, 100, 12, 18
HEAD_WIDTH, HEAD_HEIGHT = 160, 64
SWITCH_WIDTH, SWITCH_HEIGHT = 250, 34
HEAD_Y, SWITCH_Y, SLOT_Y = 14, 140, 240
BARE_SLOT_Y = 66  # of slots without a host port or switch above
DRAWER_GAP = 24  # between a drawer's slots and the next drawer
DRAWER_HEIGHT = SLOT_Y + SLOT_HEIGHT + DRAWER_GAP
BOTTOM_MARGIN = 4  # below the last box, for the widest of its strokes
NAME_WIDTH = 180  # reserved for the drawer's name and mode
COLUMNS = 8
KIND_NAMES = {"gpu": "GPU", "nvme": "NVMe", "nic": "NIC", "custom": "Custom"}
WIDEST_GBPS = 256.0  # x16 Gen4, drawn widest
HALF_GAP = 1.5  # between the two half-links of a link
MARK_SIZE = 28  # in the narrowest picture still 24 px
MARK_GAP = 6  # between a mark on a link and the box at the link's end


@dataclass(frozen=True, kw_only=True)
class DraftMarks:
    """The changes of a draft, drawn beside the present state: by ids; a target None is no host."""

    targets: Mapping[int, int | None] = field(default_factory=dict)  # of devices: host ports
    modes: Mapping[int, str] = field(default_factory=dict)  # of drawers
    cables: Mapping[int, str] = field(default_factory=dict)  # of host ports: the name of a host

    def count_of(self, port: HostPortView) -> int:
        """Return how many devices a host port would have."""
        kept = [device for device in port.device_ids if self.targets.get(device, port.id) == port.id]
        come = [device for device, to in self.targets.items() if to == port.id and device not in port.device_ids]
        return len(kept) + len(come)


NO_DRAFT_MARKS = DraftMarks()
NO_STATUS = StatusBoard((), {})


@dataclass(frozen=True)
class SlotBox:
    """A slot with its position and texts."""

    slot: SlotView
    x: int
    y: int
    title: str
    line: str
    detail: str
    label: str  # for screen readers
    planned: str = ""  # where a draft puts the device: 'node-b · H2'
    status: Status | None = None


@dataclass(frozen=True)
class HostPortBox:
    """A host port and the host behind it."""

    port: HostPortView
    x: int
    y: int
    line: str
    label: str
    planned: str = ""  # the host that a draft has it cabled to
    is_marked: bool = False  # a draft changes its cable, or its attachments
    status: Status | None = None


@dataclass(frozen=True)
class SwitchBox:
    """A switch chip."""

    title: str
    x: int
    y: int


@dataclass(frozen=True)
class HalfLink:
    """One direction of a link: width shows capacity, colour (set live) the load of `port`'s `direction`."""

    x1: float
    y1: float
    x2: float
    y2: float
    width: float
    state: str  # up, training, down, idle (unused), unknown (not reported)
    port: int | None
    direction: str  # rx, tx: from the port's side
    node: str  # the owner of the link: 'device-3', 'host-port-2'


@dataclass(frozen=True)
class LinkMark:
    """The position of a mark on a link: the middle of a square of MARK_SIZE units."""

    port: int
    x: int
    y: int


@dataclass(frozen=True)
class DrawerPicture:
    """One drawer, with all coordinates relative to the picture."""

    drawer: DrawerView
    y: int
    mode: str
    heads: tuple[HostPortBox, ...]
    chips: tuple[SwitchBox, ...]
    boxes: tuple[SlotBox, ...]
    links: tuple[HalfLink, ...]
    spots: tuple[LinkMark, ...] = ()
    planned_mode: str = ""
    status: Status | None = None

    @property
    def label(self) -> str:
        """What a screen reader says of it."""
        return f"{self.drawer.name}{_status_label(self.status, '')}"


@dataclass(frozen=True)
class ChassisPicture:
    """A chassis as a picture; the same view always gives the same picture."""

    width: int
    height: int
    drawers: tuple[DrawerPicture, ...]


def planned_locations(chassis: ChassisView, marks: DraftMarks) -> dict[int, str]:
    """Return where a draft attaches devices of a chassis, in words: 'node-b · H2', 'no host'; others are left out."""
    places = {port.id: " · ".join(word for word in (port.host_name, port.label) if word) for port in chassis.host_ports}
    devices = (slot.device for drawer in chassis.drawers for slot in drawer.slots if slot.device is not None)
    return {
        device.id: "no host" if target is None else places.get(target, "another host")
        for device in devices
        if device.id in marks.targets and (target := marks.targets[device.id]) != device.host_port_id
    }


def layout_chassis(
    chassis: ChassisView, marks: DraftMarks = NO_DRAFT_MARKS, board: StatusBoard = NO_STATUS
) -> ChassisPicture:
    """Return the positions of everything in a chassis, with the changes of a draft and the status of each thing."""
    drawers = []
    y = 0
    for drawer in chassis.drawers:
        picture = _drawer(chassis, drawer, y, marks, board)
        drawers.append(picture)
        rows = -(-len(drawer.slots) // COLUMNS)
        bare = 0 if picture.heads or picture.chips else SLOT_Y - BARE_SLOT_Y
        high = DRAWER_HEIGHT - bare + (rows - 1) * (SLOT_HEIGHT + GAP)
        y += high if rows else SWITCH_Y + SWITCH_HEIGHT + DRAWER_GAP
    return ChassisPicture(WIDTH, max(y - DRAWER_GAP + BOTTOM_MARGIN, 40), tuple(drawers))


def _drawer(chassis: ChassisView, drawer: DrawerView, y: int, marks: DraftMarks, board: StatusBoard) -> DrawerPicture:
    chips = _switch_boxes(drawer, y)
    # Unconnected parts belong to the first part without a drawer.
    first = next((one for one in chassis.drawers if one.id is None), None)
    here = drawer.id is not None or drawer is first
    ports = [port for port in chassis.host_ports if here and port.drawer_id == drawer.id]
    heads = tuple(_host_port_box(port, (index, len(ports), y), marks, board) for index, port in enumerate(ports))
    planned = planned_locations(chassis, marks)
    links: list[HalfLink] = []
    spots: list[LinkMark] = []
    for index, head in enumerate(heads):
        end = _switch_x(chips, index, len(heads))
        top = (head.x + HEAD_WIDTH // 2, y + HEAD_Y + HEAD_HEIGHT)
        links += _link(
            top, (end, y + SWITCH_Y), head.port.max_speed_gbps, _state(head.port.link_status),
            head.port.port_id, f"host-port-{head.port.id}",
        )  # fmt: skip
        spots += _link_marks(head.port.port_id, top, (end, y + SWITCH_Y))
    boxes = []
    # Unconnected boxes are right below the name.
    slot_y = SLOT_Y if heads or chips else BARE_SLOT_Y
    for index, slot in enumerate(drawer.slots):
        x = (index % COLUMNS) * (SLOT_WIDTH + GAP) + MARGIN
        top_y = y + slot_y + (index // COLUMNS) * (SLOT_HEIGHT + GAP)
        boxes.append(_slot_box(drawer, slot, (x, top_y), planned, board))
        if slot.device is not None and (heads or chips):
            start = (_switch_x(chips, index % COLUMNS, min(COLUMNS, len(drawer.slots))), y + SWITCH_Y + SWITCH_HEIGHT)
            attached = slot.device.host_port_id is not None or slot.device.held_elsewhere
            state = _state(slot.device.link_status) if attached else "idle"
            links += _link(
                start, (x + SLOT_WIDTH // 2, top_y), _capacity(slot.device), state, slot.port_id,
                f"device-{slot.device.id}",
            )  # fmt: skip
            # A link to a lower row runs behind boxes: its end has room for a mark.
            spots += _link_marks(slot.port_id, (x + SLOT_WIDTH // 2, top_y), start if index < COLUMNS else None)
    mode = MODE_VALUE_LABELS.get(drawer.mode, drawer.mode)
    wanted = marks.modes.get(drawer.id or 0, drawer.mode)
    planned_mode = MODE_VALUE_LABELS.get(wanted, wanted) if wanted != drawer.mode else ""
    status = board.of("drawer", drawer.id)
    return DrawerPicture(drawer, y, mode, heads, chips, tuple(boxes), tuple(links), tuple(spots), planned_mode, status)


def _switch_boxes(drawer: DrawerView, y: int) -> tuple[SwitchBox, ...]:
    spread = WIDTH // max(1, len(drawer.switches))
    return tuple(
        SwitchBox(title, index * spread + spread // 2 - SWITCH_WIDTH // 2, y + SWITCH_Y)
        for index, title in enumerate(drawer.switches)
    )


def _switch_x(chips: tuple[SwitchBox, ...], index: int, count: int) -> float:
    """Return the x of the link of the index-th of `count` neighbours on the chips, so that no links cross."""
    if not chips:
        return WIDTH / 2
    chip = chips[min(len(chips) - 1, index * len(chips) // max(1, count))]
    share = -(-count // len(chips))
    inset = 16
    step = (SWITCH_WIDTH - 2 * inset) / max(1, share)
    return chip.x + inset + step * (index % share + 0.5)


def _host_port_box(
    port: HostPortView, where: tuple[int, int, int], marks: DraftMarks, board: StatusBoard
) -> HostPortBox:
    index, count, y = where
    then = marks.count_of(port)
    # Centered above the chips, unless that would cover the drawer's name.
    spread = min(max((WIDTH - 2 * NAME_WIDTH) // count, HEAD_WIDTH + GAP), (WIDTH - NAME_WIDTH) // count)
    left = max(NAME_WIDTH, (WIDTH - count * spread) // 2)
    width = f"x{port.active_width}" if port.active_width else "down" if port.link_status else ""
    devices = f"{len(port.device_ids)} device{'' if len(port.device_ids) == 1 else 's'}"
    comes = then != len(port.device_ids)
    short = f"{len(port.device_ids)} → {then}" if comes else "" if port.downgraded else devices
    cabled = marks.cables.get(port.id, "")
    draft = f", {then} with your draft" if comes else ""
    draft += f", cabled to {cabled} with your draft" if cabled else ""
    drift = f", drifted: approved is {port.drift}" if port.drift else ""
    status = board.of("host-port", port.id)
    return HostPortBox(
        port,
        left + index * spread + spread // 2 - HEAD_WIDTH // 2,
        y + HEAD_Y,
        " · ".join(word for word in (port.label, f"▼ {port.downgraded}" if port.downgraded else width, short) if word),
        f"Host {port.host_name or 'not cabled'}, host port {port.label}, {devices} attached, "
        f"link {port.downgraded or width or 'not given'}{drift}{_status_label(status, drift)}{draft}",
        planned=cabled,
        is_marked=comes or bool(cabled),
        status=status,
    )


def _status_label(status: Status | None, said: str) -> str:
    """Return what a screen reader says of a status, after what it has said of the thing."""
    if status is None:
        return ""
    more = [word for word in status.words.split(", ") if word not in said]
    return f", {status.level.css}{': ' if more else ''}{', '.join(more)}"


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


def _link_marks(port: int | None, end: tuple[float, float], other: tuple[float, float] | None) -> list[LinkMark]:
    """Return the position of a mark on a link: near its box on the way to the other end; without one, at the end."""
    if port is None:
        return []
    if other is None:
        return [LinkMark(port, round(end[0]), round(end[1]))]
    share = (MARK_SIZE / 2 + MARK_GAP) / abs(other[1] - end[1])
    return [LinkMark(port, round(end[0] + share * (other[0] - end[0])), round(end[1] + share * (other[1] - end[1])))]


def _capacity(device: DeviceView) -> float | None:
    """Return the capability of the device's link one way, in Gb/s."""
    lane = LANE_GBPS.get(device.max_pcie_type)
    return lane * device.max_lanes if lane and device.max_lanes else None


def _state(link_status: str) -> str:
    if not link_status:
        return "unknown"
    return "up" if link_status == "LinkUp" else "training" if link_status in {"Training", "Starting"} else "down"


def _slot_box(
    drawer: DrawerView, slot: SlotView, where_to: tuple[int, int], planned: Mapping[int, str], board: StatusBoard
) -> SlotBox:
    x, y = where_to
    place = drawer.name if slot.number is None else f"{drawer.name} slot {slot.number}"
    if slot.state == "empty":
        return SlotBox(slot, x, y, f"{slot.number}", "empty", "", f"{place}, empty")
    if slot.state == "in_pool":
        return SlotBox(slot, x, y, f"{slot.number}", "unassigned", "", f"{place}, unassigned: you may request it")
    if slot.device is None:
        return SlotBox(slot, x, y, f"{slot.number}", "in use", "", f"{place}, in use by another tenant")
    device = slot.device
    kind = KIND_NAMES.get(device.kind, device.kind)
    where = " · ".join(word for word in (device.host_name, device.host_port_label) if word) or "detached"
    if device.held_elsewhere:
        where = "others' host"
    if slot.state == "missing":
        where = "missing"
    generation = device.pcie_type.replace("Gen", "Gen ")
    width = f"x{device.lanes_in_use} {generation}" if device.lanes_in_use else "no link"
    label = f"{kind} {device.name}, {place}, {where}, {device.downgraded or width}"
    if device.drift:
        label += f", drifted: approved is {device.drift}"
    status = board.of("device", device.id)
    label += _status_label(status, label)
    wanted = planned.get(device.id, "")
    if wanted:
        label += f", in your draft: to {wanted}"
    title = kind if slot.number is None else f"{slot.number} · {kind}"
    # Below in both width and generation is too long for the box; the label has all of it.
    detail = f"▼ {width if ',' in device.downgraded else device.downgraded}" if device.downgraded else width
    # What its own marks do not say stands in place of the link.
    if status is not None and status.word not in {DRIFTED, *LINK_WORDS}:
        detail = status.word
    return SlotBox(slot, x, y, title, where, detail, label, wanted, status)
