"""The topology picture: a pure, deterministic layered layout (hosts, host ports, switch chips, slots), in SVG units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from core.language import _, _n, gettext_noop
from fabric.bmc.values import LANE_GBPS
from fabric.operations.rules import MODE_VALUE_LABELS
from fabric.topology.places import NarrowPlaces, WidePlaces, mark_on
from fabric.topology.presentation import ChassisView, DeviceView, DrawerView, HostPortView, SlotView
from fabric.topology.problems import DRIFTED, LINK_WORDS, Status, StatusBoard

DRAWER_GAP = 24  # between a drawer and the next
SIDE_GAP = 40  # between drawers side by side
BOTTOM_MARGIN = 4  # below the last box, for the widest of its strokes
KIND_NAMES = {"gpu": "GPU", "nvme": "NVMe", "nic": "NIC", "custom": gettext_noop("Custom")}
WIDEST_GBPS = 256.0  # x16 Gen4, drawn widest
LABEL_LENGTH = 8  # characters of a slot's name that fit before its device's kind
HALF_GAP = 1.5  # between the two half-links of a link

Number = TypeVar("Number", int, float)


class Screen(StrEnum):
    """How wide the screen is that a topology is laid out for; browsers say so in a cookie of this name."""

    WIDE = "wide"
    MEDIUM = "medium"  # two narrow drawers side by side
    NARROW = "narrow"

    @classmethod
    def of(cls, cookies: Mapping[str, str]) -> Screen:
        """Return the screen of a browser: a wide one where it says nothing known."""
        return next((one for one in cls if one == cookies.get("screen")), cls.WIDE)


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

    @property
    def css(self) -> str:
        """Its state as classes of a picture."""
        device = self.slot.device
        states = {
            "detached": device and not device.host_port_id and not device.held_elsewhere,
            "busy": device and device.operation_summary,
            "planned": self.planned,
        }
        return _classes(f"slot {self.slot.state}", states, self.status)


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

    @property
    def css(self) -> str:
        """Its state as classes of a picture."""
        states = {"downgraded": self.port.downgraded, "drifted": self.port.drift, "planned": self.is_marked}
        return _classes("host", states, self.status)


@dataclass(frozen=True)
class SwitchBox:
    """A switch chip."""

    title: str
    x: int
    y: int
    width: int

    @property
    def middle(self) -> int:
        """The x of its middle."""
        return self.x + self.width // 2

    @property
    def name(self) -> str:
        """The part of its title that fits."""
        most = self.width // 9
        return self.title if len(self.title) <= most else f"{self.title[: most - 1]}…"


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
    """The position of a mark on a link: its middle."""

    port: int
    x: int
    y: int


@dataclass(frozen=True)
class DrawerPicture:
    """One drawer, with all coordinates relative to the picture."""

    drawer: DrawerView
    x: int
    y: int
    height: int
    mode: str
    heads: tuple[HostPortBox, ...]
    chips: tuple[SwitchBox, ...]
    boxes: tuple[SlotBox, ...]
    links: tuple[HalfLink, ...]
    spots: tuple[LinkMark, ...] = ()
    planned_mode: str = ""
    planned_at: tuple[int, int] = (0, 0)
    status: Status | None = None

    @property
    def label(self) -> str:
        """What a screen reader says of it."""
        return _spoken(self.drawer.name, _status_label(self.status, ""))


@dataclass(frozen=True)
class ChassisPicture:
    """A chassis as a picture; the same view always gives the same picture."""

    width: int
    height: int
    screen: Screen
    drawers: tuple[DrawerPicture, ...]

    @property
    def is_column(self) -> bool:
        """Whether it is as narrow as one narrow drawer."""
        return self.width == NarrowPlaces.width


def planned_locations(chassis: ChassisView, marks: DraftMarks) -> dict[int, str]:
    """Return where a draft attaches devices of a chassis, in words: 'node-b · H2', 'no host'; others are left out."""
    places = {port.id: " · ".join(word for word in (port.host_name, port.label) if word) for port in chassis.host_ports}
    devices = (slot.device for drawer in chassis.drawers for slot in drawer.slots if slot.device is not None)
    return {
        device.id: _("no host") if target is None else places.get(target) or _("another host")
        for device in devices
        if device.id in marks.targets and (target := marks.targets[device.id]) != device.host_port_id
    }


def layout_chassis(
    chassis: ChassisView,
    marks: DraftMarks = NO_DRAFT_MARKS,
    board: StatusBoard = NO_STATUS,
    screen: Screen = Screen.WIDE,
) -> ChassisPicture:
    """Return the positions of everything in a chassis, with the changes of a draft and the status of each thing."""
    kind = WidePlaces if screen is Screen.WIDE else NarrowPlaces
    across = min(2, len(chassis.drawers)) if screen is Screen.MEDIUM else 1
    drawers: list[DrawerPicture] = []
    y = height = 0
    for index, drawer in enumerate(chassis.drawers):
        if index % across == 0:
            y = height
        drawers.append(_drawer(chassis, drawer, (kind, (index % across * (kind.width + SIDE_GAP), y)), marks, board))
        height = max(height, y + drawers[-1].height + DRAWER_GAP)
    width = across * (kind.width + SIDE_GAP) - SIDE_GAP
    return ChassisPicture(width, max(height - DRAWER_GAP + BOTTOM_MARGIN, 40), screen, tuple(drawers))


def host_ports_of(chassis: ChassisView, drawer: DrawerView) -> list[HostPortView]:
    """Return the host ports of a drawer; unconnected ones belong to the first part without a drawer."""
    first = next((one for one in chassis.drawers if one.id is None), None)
    here = drawer.id is not None or drawer is first
    return [port for port in chassis.host_ports if here and port.drawer_id == drawer.id]


def _drawer(
    chassis: ChassisView,
    drawer: DrawerView,
    where: tuple[type[WidePlaces], tuple[int, int]],
    marks: DraftMarks,
    board: StatusBoard,
) -> DrawerPicture:
    kind, corner = where
    ports = host_ports_of(chassis, drawer)
    places = kind(len(ports), len(drawer.switches), len(drawer.slots))
    chips = tuple(
        SwitchBox(title, *_moved(places.chip(index), corner), places.chip_width)
        for index, title in enumerate(drawer.switches)
    )
    heads = tuple(
        host_port_box(port, _moved(places.head(index), corner), marks, board) for index, port in enumerate(ports)
    )
    planned = planned_locations(chassis, marks)
    links: list[HalfLink] = []
    spots: list[LinkMark] = []
    for index, port in enumerate(ports):
        top, end = places.head_link(index)
        links += _link(
            _moved(top, corner), _moved(end, corner), port.max_speed_gbps, _state(port.link_status), port.port_id,
            f"host-port-{port.id}",
        )  # fmt: skip
        spots += _link_marks(port.port_id, _moved(mark_on(top, end), corner))
    boxes = []
    for index, slot in enumerate(drawer.slots):
        boxes.append(slot_box(drawer, slot, _moved(places.slot(index), corner), planned, board))
        if slot.device is not None and (heads or chips):
            start, end = places.slot_link(index)
            attached = slot.device.host_port_id is not None or slot.device.held_elsewhere
            state = _state(slot.device.link_status) if attached else "idle"
            links += _link(
                _moved(start, corner), _moved(end, corner), _capacity(slot.device), state, slot.port_id,
                f"device-{slot.device.id}",
            )  # fmt: skip
            spots += _link_marks(slot.port_id, _moved(places.slot_mark(index), corner))
    wanted = marks.modes.get(drawer.id or 0, drawer.mode)
    return DrawerPicture(
        drawer,
        *corner,
        places.height,
        _(MODE_VALUE_LABELS.get(drawer.mode, drawer.mode)),
        heads,
        chips,
        tuple(boxes),
        tuple(links),
        tuple(spots),
        planned_mode=_(MODE_VALUE_LABELS.get(wanted, wanted)) if wanted != drawer.mode else "",
        planned_at=_moved(places.mode_at, corner),
        status=board.of("drawer", drawer.id),
    )


def _moved(point: tuple[Number, Number], corner: tuple[int, int]) -> tuple[Number, Number]:
    """Return a point of a drawer's drawing as one of the whole picture."""
    return point[0] + corner[0], point[1] + corner[1]


