"""The hardware as a person sees it, pure: what an export writes down, and what a file is mapped onto.

Names are distinct within what holds them, by a number behind those that are not: a file tells everything by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fabric.planning import Setting


@dataclass(frozen=True, kw_only=True)
class SiteHost:
    """A host: row id, name and identity."""

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
    """A device: `slot` None in none that has a number of its own, `attached` the id of a host port.

    `held_elsewhere`: it is attached to a host port that the person does not see. `fixed` says why it can be attached
    nowhere, '' if it can. `serial_number` is the hardware's; `is_told_by_serial` if nobody else here has the same.
    """

    id: int
    name: str
    kind: str
    manufacturer: str
    model: str
    serial_number: str
    is_told_by_serial: bool
    slot: int | None
    port: int | None
    attached: int | None
    held_elsewhere: bool = False
    fixed: str = ""
    tenant: str = ""


@dataclass(frozen=True, kw_only=True)
class SiteDrawer:
    """A drawer, id None: what is in no drawer; `number` None where others of the chassis have the same."""

    id: int | None
    number: int | None
    name: str
    mode: str
    may_change_mode: bool
    ports: tuple[SitePort, ...]
    devices: tuple[SiteDevice, ...]
    settings: Mapping[int, Setting] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The drawer in words, '' for no drawer."""
        return self.name or (f"drawer {self.number}" if self.number is not None else "")


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
class Site:
    """All that the person sees; `hosts` are those that a cable may lead to, where the person may have it moved."""

    chassis: tuple[SiteChassis, ...]
    hosts: tuple[SiteHost, ...] = ()
    may_move_cables: bool = False
    is_administrator: bool = False
