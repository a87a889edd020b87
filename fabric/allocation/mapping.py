"""Mapping of a file to the hardware that a user sees: entries that are the same, are mapped, or do not fit."""

from __future__ import annotations

from dataclasses import replace

from core.documents import quoted
from core.language import _, joined
from fabric.allocation.document import (
    AllocationDocument,
    DocumentEntry,
    FieldPresence,
    HostEntry,
    HostPortEntry,
    PortEntry,
)
from fabric.allocation.matching import DeviceMatcher, LocatedDevice
from fabric.allocation.pairing import (
    ChassisPair,
    DrawerPair,
    RequestedSlot,
    is_cabled_as_requested,
    is_same_host,
    missing_port_reason,
    pair_chassis,
    paired_port,
)
from fabric.allocation.rules import (
    AllocationReport,
    EntryFit,
    MappingMode,
    ReportLine,
    SiteDrawer,
    SiteHardware,
    SitePort,
)
from fabric.bmc.types import DrawerMode
from fabric.operations.rules import LANE_COUNTS, PortSetting, allowed_port_types
from fabric.plans.rules import DesiredState


def map_document(
    document: AllocationDocument, site: SiteHardware, *, by: MappingMode = "exact", onto: int | None = None
) -> AllocationReport:
    """Return the result for each entry of a file, and the desired state: only the differences from the present one.

    `by` is how entries without an exact counterpart are mapped; `onto` is the chassis that a file's
    only one is mapped to.
    """
    return _Mapping(document, site, by, onto).report()