def host_port_box(port: HostPortView, corner: tuple[int, int], marks: DraftMarks, board: StatusBoard) -> HostPortBox:
    """Return a host port with its texts."""
    then = marks.count_of(port)
    width = f"x{port.active_width}" if port.active_width else _("down") if port.link_status else ""
    devices = _n("{count} device", "{count} devices", len(port.device_ids))
    comes = then != len(port.device_ids)
    short = f"{len(port.device_ids)} → {then}" if comes else "" if port.downgraded else devices
    cabled = marks.cables.get(port.id, "")
    drift = _("drifted: approved is {state}", state=port.drift) if port.drift else ""
    status = board.of("host-port", port.id)
    return HostPortBox(
        port,
        *corner,
        " · ".join(word for word in (port.label, f"△ {port.downgraded}" if port.downgraded else width, short) if word),
        _spoken(
            _("Host {name}", name=port.host_name or _("not cabled")),
            _("host port {label}", label=port.label),
            _n("{count} device attached", "{count} devices attached", len(port.device_ids)),
            _("link {state}", state=port.downgraded or width or _("not given")),
            drift,
            _status_label(status, drift),
            _("{count} with your draft", count=then) if comes else "",
            _("cabled to {host} with your draft", host=cabled) if cabled else "",
        ),
        planned=cabled,
        is_marked=comes or bool(cabled),
        status=status,
    )


