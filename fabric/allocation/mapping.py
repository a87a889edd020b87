"""A file onto the hardware that a person sees: what of it is the same, what something else stands in for, what not."""

from __future__ import annotations

from dataclasses import dataclass, field

from fabric.allocation.document import Document, Entry, HostEntry, HostPortEntry, PortEntry, Said
from fabric.allocation.finding import Finder, Found
from fabric.allocation.pairing import (
    Asked,
    ChassisPair,
    DrawerPair,
    cabled,
    pair,
    port_for,
    same_host,
    why_no_port,
)
from fabric.allocation.places import quoted
from fabric.allocation.report import By, Fit, Line, Report
from fabric.allocation.setting import want_setting
from fabric.allocation.site import Site, SiteDrawer, SitePort
from fabric.bmc.types import DrawerMode
from fabric.planning import Setting, Wanted


@dataclass
class _Wanting:
    """What is wanted, while it is put together."""

    attachments: dict[int, int | None] = field(default_factory=dict)
    modes: dict[int, DrawerMode] = field(default_factory=dict)
    cables: dict[int, int | None] = field(default_factory=dict)
    settings: dict[int, Setting] = field(default_factory=dict)


def map_onto(document: Document, site: Site, *, by: By = "exact", onto: int | None = None) -> Report:
    """Return what becomes of each entry of a file, and what is wanted of the site: only what differs from what is.

    `by` says what stands in for what is not the same here; `onto` names the chassis that a file's only one is put onto.
    """
    return _Mapping(document, site, by, onto).report()


