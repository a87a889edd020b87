"""Pairing of the chassis, drawers and host ports of a file with those of the site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from core.documents import quoted
from core.language import _, gettext_noop
from fabric.allocation.document import (
    NOT_SPECIFIED,
    AllocationDocument,
    ChassisEntry,
    DrawerEntry,
    FieldPresence,
    HostEntry,
    HostPortEntry,
    SlotEntry,
)
from fabric.allocation.rules import MappingMode, SiteChassis, SiteDevice, SiteDrawer, SiteHardware, SiteHost, SitePort

BY_NAME: Final = gettext_noop("by its name")


@dataclass(kw_only=True)
class ChassisPair:
    """A chassis of the file and its counterpart, None for none; `is_same` if it is an exact match."""

    entry: ChassisEntry
    row: SiteChassis | None = None
    is_same: bool = False
    how: str = ""
    drawers: list[DrawerPair] = field(default_factory=list)


@dataclass(kw_only=True)
class DrawerPair:
    chassis: ChassisPair
    entry: DrawerEntry
    row: SiteDrawer | None = None
    stand_ins: dict[int, dict[str, SitePort]] = field(default_factory=dict)  # by drawers of the site, see `paired_port`

    @property
    def title(self) -> str:
        name = self.entry.name or (
            _("drawer {number}", number=self.entry.number) if self.entry.number is not None else ""
        )
        return f"{self.chassis.entry.name} {name}".strip()


@dataclass(frozen=True, kw_only=True)
class RequestedSlot:
    """A slot of the file with its position."""

    drawer: DrawerPair
    entry: SlotEntry

    @property
    def what(self) -> str:
        device = self.entry.device
        slot = _(" slot {number}", number=self.entry.slot) if self.entry.slot is not None else ""
        name = f": {device.name or device.model or device.kind}" if device is not None else ""
        return f"{self.drawer.title}{slot}{name.rstrip(': ')}"


def pair_chassis(
    document: AllocationDocument, site: SiteHardware, *, by: MappingMode, onto: int | None = None
) -> list[ChassisPair]:
    """Return the chassis of a file with their counterparts: by UUID, else serial number, else name; each is used once.

    By slot and by kind, chassis without an exact match are paired with others: those of the same model first, in order
    of name. `onto` is the id of the chassis that a file with one chassis is mapped to.
    """
    pairs = [ChassisPair(entry=entry) for entry in document.chassis]
    if onto is not None and len(pairs) == 1:
        if (row := next((one for one in site.chassis if one.id == onto), None)) is not None:
            same = _same_uuid(pairs[0].entry, row) or _same_serial(pairs[0].entry, row)
            pairs[0].row, pairs[0].is_same, pairs[0].how = row, same, _("it was chosen")
    else:
        _find_chassis(pairs, site, by)
    for one in pairs:
        one.drawers = [DrawerPair(chassis=one, entry=entry, row=_drawer(one.row, entry)) for entry in one.entry.drawers]
    return pairs


def _find_chassis(pairs: list[ChassisPair], site: SiteHardware, by: MappingMode) -> None:
    tests: tuple[tuple[str, Callable[[ChassisEntry, SiteChassis], bool]], ...] = (
        (gettext_noop("by its UUID"), _same_uuid),
        (gettext_noop("by its serial number"), _same_serial),
        (BY_NAME, lambda entry, row: entry.name == row.name),
    )
    free = list(site.chassis)
    for word, test in tests:
        for one in pairs:
            if one.row is None and (row := next((row for row in free if test(one.entry, row)), None)):
                free.remove(row)
                one.row, one.how = row, _(word)
                one.is_same = word != BY_NAME or not _contradicts(one.entry, row)
    if by in {"slot", "kind"}:
        free = [row for row in free if row.composable]
        for one in pairs:
            if one.row is None and free:
                row = next((row for row in free if row.model == one.entry.model), free[0])
                free.remove(row)
                one.row, one.how = row, _("as its replacement")


def _same_uuid(entry: ChassisEntry, row: SiteChassis) -> bool:
    return bool(entry.uuid) and entry.uuid.casefold() == row.uuid.casefold()


def _same_serial(entry: ChassisEntry, row: SiteChassis) -> bool:
    makers = {one for one in (entry.manufacturer, row.manufacturer) if one}
    return bool(entry.serial_number) and entry.serial_number == row.serial_number and len(makers) < 2


def _contradicts(entry: ChassisEntry, row: SiteChassis) -> bool:
    """Return whether the file means another chassis of the same name."""
    uuids = {one.casefold() for one in (entry.uuid, row.uuid) if one}
    serials = {one for one in (entry.serial_number, row.serial_number) if one}
    return len(uuids) > 1 or (not uuids and len(serials) > 1)


def _drawer(row: SiteChassis | None, entry: DrawerEntry) -> SiteDrawer | None:
    if row is None:
        return None
    if entry.number is None and not entry.name:
        return next((one for one in row.drawers if one.id is None), None)
    named = [one for one in row.drawers if one.id is not None]
    by_number = (one for one in named if entry.number is not None and one.number == entry.number)
    by_name = (one for one in named if entry.name and one.name == entry.name)
    return next(by_number, None) or next(by_name, None)


def paired_port(requested: DrawerPair, label: str, drawer: SiteDrawer) -> SitePort | None:
    """Return the host port of a drawer that is paired with the one a file names; each is paired with one at most.

    In the exact drawer it is the port of that label. In another drawer it is one cabled to the same host, preferably of
    the same label; in a replacement drawer also that of the label, where no port leads to the host or the file has
    none.
    """
    if id(drawer) not in requested.stand_ins:
        requested.stand_ins[id(drawer)] = _paired_ports(requested, drawer)
    return requested.stand_ins[id(drawer)].get(label)


def missing_port_reason(requested: DrawerPair, label: str, drawer: SiteDrawer) -> str:
    """Return why no host port of a drawer is paired with the one a file names."""
    for one in requested.entry.host_ports:
        port = paired_port(requested, one.label, drawer)
        if port is not None and port.label == label:
            return _("{port} here is mapped to {entry} of the file already.", port=label, entry=quoted(one.label))
    return _("There is no such host port here, or you may not see it.")


def _paired_ports(requested: DrawerPair, drawer: SiteDrawer) -> dict[str, SitePort]:
    """Return the host port paired with each label of a file."""
    left = {entry.label: entry.host for entry in requested.entry.host_ports}
    for slot in requested.entry.slots:
        if isinstance(slot.attached_to, str):
            left.setdefault(slot.attached_to, NOT_SPECIFIED)
    free, found = list(drawer.ports), dict[str, SitePort]()

    def take(fits: Callable[[SitePort, str, HostEntry | FieldPresence | None], bool]) -> None:
        for label, host in list(left.items()):
            if (port := next((one for one in free if fits(one, label, host)), None)) is not None:
                free.remove(port)
                del left[label]
                found[label] = port

    in_place = requested.row is drawer
    if in_place and requested.chassis.is_same:
        take(lambda port, label, _host: port.label == label)
    take(lambda port, label, host: port.label == label and _leads_to(port, host))
    take(lambda port, _label, host: _leads_to(port, host))
    if in_place:
        take(lambda port, label, _host: port.label == label)
    return found


def _leads_to(port: SitePort, host: HostEntry | FieldPresence | None) -> bool:
    return isinstance(host, HostEntry) and port.host is not None and is_same_host(host, port.host)


def device_in_slot(requested: RequestedSlot) -> SiteDevice | None:
    """Return the device in the slot that a file names; outside slots, the one of the same serial number, else name."""
    drawer, entry = requested.drawer.row, requested.entry
    if drawer is None:
        return None
    if entry.slot is not None:
        return next((one for one in drawer.devices if one.slot == entry.slot), None)
    outside, device = [one for one in drawer.devices if one.slot is None], entry.device
    if device is None:
        return None
    by_serial = (one for one in outside if device.serial_number and one.serial_number == device.serial_number)
    return next(by_serial, None) or next((one for one in outside if one.name == device.name), None)


def mismatch_reason(entry: SlotEntry, device: SiteDevice) -> str:
    """Return '' if a device is the one that a file means, else the sentence that names the difference."""
    meant = entry.device
    if meant is None:
        return ""
    if meant.serial_number:
        if meant.serial_number == device.serial_number:
            return ""
        known = quoted(device.serial_number) if device.serial_number else _("none")
        return _("{device} is there, of another serial number: {found}.", device=device.name, found=known)
    if meant.kind and meant.kind != device.kind:
        return _("{device} is there, of another kind: {found}.", device=device.name, found=quoted(device.kind))
    if meant.manufacturer and meant.manufacturer != device.manufacturer:
        found = quoted(device.manufacturer)
        return _("{device} is there, of another manufacturer: {found}.", device=device.name, found=found)
    if meant.model and meant.model != device.model:
        return _("{device} is there, of another model: {found}.", device=device.name, found=quoted(device.model))
    return ""


def is_same_host(entry: HostEntry, host: SiteHost) -> bool:
    return entry.identity.casefold() == host.identity.casefold() if entry.identity else entry.name == host.name


def is_cabled_as_requested(entry: HostPortEntry, row: SitePort) -> bool:
    """Return whether the cable leads where the file says, or the file says nothing."""
    if isinstance(entry.host, HostEntry):
        return row.host is not None and is_same_host(entry.host, row.host)
    return entry.host is not None or row.host is None
