"""An allocation as frozen values, and as the text of a file: the same allocation always gives the same bytes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, Final, Literal

import yaml

from core.documents import DocumentPosition, yaml_plain_value
from fabric.allocation.rules import (
    CHASSIS_FIELDS,
    DEVICE_FIELDS,
    SiteChassis,
    SiteDevice,
    SiteDrawer,
    SiteHardware,
    SitePort,
    field_values,
)
from fabric.allocation.schema import FORMAT, MAX_LANES, VERSION
from fabric.operations.rules import PortSetting

Format = Literal["json", "yaml"]
FORMATS: Final[tuple[Format, ...]] = ("json", "yaml")
PRODUCER: Final = "FalconWeb"


class FieldPresence(Enum):
    """Whether a file has a field: objects that it does not name stay unchanged."""

    NOTHING = "nothing"


NOT_SPECIFIED: Final = FieldPresence.NOTHING


@dataclass(frozen=True, kw_only=True)
class DocumentEntry:
    """An entry of a file with its position, which does not count in comparisons."""

    place: DocumentPosition = field(default=DocumentPosition(), compare=False)


@dataclass(frozen=True, kw_only=True)
class PortEntry(DocumentEntry):
    """The port fields of an entry; '' and None leave its type and lanes unchanged."""

    port_type: str = ""
    lanes: int | None = None
    tenant: str = ""


@dataclass(frozen=True, kw_only=True)
class DeviceEntry:
    name: str = ""
    kind: str = ""
    manufacturer: str = ""
    model: str = ""
    serial_number: str = ""


@dataclass(frozen=True, kw_only=True)
class SlotEntry(PortEntry):
    """A slot with its device; `attached_to` is a label, None for no host."""

    slot: int | None
    device: DeviceEntry | None = None
    attached_to: str | FieldPresence | None = NOT_SPECIFIED


@dataclass(frozen=True, kw_only=True)
class HostEntry:
    name: str
    identity: str = ""


@dataclass(frozen=True, kw_only=True)
class HostPortEntry(PortEntry):
    """A host port; `host` None: no cable."""

    label: str
    host: HostEntry | FieldPresence | None = NOT_SPECIFIED


@dataclass(frozen=True, kw_only=True)
class DrawerEntry(DocumentEntry):
    """A drawer; without number and name, the parts outside drawers. `mode` '' is absent."""

    number: int | None = None
    name: str = ""
    mode: str = ""
    host_ports: tuple[HostPortEntry, ...] = ()
    slots: tuple[SlotEntry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChassisEntry(DocumentEntry):
    name: str
    uuid: str = ""
    manufacturer: str = ""
    model: str = ""
    serial_number: str = ""
    drawers: tuple[DrawerEntry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AllocationDocument:
    """A whole file; `scope` is 'everything', 'chassis' or 'tenant', followed by its name ('' absent)."""

    chassis: tuple[ChassisEntry, ...] = ()
    scope: str = ""
    scope_name: str = ""

    def text(self, format: Format) -> str:  # noqa: A002 - the URL parameter
        """Return the file, ending in a line break."""
        plain = self.plain()
        if format == "json":
            return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
        dumped: str = yaml.dump(
            plain, Dumper=_YamlDumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=2**20
        )
        return dumped

    def plain(self) -> dict[str, Any]:
        """Return it in the form of the schema."""
        scope = {"kind": self.scope, "name": self.scope_name} if self.scope_name else {"kind": self.scope}
        return {
            "format": FORMAT,
            "version": VERSION,
            "made_by": PRODUCER,
            **({"scope": scope} if self.scope else {}),
            "chassis": [_chassis(one) for one in self.chassis],
        }


def _chassis(entry: ChassisEntry) -> dict[str, Any]:
    return {
        **field_values(entry, CHASSIS_FIELDS),
        "drawers": [
            {
                "number": one.number,
                "name": one.name,
                **({"mode": one.mode} if one.mode else {}),
                "host_ports": [_host_port(port) for port in one.host_ports],
                "slots": [_slot(slot) for slot in one.slots],
            }
            for one in entry.drawers
        ],
    }


def _host_port(entry: HostPortEntry) -> dict[str, Any]:
    host = entry.host
    cabled = {} if isinstance(host, FieldPresence) else {"host": host and asdict(host)}
    return {"label": entry.label, **cabled, **_port(entry)}


def _slot(entry: SlotEntry) -> dict[str, Any]:
    device = {} if entry.device is None else asdict(entry.device)
    if not device.get("kind"):
        device.pop("kind", None)
    return {
        "slot": entry.slot,
        **({"device": device} if device else {}),
        **({} if isinstance(entry.attached_to, FieldPresence) else {"attached_to": entry.attached_to}),
        **_port(entry),
    }


def _port(entry: PortEntry) -> dict[str, Any]:
    return {
        "port_type": entry.port_type or None,
        "lanes": entry.lanes,
        **({"tenant": entry.tenant} if entry.tenant else {}),
    }


class _YamlDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # libyaml's, where the wheel has it
    """Quotes texts that YAML 1.2 and this site's reader would take for another type."""