class _Mapping:
    """One file onto one site."""

    def __init__(self, document: Document, site: Site, by: By, onto: int | None) -> None:
        self.site, self.by = site, by
        self.pairs = pair(document, site, by=by, onto=onto)
        self.wanting = _Wanting()
        self.lines: list[Line] = []
        asked = [
            Asked(drawer=drawer, entry=entry)
            for one in self.pairs
            for drawer in one.drawers
            for entry in drawer.entry.slots
        ]
        self.finder = Finder(site, asked, modes=self.wanting.modes, cables=self.wanting.cables)

    def report(self) -> Report:
        """Return it, entries in the order of the file."""
        for one in self.pairs:
            self._say_chassis(one)
            for drawer in one.drawers:
                self._say_drawer(drawer)
                for entry in drawer.entry.host_ports:
                    self._say_port(drawer, entry)
        self.finder.find(self.by)
        for at, asked in enumerate(self.finder.asked):
            self._say_slot(at, asked)
        lines = sorted(self.lines, key=lambda line: (line.place.line, line.place.column))
        wanting = self.wanting
        return Report(
            by=self.by,
            lines=tuple(lines),
            wanted=Wanted(
                attachments=wanting.attachments,
                modes=wanting.modes,
                cables=wanting.cables,
                settings=wanting.settings,
            ),
        )

    def _say_chassis(self, one: ChassisPair) -> None:
        what = one.entry.name
        if one.row is None:
            if self.by == "serial":
                sentence = "There is no such chassis here: its devices are looked for by their serial numbers."
                self.lines.append(Line(place=one.entry.place, what=what, fit="mapped", sentence=sentence))
            else:
                self._misfit(one.entry, what, "There is no such chassis here, or you may not see it.")
        elif one.is_same:
            self.lines.append(Line(place=one.entry.place, what=what, fit="exact", sentence=_called(one)))
        else:
            stands = f"Another chassis, {one.row.name}, stands for it: {one.how}."
            self.lines.append(Line(place=one.entry.place, what=what, fit="mapped", sentence=stands))

    def _say_drawer(self, one: DrawerPair) -> None:
        if one.chassis.row is None:
            return
        if one.row is None:
            self._misfit(one.entry, one.title, f"{one.chassis.row.name} has no such drawer, or you may not see it.")
            return
        change = note = ""
        mode, row = one.entry.mode, one.row
        if mode and mode not in {row.mode, DrawerMode.UNKNOWN} and row.id is not None:
            if row.may_change_mode:
                change = f"Change its mode from {row.mode} to {mode}."
                self.wanting.modes[row.id] = DrawerMode(mode)
            else:
                note = f"Its mode stays {row.mode}, where the file says {mode}: it is not yours to change."
        fit: Fit = "exact" if one.chassis.is_same else "mapped"
        sentence = "" if one.chassis.is_same else f"{one.chassis.row.name} {row.title}".strip()
        self.lines.append(
            Line(place=one.entry.place, what=one.title, fit=fit, sentence=sentence, change=change, note=note)
        )

    def _say_port(self, drawer: DrawerPair, entry: HostPortEntry) -> None:
        if drawer.chassis.row is None or drawer.row is None:
            return
        what = f"{drawer.title} host port {entry.label}"
        row = port_for(drawer, entry.label, drawer.row)
        if row is None:
            self._misfit(entry, what, why_no_port(drawer, entry.label, drawer.row))
            return
        fits: Fit = "exact" if drawer.chassis.is_same and row.label == entry.label else "mapped"
        changes, notes = self._cable(drawer, entry, row)
        if row.label == entry.label and (reason := self._set(entry, row.port, drawer.row, changes, notes)):
            self._misfit(entry, what, reason)
            return
        notes += self._holder(entry, row.tenant)
        self.lines.append(
            Line(
                place=entry.place,
                what=what,
                fit=fits,
                sentence="" if fits == "exact" else f"{drawer.chassis.row.name} {row.label} stands for it.",
                change=" ".join(changes),
                note=" ".join(notes),
            )
        )

    def _cable(self, drawer: DrawerPair, entry: HostPortEntry, row: SitePort) -> tuple[list[str], list[str]]:
        if cabled(entry, row) or row.label != entry.label:
            return [], []
        now = row.host.name if row.host else "no host"
        name = entry.host.name if isinstance(entry.host, HostEntry) else "no host"
        host = next(
            (one for one in self.site.hosts if isinstance(entry.host, HostEntry) and same_host(entry.host, one)), None
        )
        if not drawer.chassis.is_same or (host is None and isinstance(entry.host, HostEntry)):
            return [], [f"Its cable leads to {now}, where the file says {quoted(name)}: it stays."]
        if not self.site.may_move_cables:
            return [], [f"Its cable leads to {now}, where the file says {quoted(name)}: it is not yours to move."]
        self.wanting.cables[row.id] = None if host is None else host.id
        return [f"Move its cable from {now} to {name}."], []

    def _set(self, entry: PortEntry, port: int | None, drawer: SiteDrawer, changes: list[str], notes: list[str]) -> str:
        """Want what the file says of a port; return why it cannot be."""
        if port is None:
            return ""
        wanted, reason = want_setting(entry, drawer.settings.get(port), changes, notes)
        if wanted is not None:
            self.wanting.settings[port] = wanted
        return reason

    def _holder(self, entry: PortEntry, tenant: str) -> list[str]:
        if not entry.tenant or entry.tenant == tenant or not self.site.is_administrator:
            return []
        held = f"{tenant} holds it" if tenant else "It is in the free pool"
        return [f"{held}, where the file says {quoted(entry.tenant)}: an import grants nothing."]

    def _say_slot(self, at: int, asked: Asked) -> None:
        entry = asked.entry
        if at not in self.finder.found:
            row = asked.drawer.chassis.row
            why = self.finder.why.get(at, "")
            if row is None and self.by != "serial":
                why = "There is no such chassis here, or you may not see it."
            self._misfit(entry, asked.what, why)
            return
        found, fit = self.finder.found[at]
        changes: list[str] = []
        notes = self._holder(entry, found.device.tenant)
        reason = self._attach(asked, found, changes)
        reason = reason or self._set(entry, found.device.port, found.drawer, changes, notes)
        if reason:
            self.wanting.attachments.pop(found.device.id, None)
            self._misfit(entry, asked.what, reason)
            return
        device = entry.device
        if fit == "mapped" and device is not None and device.kind and device.kind != found.device.kind:
            notes.append(f"It is of another kind: {found.device.kind}, where the file says {device.kind}.")
        self.lines.append(
            Line(
                place=entry.place,
                what=asked.what,
                fit=fit,
                sentence="" if fit == "exact" else f"{found.title} stands for it.",
                change=" ".join(changes),
                note=" ".join(notes),
            )
        )

    def _attach(self, asked: Asked, found: Found, changes: list[str]) -> str:
        """Want the device to be attached as the file says; return why that cannot be."""
        label, device = asked.entry.attached_to, found.device
        if isinstance(label, Said):
            return ""
        port = None if label is None else port_for(asked.drawer, label, found.drawer)
        if label is not None and port is None:
            where = f"{found.chassis.name} {found.drawer.title}".strip()
            return f"{where} has no host port that stands for {quoted(label)}, or you may not see it."
        if device.held_elsewhere:
            return f"{device.name} is attached to a host port that is not yours: only its holder can move it."
        target = None if port is None else port.id
        if target == device.attached:
            return ""
        if device.fixed:
            return device.fixed
        self.wanting.attachments[device.id] = target
        before = next((one for one in found.drawer.ports if one.id == device.attached), None)
        if port is None:
            changes.append(f"Detach it from {_place(before)}.")
        elif before is None:
            changes.append(f"Attach it to {_place(port)}.")
        else:
            changes.append(f"Move it from {_place(before)} to {_place(port)}.")
        return ""

    def _misfit(self, entry: Entry, what: str, sentence: str) -> None:
        self.lines.append(Line(place=entry.place, what=what, fit="does_not_fit", sentence=sentence))


def _called(one: ChassisPair) -> str:
    """Return what there is to say of a chassis that is the same: that it has another name here."""
    if one.row is None or one.row.name == one.entry.name:
        return ""
    return f"It was told {one.how}, and is called {one.row.name} here."


def _place(port: SitePort | None) -> str:
    if port is None:
        return "another host port"
    return f"{port.host.name} ({port.label})" if port.host else port.label
