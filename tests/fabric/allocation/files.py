"""Allocation files and sites of any shape, for the tests of both."""

from __future__ import annotations

from typing import Any

from fabric.allocation.document import AllocationDocument
from fabric.allocation.reader import parse_file
from fabric.allocation.rules import SiteChassis, SiteDevice, SiteDrawer, SiteHardware, SiteHost, SitePort
from fabric.operations.rules import PortSetting

NODES = {name: SiteHost(id=at, name=name, identity=f"uuid-of-{name}") for at, name in enumerate(("a", "b", "c"), 900)}


def document(text: str) -> AllocationDocument:
    """Return the document of a text without problems."""
    read = parse_file(text.encode())
    assert not read.problems, read.problems
    assert read.document is not None
    return read.document


def device(pk: int, slot: int | None, *, attached: int | None = None, **values: Any) -> SiteDevice:
    """Return a GPU with a serial number of its own."""
    known: dict[str, Any] = {
        "name": f"GPU {pk}", "kind": "gpu", "manufacturer": "NVIDIA", "model": "A100", "serial_number": f"S{pk}",
        "has_unique_serial": True, "port": 1000 + pk,
    }  # fmt: skip
    return SiteDevice(id=pk, slot=slot, attached=attached, **{**known, **values})


def drawer(pk: int, number: int, *devices: SiteDevice, first: int = 1, mode: str = "Advanced") -> SiteDrawer:
    """Return a drawer whose host ports H1 to H3 lead to the three nodes; their ids begin at ten times the drawer's."""
    ports = tuple(
        SitePort(id=pk * 10 + at, label=f"H{first + at}", number=first + at, host=host, port=pk * 100 + at)
        for at, host in enumerate(NODES.values())
    )
    settings = {port.port: PortSetting(port_type="UpstreamPort", configured_width=16) for port in ports if port.port}
    settings |= {one.port: PortSetting(port_type="DownstreamPort", configured_width=16) for one in devices if one.port}
    return SiteDrawer(
        id=pk, number=number, name=f"Drawer {number}", mode=mode, may_change_mode=True, ports=ports, devices=devices,
        settings=settings,
    )  # fmt: skip


def site(*drawers: SiteDrawer, **values: Any) -> SiteHardware:
    """Return an administrator's site of one chassis, falcon-1 of UUID u-1."""
    return SiteHardware(
        chassis=(chassis(1, *drawers),), hosts=tuple(NODES.values()), may_move_cables=True, is_administrator=True,
        **values,
    )  # fmt: skip


def chassis(pk: int, *drawers: SiteDrawer, **values: Any) -> SiteChassis:
    """Return a chassis."""
    known: dict[str, Any] = {
        "name": f"falcon-{pk}", "uuid": f"u-{pk}", "manufacturer": "H3", "model": "4016", "serial_number": f"C{pk}",
        "composable": True,
    }  # fmt: skip
    return SiteChassis(id=pk, drawers=drawers, **{**known, **values})


def file(*slots: str, chassis: str = "name: falcon-1, uuid: u-1", drawer: str = "number: 1", ports: str = "") -> str:
    """Return a file of one drawer, as YAML: each slot in the flow style, one a line from line 5 on."""
    inside = "".join(f"    {{{slot}}},\n" for slot in slots)
    return (
        "format: falconweb-allocation\nversion: 1\nchassis:\n"
        f"- {{{chassis}, drawers: [{{{drawer}, host_ports: [{ports}], slots: [\n{inside}  ]}}]}}\n"
    )
