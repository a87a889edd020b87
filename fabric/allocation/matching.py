"""Matching of a file's slots to devices of the site: the same device, else one chosen by the mapping mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.language import _
from fabric.allocation.pairing import RequestedSlot, device_in_slot, mismatch_reason, paired_port
from fabric.allocation.rules import EntryFit, MappingMode, SiteChassis, SiteDevice, SiteDrawer, SiteHardware, SitePort
from fabric.bmc.chassis_profiles import profile_of
from fabric.bmc.types import DrawerMode
from fabric.operations.rules import DrawerState, HostConnection, attach_violation

# Entries of one kind in one chassis: many times more than any chassis has, and few enough to match within a second.
MAX_OF_A_KIND = 512
OTHER_MODEL, OTHER_DRAWER, OTHER_MAKER = 10_000, 100_000, 1_000
LEFT_OUT_ATTACHED, LEFT_OUT_FREE = 1e9, 1e8


@dataclass(frozen=True)
class LocatedDevice:
    chassis: SiteChassis
    drawer: SiteDrawer
    device: SiteDevice

    @property
    def title(self) -> str:
        where = f"{self.chassis.name} {self.drawer.title}".strip()
        slot = _(" slot {number}", number=self.device.slot) if self.device.slot is not None else ""
        return f"{self.device.name} ({where}{slot})"


class DeviceMatcher:
    """Finds devices for requested slots (by index): `found` has the devices, `why` the reason where there is none."""

    def __init__(
        self,
        site: SiteHardware,
        requested: list[RequestedSlot],
        *,
        modes: Mapping[int, DrawerMode],
        cables: Mapping[int, int | None],
    ) -> None:
        self.site, self.requested = site, requested
        # The modes and cables that the file requests: the reach of a slot depends on both.
        self.modes, self.cables = modes, cables
        self.taken: dict[int, RequestedSlot] = {}
        self.found: dict[int, tuple[LocatedDevice, EntryFit]] = {}
        self.why: dict[int, str] = {}
        self.ruled_out: dict[tuple[int, int, str], bool] = {}

    def find(self, by: MappingMode) -> None:
        """Find the device for each slot of the file: exact matches first, then those by the mapping mode."""
        everything = [
            LocatedDevice(chassis, drawer, device)
            for chassis in self.site.chassis
            for drawer in chassis.drawers
            for device in drawer.devices
        ]
        for at, requested in enumerate(self.requested):
            here = _device_in_slot(requested)
            if here is None:
                self.why[at] = _("There is no such slot with a device here, or you may not see it.")
            elif not requested.drawer.chassis.is_same:
                self.why[at] = _("In the same slot is {device}, of another chassis.", device=here.title)
            elif reason := mismatch_reason(requested.entry, here.device):
                self.why[at] = reason
            else:
                self._take(at, requested, here, "exact")
        if by == "serial":
            self._by_serial(everything)
        elif by == "slot":
            for at, requested in self._left():
                here = _device_in_slot(requested)
                if here is not None:
                    self._take(at, requested, here, "mapped")
        elif by == "kind":
            self._by_kind(everything)

    def _left(self) -> list[tuple[int, RequestedSlot]]:
        return [(at, requested) for at, requested in enumerate(self.requested) if at not in self.found]

    def _take(self, at: int, requested: RequestedSlot, found: LocatedDevice, fit: EntryFit) -> None:
        other = self.taken.setdefault(found.device.id, requested)
        if other is not requested:
            place = other.entry.place
            self.why[at] = _(
                "{device} is already listed in line {line} ({path}).",
                device=found.title,
                line=place.line,
                path=place.path,
            )
            return
        self.found[at] = (found, fit)

    def _by_serial(self, everything: list[LocatedDevice]) -> None:
        known: dict[str, list[LocatedDevice]] = {}
        for one in everything:
            if one.device.serial_number:
                known.setdefault(one.device.serial_number, []).append(one)
        for at, requested in self._left():
            device = requested.entry.device
            if device is None or not device.serial_number:
                self.why[at] = _("The file has no serial number for its device.")
                continue
            found = known.get(device.serial_number, [])
            model = (device.manufacturer, device.model)
            found = [one for one in found if (one.device.manufacturer, one.device.model) == model] or found
            if len(found) == 1:
                self._take(at, requested, found[0], "mapped")
            elif found:
                self.why[at] = _("Several devices here have its serial number.")
            else:
                self.why[at] = _("No device here has its serial number, or you may not see it.")

    def _by_kind(self, everything: list[LocatedDevice]) -> None:
        groups: dict[tuple[int, str], list[tuple[int, RequestedSlot]]] = {}
        for at, requested in self._left():
            device, row = requested.entry.device, requested.drawer.chassis.row
            if row is None:
                continue
            if device is None or not device.kind:
                self.why[at] = _("The file does not name the kind of its device.")
            else:
                groups.setdefault((row.id, device.kind), []).append((at, requested))
        for (chassis, kind), requests in groups.items():
            free = [
                one
                for one in everything
                if one.chassis.id == chassis and one.device.kind == kind and one.device.id not in self.taken
            ]
            self._match(requests, free, kind)

    def _match(self, requests: list[tuple[int, RequestedSlot]], free: list[LocatedDevice], kind: str) -> None:
        for at, _requested in requests[MAX_OF_A_KIND:]:
            self.why[at] = _("The file lists more than {count} devices of a kind in one chassis.", count=MAX_OF_A_KIND)
        requests = requests[:MAX_OF_A_KIND]
        costs = [[self._cost(requested, one) for one in free] for _at, requested in requests]
        # Where there are too few, those to be attached come first.
        left_out = [LEFT_OUT_ATTACHED if requested.entry.attached_to else LEFT_OUT_FREE for _at, requested in requests]
        for (at, requested), column, row in zip(requests, cheapest_assignment(costs, left_out), costs, strict=True):
            if column is not None:
                self._take(at, requested, free[column], "mapped")
            elif any(cost < IMPOSSIBLE for cost in row):
                self.why[at] = _("There are too few devices of kind {kind} here.", kind=kind)
            else:
                self.why[at] = _("No device of kind {kind} here fits, at a host port that the rules allow.", kind=kind)

    def _cost(self, requested: RequestedSlot, one: LocatedDevice) -> float:
        """Return the distance of a device from the requested one, IMPOSSIBLE where the attachment is not allowed."""
        entry, device = requested.entry, requested.entry.device
        if device is None:
            return IMPOSSIBLE
        if isinstance(entry.attached_to, str):
            port = paired_port(requested.drawer, entry.attached_to, one.drawer)
            if port is None or one.device.fixed or one.device.attached_elsewhere or self._rules_out(one, port):
                return IMPOSSIBLE
        same_drawer = requested.drawer.row is one.drawer
        distance = abs((one.device.slot or 0) - (entry.slot or 0))
        return (
            distance
            + (0 if same_drawer else OTHER_DRAWER)
            + (0 if device.model in {"", one.device.model} else OTHER_MODEL)
            + (0 if device.manufacturer in {"", one.device.manufacturer} else OTHER_MAKER)
        )

    def _rules_out(self, one: LocatedDevice, port: SitePort) -> bool:
        """Return whether the drawer's requested mode keeps a slot from a host port whatever else is attached."""
        drawer, slot = one.drawer, one.device.slot
        if drawer.id is None or slot is None:
            return False
        key = (drawer.id, slot, port.label)
        if key not in self.ruled_out:
            hosts = {each.id: self.cables.get(each.id, each.host.id if each.host else None) for each in drawer.ports}
            state = DrawerState(
                mode=self.modes.get(drawer.id, DrawerMode(drawer.mode)),
                connections=tuple(
                    HostConnection(label=each.label, number=each.number, host=str(hosts[each.id] or ""))
                    for each in drawer.ports
                ),
                attached={},
                profile=profile_of(one.chassis.manufacturer, one.chassis.model),
            )
            self.ruled_out[key] = bool(attach_violation(state, slot=slot, label=port.label))
        return self.ruled_out[key]


def _device_in_slot(requested: RequestedSlot) -> LocatedDevice | None:
    chassis, drawer, device = requested.drawer.chassis.row, requested.drawer.row, device_in_slot(requested)
    return None if chassis is None or drawer is None or device is None else LocatedDevice(chassis, drawer, device)


IMPOSSIBLE = 1e12


def cheapest_assignment(costs: Sequence[Sequence[float]], unmatched: Sequence[float]) -> list[int | None]:
    """Return the column of each row, None where it has none; no column is used twice.

    `costs[row][column]` is IMPOSSIBLE or more where the two do not match; `unmatched[row]` is the cost of leaving a row
    out.
    """
    from scipy.optimize import linear_sum_assignment  # half a second, which only files mapped by kind cost

    rows = len(costs)
    if not rows:
        return []
    # Each row has a dummy column for being left out, so that a complete matching always exists.
    left_out = np.full((rows, rows), IMPOSSIBLE)
    np.fill_diagonal(left_out, unmatched)
    table = np.hstack([np.reshape(costs, (rows, -1)), left_out])
    chosen = zip(costs, linear_sum_assignment(table)[1], strict=True)
    return [int(column) if column < len(row) and row[column] < IMPOSSIBLE else None for row, column in chosen]
