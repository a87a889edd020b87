"""Topologies as InfraGraph, a graph of infrastructure for simulators of networks: its `Infrastructure` as JSON.

A host is a device with its CPU, its own accelerators, a drive and a root port for each uplink; a switch of a chassis
and an accelerator below it are devices of their own. Bandwidths are those of the links as trained, one way, after their
line code. NVLink has none: which GPUs it joins how often is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.model.features import link_rate
from benchmarks.model.reference_data import GB
from benchmarks.model.topology import LOCAL, Accelerator, PcieLink, Topology

NVLINK, INTERNAL = "nvlink", "internal"
CPU, PORT, DRIVE, SWITCH, XPU = "cpu", "port", "drive", "switch", "xpu"
MANY_TO_MANY, ONE_TO_ONE = "many2many", "one2one"


def infragraph(topology: Topology) -> dict[str, Any]:
    """Return a topology as an Infrastructure of InfraGraph, from its version 3 on."""
    hosts = (topology.host, *topology.other_hosts)
    places = _places(topology)
    chassis = [one for one in topology.accelerators if one.place != LOCAL]
    models = sorted({one.model for one in chassis})
    devices = [_host_device(topology, number, name, places) for number, name in enumerate(hosts)]
    instances = [
        _instance(f"host-{number}", f"host-{number}", 1, name or "the host") for number, name in enumerate(hosts)
    ]
    edges, links = [], {_link_name(link): link for link in topology.uplinks.values()}
    if places:
        devices.append(_device("pcie-switch", "A switch of a chassis", [_component(SWITCH, 1, SWITCH)]))
    devices += [_device(_name(model), model, [_component(XPU, 1, XPU)]) for model in models]
    for number, (place, owner) in enumerate(places.items()):
        switch, uplink = f"switch-{number}", topology.uplinks.get(place, PcieLink())
        links[_link_name(uplink)] = uplink
        instances.append(_instance(switch, "pcie-switch", 1, place))
        ports = [one for one, host in places.items() if host == owner]
        edges.append(
            _edge(
                (f"host-{hosts.index(owner)}[0]", f"{PORT}[{ports.index(place)}]"), (f"{switch}[0]", f"{SWITCH}[0]"),
                _link_name(uplink), ONE_TO_ONE,
            )
        )  # fmt: skip
        for (model, link), members in _kinds(one for one in chassis if one.place == place).items():
            links[_link_name(link)] = link
            name = f"{switch}-{_name(model)}-{_link_name(link)}"
            instances.append(_instance(name, _name(model), len(members), ", ".join(one.name for one in members)))
            below = f"{name}[0:{len(members)}]"
            edges.append(_edge((f"{switch}[0]", SWITCH), (below, XPU), _link_name(link), MANY_TO_MANY))
        if topology.storage.place == place:
            links[_link_name(topology.storage.link)] = topology.storage.link
            devices.append(
                _device("chassis-drive", topology.storage.model, [_component(DRIVE, 1, "custom", "storage")])
            )
            instances.append(_instance("chassis-drive-0", "chassis-drive", 1, topology.storage.model))
            ends = (f"{switch}[0]", SWITCH), ("chassis-drive-0[0]", DRIVE)
            edges.append(_edge(*ends, _link_name(topology.storage.link), ONE_TO_ONE))
    return {
        "name": _name(topology.name or topology.host or "topology"),
        "description": f"{topology.name}: exported by FalconWeb. Bandwidths are of links as trained, one way.",
        "devices": devices,
        "links": [_link(name, one) for name, one in sorted(links.items())],
        "instances": instances,
        "edges": edges,
    }


def _places(topology: Topology) -> dict[str, str]:
    """Return the hosts of the switches below host ports, by their places, in the order of ranks."""
    found = {one.place: one.host or topology.host for one in topology.accelerators if one.place != LOCAL}
    for place in (topology.storage.place, *topology.uplinks):
        if place != LOCAL:
            found.setdefault(place, topology.host)
    return found


def _host_device(topology: Topology, number: int, host: str, places: dict[str, str]) -> dict[str, Any]:
    own = [one for one in topology.accelerators if one.place == LOCAL and (one.host or topology.host) == host]
    uplinks = sum(one == host for one in places.values())
    components = [_component(CPU, 1, CPU, description=f"{topology.cores} cores" if number == 0 else "")]
    edges: list[dict[str, Any]] = []
    links: dict[str, PcieLink | None] = {}
    names: list[str] = []
    for (model, link), members in _kinds(own).items():
        names.append(f"{XPU}-{_name(model)}-{_link_name(link)}")
        components.append(_component(names[-1], len(members), XPU, description=model))
        links[_link_name(link)] = link
        edges.append(_part_edge(CPU, names[-1], _link_name(link), MANY_TO_MANY))
    if topology.local_fabric == "nvlink" and len(own) > 1:
        links[NVLINK] = None
        for place, name in enumerate(names):
            edges += [_part_edge(name, other, NVLINK, MANY_TO_MANY) for other in names[place:]]
    if uplinks:
        components.append(_component(PORT, uplinks, PORT))
        links[INTERNAL] = None
        edges.append(_part_edge(CPU, PORT, INTERNAL, MANY_TO_MANY))
    if number == 0 and topology.storage.place == LOCAL:
        components.append(_component(DRIVE, 1, "custom", "storage", description=topology.storage.model))
        links[_link_name(topology.storage.link)] = topology.storage.link
        edges.append(_part_edge(CPU, DRIVE, _link_name(topology.storage.link), MANY_TO_MANY))
    return {
        **_device(f"host-{number}", host or "the host", components),
        "links": [_link(name, one) for name, one in sorted(links.items())],
        "edges": edges,
    }


def _kinds(devices: Iterable[Accelerator]) -> dict[tuple[str, PcieLink], list[Accelerator]]:
    found: dict[tuple[str, PcieLink], list[Accelerator]] = {}
    for one in devices:
        found.setdefault((one.model, one.link), []).append(one)
    return found


def _name(text: str) -> str:
    """Return a text as a name: dots and brackets are InfraGraph's own."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "unknown"


def _link_name(link: PcieLink) -> str:
    return f"pcie{link.generation}-x{link.lanes}"


def _link(name: str, link: PcieLink | None) -> dict[str, Any]:
    if link is None:
        return {"name": name, "description": "NVLink between GPUs" if name == NVLINK else "Within the CPU"}
    rate = {"choice": "gigabytes_per_second", "gigabytes_per_second": round(link_rate(link) / GB, 3)}
    return {"name": name, "physical": {"bandwidth": rate}}


def _device(name: str, description: str, components: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "description": description, "components": list(components), "links": [], "edges": []}


def _component(name: str, count: int, choice: str, kind: str = "", description: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "count": count, "choice": choice, choice: {"type": kind} if kind else {}}
    return found | ({"description": description} if description else {})


def _instance(name: str, device: str, count: int, description: str) -> dict[str, Any]:
    return {"name": name, "device": device, "count": count, "description": description}


def _edge(one: tuple[str, str], other: tuple[str, str], link: str, scheme: str) -> dict[str, Any]:
    ends = [{"instance": instance, "component": component} for instance, component in (one, other)]
    return {"ep1": ends[0], "ep2": ends[1], "scheme": scheme, "link": link}


def _part_edge(one: str, other: str, link: str, scheme: str) -> dict[str, Any]:
    return {"ep1": {"component": one}, "ep2": {"component": other}, "scheme": scheme, "link": link}
