"""The hardware as a user sees it, as pure values: the source of an export, and the target of a file.

Names are unique within their parent, by a numeric suffix where necessary, since a file refers to everything by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from core.documents import DocumentPosition
from core.language import _, gettext_noop
from fabric.operations.rules import PortSetting
from fabric.plans.rules import DesiredState

# What a file says of a chassis and of a device, in this order, under the names that rows have too.
CHASSIS_FIELDS: Final = ("name", "uuid", "manufacturer", "model", "serial_number")
DEVICE_FIELDS: Final = ("name", "kind", "manufacturer", "model", "serial_number")


def field_values(row: object, names: Iterable[str]) -> dict[str, Any]:
    """Return these attributes of a row, for one of the classes below."""
    return {name: getattr(row, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class SiteHost:
    id: int
    name: str
    identity: str


@dataclass(frozen=True, kw_only=True)
class SitePort:
    """A host port: row id, the host of its cable, the id of the switch port behind it; `tenant` for administrators."""

    id: int
    label: str
    number: int
    host: SiteHost | None
    port: int | None
    tenant: str = ""


@dataclass(frozen=True, kw_only=True)
class SiteDevice:
    """A device: `slot` None where it has no slot with a unique number, `attached` the id of a host port.

    `attached_elsewhere`: it is attached to a host port that the user does not see. `fixed` says why it cannot be
    attached, '' if it can. `serial_number` is the hardware's; `has_unique_serial` if no other one here has it.
    """

    id: int
    name: str
    kind: str
    manufacturer: str
    model: str
    serial_number: str
    has_unique_serial: bool
    slot: int | None
    port: int | None
    attached: int | None
    attached_elsewhere: bool = False
    fixed: str = ""
    tenant: str = ""


@dataclass(frozen=True, kw_only=True)
class SiteDrawer:
    """A drawer, id None: parts outside drawers; `number` None where it is not unique in the chassis."""

    id: int | None
    number: int | None
    name: str
    mode: str
    may_change_mode: bool
    ports: tuple[SitePort, ...]
    devices: tuple[SiteDevice, ...]
    settings: Mapping[int, PortSetting] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The label of the drawer, '' for no drawer."""
        return self.name or (_("drawer {number}", number=self.number) if self.number is not None else "")


@dataclass(frozen=True, kw_only=True)
class SiteChassis:
    """A chassis; `composable` if devices can be attached there."""

    id: int
    name: str
    uuid: str
    manufacturer: str
    model: str
    serial_number: str
    composable: bool
    drawers: tuple[SiteDrawer, ...]


@dataclass(frozen=True, kw_only=True)
class SiteHardware:
    """All hardware that the user sees; `hosts` are the targets of cables that the user may change."""

    chassis: tuple[SiteChassis, ...]
    hosts: tuple[SiteHost, ...] = ()
    may_move_cables: bool = False
    is_administrator: bool = False


MappingMode = Literal["exact", "slot", "serial", "kind"]
MAPPING_MODES: Final[dict[MappingMode, str]] = {
    "exact": gettext_noop("Only what is the same here: the same chassis, slot and device"),
    "serial": gettext_noop("By serial number: the device, wherever it is now"),
    "slot": gettext_noop("By slot: whatever is in the same slot"),
    "kind": gettext_noop("By kind: a device of the same kind and model, as near as possible"),
}
EntryFit = Literal["exact", "mapped", "does_not_fit"]


@dataclass(frozen=True, kw_only=True)
class ReportLine:
    """The result for one entry of the file: how it fits, why, its changes, and notes."""

    place: DocumentPosition
    what: str
    fit: EntryFit
    sentence: str = ""
    change: str = ""
    note: str = ""

    def as_json(self) -> dict[str, str | int]:
        plain = asdict(self)
        return {**plain.pop("place"), **plain}


@dataclass(frozen=True, kw_only=True)
class AllocationReport:
    """The results for all entries, and the desired state of this site from those that fit."""

    by: MappingMode
    lines: tuple[ReportLine, ...] = ()
    desired: DesiredState = field(default_factory=DesiredState)

    @property
    def exact(self) -> tuple[ReportLine, ...]:
        return tuple(line for line in self.lines if line.fit == "exact")

    @property
    def mapped(self) -> tuple[ReportLine, ...]:
        """The entries that are mapped to something else."""
        return tuple(line for line in self.lines if line.fit == "mapped")

    @property
    def misfits(self) -> tuple[ReportLine, ...]:
        return tuple(line for line in self.lines if line.fit == "does_not_fit")

    @property
    def changes(self) -> tuple[ReportLine, ...]:
        return tuple(line for line in self.lines if line.change)

    @property
    def notes(self) -> tuple[ReportLine, ...]:
        """The entries with notes that no other list includes."""
        return tuple(line for line in self.lines if line.note)

    @property
    def is_empty(self) -> bool:
        return self.desired == DesiredState()

    def as_json(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "exact": len(self.exact),
            "mapped": len(self.mapped),
            "does_not_fit": len(self.misfits),
            "changes": len(self.changes),
            "nothing_to_change": self.is_empty,
            "entries": [line.as_json() for line in self.lines],
        }