def _classes(kind: str, states: Mapping[str, object], status: Status | None) -> str:
    return " ".join([kind, *(name for name, is_it in states.items() if is_it), *([status.level.css] if status else [])])


def _spoken(*words: str) -> str:
    """Return what a screen reader says of a thing."""
    return ", ".join(word for word in words if word)


def _status_label(status: Status | None, said: str) -> str:
    """Return what a screen reader says of a status, after what it has said of the thing."""
    if status is None:
        return ""
    more = [word for word in status.words.split(", ") if word not in said]
    return f"{_(status.level.css)}{': ' if more else ''}{', '.join(more)}"


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


def _link_marks(port: int | None, where: tuple[int, int]) -> list[LinkMark]:
    """Return the mark of a link, for which there has to be a port."""
    return [LinkMark(port, *where)] if port is not None else []


def _capacity(device: DeviceView) -> float | None:
    """Return the capability of the device's link one way, in Gb/s."""
    lane = LANE_GBPS.get(device.max_pcie_type)
    return lane * device.max_lanes if lane and device.max_lanes else None


def _state(link_status: str) -> str:
    if not link_status:
        return "unknown"
    return "up" if link_status == "LinkUp" else "training" if link_status in {"Training", "Starting"} else "down"


def slot_box(
    drawer: DrawerView, slot: SlotView, corner: tuple[int, int], planned: Mapping[int, str], board: StatusBoard
) -> SlotBox:
    """Return a slot with its texts."""
    x, y = corner
    place = drawer.name
    if slot.label:
        place = _("{drawer} slot {number}", drawer=drawer.name, number=slot.label)
    number = slot.label if len(slot.label) <= LABEL_LENGTH else f"{slot.label[: LABEL_LENGTH - 1]}…"
    if slot.state == "empty":
        return SlotBox(slot, x, y, number, _("empty"), "", _spoken(place, _("empty")))
    if slot.state == "in_pool":
        may = _("unassigned: you may request it")
        return SlotBox(slot, x, y, number, _("unassigned"), "", _spoken(place, may))
    if slot.device is None:
        return SlotBox(slot, x, y, number, _("in use"), "", _spoken(place, _("in use by another tenant")))
    device = slot.device
    kind = _(KIND_NAMES.get(device.kind, device.kind))
    where = " · ".join(word for word in (device.host_name, device.host_port_label) if word) or _("detached")
    if device.held_elsewhere:
        where = _("others' host")
    if slot.state == "missing":
        where = _("missing")
    generation = device.pcie_type.replace("Gen", "Gen ")
    width = f"x{device.lanes_in_use} {generation}" if device.lanes_in_use else _("no link")
    drift = _("drifted: approved is {state}", state=device.drift) if device.drift else ""
    label = _spoken(f"{kind} {device.name}", place, where, device.downgraded or width, drift)
    status = board.of("device", device.id)
    wanted = planned.get(device.id, "")
    label = _spoken(label, _status_label(status, label), _("in your draft: to {place}", place=wanted) if wanted else "")
    title = f"{number} · {kind}" if number else kind
    # Below in both width and generation is too long for the box; the label has all of it.
    detail = f"△ {width if ',' in device.downgraded else device.downgraded}" if device.downgraded else width
    # What its own marks do not say stands in place of the link.
    if status is not None and status.word not in {DRIFTED, *LINK_WORDS}:
        detail = _(status.word)
    return SlotBox(slot, x, y, title, where, detail, label, wanted, status)