def _represent_text(dumper: Any, text: str) -> Any:
    # libyaml does not quote '1e5' and '0123': to YAML 1.1 they are texts.
    style = None if yaml_plain_value(text) is text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_YamlDumper.add_representer(str, _represent_text)


def export_document(site: SiteHardware, *, scope: str = "everything", scope_name: str = "") -> AllocationDocument:
    """Return the document of the site: chassis by name, drawers, host ports and slots by number."""
    return AllocationDocument(
        scope=scope, scope_name=scope_name, chassis=tuple(_chassis_entry(one) for one in site.chassis)
    )


def _chassis_entry(row: SiteChassis) -> ChassisEntry:
    drawers = tuple(_drawer_entry(one) for one in row.drawers)
    return ChassisEntry(**field_values(row, CHASSIS_FIELDS), drawers=drawers)


def _drawer_entry(row: SiteDrawer) -> DrawerEntry:
    labels = {port.id: port.label for port in row.ports}
    return DrawerEntry(
        number=row.number,
        name=row.name,
        mode=row.mode if row.id is not None else "",
        host_ports=tuple(_host_port_entry(port, row) for port in row.ports),
        slots=tuple(_slot_entry(device, row, labels) for device in row.devices),
    )


def _host_port_entry(row: SitePort, drawer: SiteDrawer) -> HostPortEntry:
    host = HostEntry(name=row.host.name, identity=row.host.identity) if row.host else None
    setting = _exported_setting(row.port, drawer)
    return HostPortEntry(
        label=row.label, host=host, port_type=setting.port_type, lanes=setting.configured_width, tenant=row.tenant
    )


def _slot_entry(row: SiteDevice, drawer: SiteDrawer, labels: dict[int, str]) -> SlotEntry:
    setting = _exported_setting(row.port, drawer)
    elsewhere = row.attached_elsewhere or (row.attached is not None and row.attached not in labels)
    device = DeviceEntry(**field_values(row, DEVICE_FIELDS))
    return SlotEntry(
        slot=row.slot,
        device=device if row.has_unique_serial else replace(device, serial_number=""),
        attached_to=NOT_SPECIFIED if elsewhere else None if row.attached is None else labels[row.attached],
        port_type=setting.port_type,
        lanes=setting.configured_width,
        tenant=row.tenant,
    )


def _exported_setting(port: int | None, drawer: SiteDrawer) -> PortSetting:
    known = drawer.settings.get(port, PortSetting()) if port is not None else PortSetting()
    lanes = known.configured_width
    return PortSetting(port_type=known.port_type, configured_width=lanes if lanes and 1 <= lanes <= MAX_LANES else None)