class _Mapping:
    def __init__(self, document: AllocationDocument, site: SiteHardware, by: MappingMode, onto: int | None) -> None:
        self.site, self.by = site, by
        self.pairs = pair_chassis(document, site, by=by, onto=onto)
        self.attachments: dict[int, int | None] = {}
        self.modes: dict[int, DrawerMode] = {}
        self.cables: dict[int, int | None] = {}
        self.settings: dict[int, PortSetting] = {}
        self.lines: list[ReportLine] = []
        requested = [
            RequestedSlot(drawer=drawer, entry=entry)
            for one in self.pairs
            for drawer in one.drawers
            for entry in drawer.entry.slots
        ]
        self.finder = DeviceMatcher(site, requested, modes=self.modes, cables=self.cables)

    def report(self) -> AllocationReport:
        """Return the report, entries in the order of the file."""
        for one in self.pairs:
            self._report_chassis(one)
            for drawer in one.drawers:
                self._report_drawer(drawer)
                for entry in drawer.entry.host_ports:
                    self._report_port(drawer, entry)
        self.finder.find(self.by)
        for at, requested in enumerate(self.finder.requested):
            self._report_slot(at, requested)
        lines = sorted(self.lines, key=lambda line: (line.place.line, line.place.column))
        desired = DesiredState(
            attachments=self.attachments, modes=self.modes, cables=self.cables, settings=self.settings
        )
        return AllocationReport(by=self.by, lines=tuple(lines), desired=desired)

    def _report_chassis(self, one: ChassisPair) -> None:
        what = one.entry.name
        if one.row is None:
            if self.by == "serial":
                sentence = _("There is no such chassis here: its devices are matched by their serial numbers.")
                self._add(one.entry, what, "mapped", sentence)
            else:
                self._misfit(one.entry, what, _("There is no such chassis here, or you may not see it."))
        elif one.is_same:
            renamed = _("It was matched {how}, and is named {name} here.", how=one.how, name=one.row.name)
            self._add(one.entry, what, "exact", renamed if one.row.name != what else "")
        else:
            sentence = _("Mapped to another chassis, {chassis}: {how}.", chassis=one.row.name, how=one.how)
            self._add(one.entry, what, "mapped", sentence)

    def _report_drawer(self, one: DrawerPair) -> None:
        if one.chassis.row is None:
            return
        if one.row is None:
            why = _("{chassis} has no such drawer, or you may not see it.", chassis=one.chassis.row.name)
            self._misfit(one.entry, one.title, why)
            return
        change = note = ""
        mode, row = one.entry.mode, one.row
        if mode and mode not in {row.mode, DrawerMode.UNKNOWN} and row.id is not None:
            if row.may_change_mode:
                change = _("Change its mode from {before} to {after}.", before=row.mode, after=mode)
                self.modes[row.id] = DrawerMode(mode)
            else:
                note = _(
                    "Its mode stays {mode}, where the file says {wanted}: it is not yours to change.",
                    mode=row.mode,
                    wanted=mode,
                )
        fit: EntryFit = "exact" if one.chassis.is_same else "mapped"
        sentence = "" if one.chassis.is_same else f"{one.chassis.row.name} {row.title}".strip()
        self._add(one.entry, one.title, fit, sentence, change=change, note=note)

    def _report_port(self, drawer: DrawerPair, entry: HostPortEntry) -> None:
        if drawer.chassis.row is None or drawer.row is None:
            return
        what = _("{drawer} host port {label}", drawer=drawer.title, label=entry.label)
        row = paired_port(drawer, entry.label, drawer.row)
        if row is None:
            self._misfit(entry, what, missing_port_reason(drawer, entry.label, drawer.row))
            return
        fits: EntryFit = "exact" if drawer.chassis.is_same and row.label == entry.label else "mapped"
        changes, notes = self._cable(drawer, entry, row)
        if row.label == entry.label and (reason := self._set(entry, row.port, drawer.row, changes, notes)):
            self._misfit(entry, what, reason)
            return
        notes += self._holder(entry, row.tenant)
        place = f"{drawer.chassis.row.name} {row.label}"
        sentence = "" if fits == "exact" else _("Mapped to {place}.", place=place)
        self._add(entry, what, fits, sentence, change=" ".join(changes), note=" ".join(notes))

    def _cable(self, drawer: DrawerPair, entry: HostPortEntry, row: SitePort) -> tuple[list[str], list[str]]:
        if is_cabled_as_requested(entry, row) or row.label != entry.label:
            return [], []
        now = row.host.name if row.host else _("no host")
        name = entry.host.name if isinstance(entry.host, HostEntry) else _("no host")
        host = next(
            (one for one in self.site.hosts if isinstance(entry.host, HostEntry) and is_same_host(entry.host, one)),
            None,
        )
        if not drawer.chassis.is_same or (host is None and isinstance(entry.host, HostEntry)):
            note = _(
                "Its cable leads to {host}, where the file says {wanted}: it stays.", host=now, wanted=quoted(name)
            )
            return [], [note]
        if not self.site.may_move_cables:
            note = _(
                "Its cable leads to {host}, where the file says {wanted}: it is not yours to move.",
                host=now,
                wanted=quoted(name),
            )
            return [], [note]
        self.cables[row.id] = None if host is None else host.id
        return [_("Move its cable from {before} to {after}.", before=now, after=name)], []

    def _set(self, entry: PortEntry, port: int | None, drawer: SiteDrawer, changes: list[str], notes: list[str]) -> str:
        """Add the port's setting to the desired state; return why it cannot be changed."""
        if port is None:
            return ""
        wanted, reason = desired_port_setting(entry, drawer.settings.get(port), changes, notes)
        if wanted is not None:
            self.settings[port] = wanted
        return reason

    def _holder(self, entry: PortEntry, tenant: str) -> list[str]:
        if not entry.tenant or entry.tenant == tenant or not self.site.is_administrator:
            return []
        wanted = quoted(entry.tenant)
        if not tenant:
            return [_("It is unassigned, where the file says {wanted}: an import grants nothing.", wanted=wanted)]
        return [
            _(
                "It is granted to {tenant}, where the file says {wanted}: an import grants nothing.",
                tenant=tenant,
                wanted=wanted,
            )
        ]

    def _report_slot(self, at: int, requested: RequestedSlot) -> None:
        entry = requested.entry
        if at not in self.finder.found:
            row = requested.drawer.chassis.row
            why = self.finder.why.get(at, "")
            if row is None and self.by != "serial":
                why = _("There is no such chassis here, or you may not see it.")
            self._misfit(entry, requested.what, why)
            return
        found, fit = self.finder.found[at]
        changes: list[str] = []
        notes = self._holder(entry, found.device.tenant)
        reason = self._attach(requested, found, changes)
        reason = reason or self._set(entry, found.device.port, found.drawer, changes, notes)
        if reason:
            self.attachments.pop(found.device.id, None)
            self._misfit(entry, requested.what, reason)
            return
        device = entry.device
        if fit == "mapped" and device is not None and device.kind and device.kind != found.device.kind:
            notes.append(
                _(
                    "It is of another kind: {kind}, where the file says {wanted}.",
                    kind=found.device.kind,
                    wanted=device.kind,
                )
            )
        sentence = "" if fit == "exact" else _("Mapped to {place}.", place=found.title)
        self._add(entry, requested.what, fit, sentence, change=" ".join(changes), note=" ".join(notes))

    def _attach(self, requested: RequestedSlot, found: LocatedDevice, changes: list[str]) -> str:
        """Add the device's attachment to the desired state; return why it cannot be changed."""
        label, device = requested.entry.attached_to, found.device
        if isinstance(label, FieldPresence):
            return ""
        port = None if label is None else paired_port(requested.drawer, label, found.drawer)
        if label is not None and port is None:
            where = f"{found.chassis.name} {found.drawer.title}".strip()
            return _(
                "{drawer} has no host port that matches {entry}, or you may not see it.",
                drawer=where,
                entry=quoted(label),
            )
        if device.attached_elsewhere:
            return _(
                "{device} is attached to a host port that is not yours: only its owner can move it.",
                device=device.name,
            )
        target = None if port is None else port.id
        if target == device.attached:
            return ""
        if device.fixed:
            return device.fixed
        self.attachments[device.id] = target
        before = next((one for one in found.drawer.ports if one.id == device.attached), None)
        if port is None:
            changes.append(_("Detach it from {port}.", port=_host_port_name(before)))
        elif before is None:
            changes.append(_("Attach it to {port}.", port=_host_port_name(port)))
        else:
            names = {"before": _host_port_name(before), "after": _host_port_name(port)}
            changes.append(_("Move it from {before} to {after}.", **names))
        return ""

    def _misfit(self, entry: DocumentEntry, what: str, sentence: str) -> None:
        self._add(entry, what, "does_not_fit", sentence)

    def _add(
        self, entry: DocumentEntry, what: str, fit: EntryFit, sentence: str, *, change: str = "", note: str = ""
    ) -> None:
        line = ReportLine(place=entry.place, what=what, fit=fit, sentence=sentence, change=change, note=note)
        self.lines.append(line)


def _host_port_name(port: SitePort | None) -> str:
    if port is None:
        return _("another host port")
    return f"{port.host.name} ({port.label})" if port.host else port.label


def desired_port_setting(
    entry: PortEntry, now: PortSetting | None, changes: list[str], notes: list[str]
) -> tuple[PortSetting | None, str]:
    """Return the setting that a file requests of a port (None: none), and why the port cannot have it.

    Changes and notes are appended to the lists; what the site does not know of the port stays unchanged.
    """
    if now is None:
        return None, ""
    wanted = PortSetting()
    of_host = isinstance(entry, HostPortEntry)
    types = allowed_port_types(of_host=of_host)
    if entry.port_type and entry.port_type != now.port_type:
        if not now.port_type:
            notes.append(_("The type of its port is unknown here: it stays unchanged."))
        elif entry.port_type not in types:
            values = {"types": joined(types, _(" or ")), "type": quoted(entry.port_type)}
            if of_host:
                return None, _("A host's port can be configured as {types}, not as {type}.", **values)
            return None, _("The port of a slot can be configured as {types}, not as {type}.", **values)
        else:
            wanted = replace(wanted, port_type=entry.port_type)
            changes.append(
                _("Configure its port from {before} to {after}.", before=now.port_type, after=entry.port_type)
            )
    if entry.lanes and entry.lanes != now.configured_width:
        if not now.configured_width:
            notes.append(_("The lanes of its port are unknown here: they stay unchanged."))
        elif entry.lanes not in LANE_COUNTS:
            return (
                None,
                _(
                    "A port can be configured with {counts} lanes, not with {count}.",
                    counts=", ".join(map(str, LANE_COUNTS)),
                    count=entry.lanes,
                ),
            )
        else:
            wanted = replace(wanted, configured_width=entry.lanes)
            lanes = {"before": now.configured_width, "after": entry.lanes}
            changes.append(_("Configure its port from x{before} to x{after}.", **lanes))
    return (None if wanted == PortSetting() else wanted), ""
