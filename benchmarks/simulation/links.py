"""The shared, directed links of a host, and the paths of transfers over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.model.features import edge_between_places, edge_within_place, link_rate
from benchmarks.model.reference_data import (
    GLOO_LOOPBACK,
    LANE_RATES,
    X16_GEN3_RATE,
    drive_datasheet,
)
from benchmarks.model.topology import LOCAL, Accelerator, Topology
from benchmarks.simulation.constants import HOP_SECONDS, HOST_LANES, NETWORK_RATE, PACKET_SHARE, READ_REACHED
from benchmarks.simulation.engine import SimulatedActivity

HOST_UP, HOST_DOWN, CORES, LOOPBACK = "host/up", "host/down", "cores", "loopback"
NETWORK_OUT, NETWORK_IN = "network/out", "network/in"
SLOWER = ("nvlink", "pcie", "network")  # kinds of edges, the quicker first


@dataclass(frozen=True)
class TransferRoute:
    """What a byte takes of each resource, the most that one transfer reaches, and seconds of one hop."""

    path: Mapping[str, float]
    limit: float = float("inf")
    kind: str = "pcie"

    def slowest(self, free: Callable[[str], float]) -> float:
        """Return what one transfer reaches where nothing else is on its way."""
        return min([self.limit, *(free(name) / weight for name, weight in self.path.items())])

    @property
    def hop(self) -> float:
        return HOP_SECONDS[self.kind]

    def transfer(self, size: float, key: str) -> SimulatedActivity:
        """Return the moving of some bytes; equal keys are of equal ways."""
        if not self.path:
            return SimulatedActivity(size / self.limit)
        return SimulatedActivity(size, key=key, path=self.path, limit=self.limit)


def of_host(host: str, name: str) -> str:
    """Return the name of a resource of a host, '' for the first of a run."""
    return f"{host}: {name}" if host else name


class HostLinks:
    """The links of one run's topology; `run` keeps the cards of runs on one host apart, all else is shared."""

    def __init__(self, topology: Topology, devices: Sequence[Accelerator], run: str = "") -> None:
        self._topology = topology
        self._devices = sorted(devices, key=lambda device: (device.host, device.place))
        self._run = run

    @property
    def drive(self) -> str:
        """The name of the drive: runs that read from another do not share it."""
        return f"drive {self._topology.storage.place}/{self._topology.storage.model}"

    def capacities(self) -> dict[str, float]:
        """Return the capacity of each resource: bytes a second of links, and cores."""
        topology = self._topology
        found = {LOOPBACK: GLOO_LOOPBACK.rate}
        links = [device.link for device in self._devices] + list(topology.uplinks.values())
        lane = max([LANE_RATES[3], *(link_rate(link) / link.lanes for link in links)])  # a host that has faster links
        for host in ("", *topology.other_hosts):
            bridge = HOST_LANES * lane * PACKET_SHARE
            drive = drive_datasheet(topology.storage.model).rate * READ_REACHED
            own = {
                CORES: float(max(1, topology.cores)),
                HOST_UP: bridge,
                HOST_DOWN: bridge,
                NETWORK_OUT: NETWORK_RATE,
                NETWORK_IN: NETWORK_RATE,
                self.drive: drive,
            }
            found |= {of_host(host, name): amount for name, amount in own.items()}
        for device in self._devices:
            for way in ("in", "out"):
                found[self._port(device, way)] = link_rate(device.link) * PACKET_SHARE
        for place, link in topology.uplinks.items():
            for way in ("down", "up"):
                found[f"{place}/{way}"] = link_rate(link) * PACKET_SHARE
        return found

    def _port(self, device: Accelerator, way: str) -> str:
        return f"{self._run}{device.name}/{way}"

    def _up(self, place: str, host: str = "") -> dict[str, float]:
        """Return the way from a place to the memory of its host."""
        uplink = {f"{place}/up": 1.0} if place in self._topology.uplinks and place != LOCAL else {}
        return {of_host(host, HOST_UP): 1.0, **uplink}

    def _down(self, place: str, host: str = "") -> dict[str, float]:
        uplink = {f"{place}/down": 1.0} if place in self._topology.uplinks and place != LOCAL else {}
        return {of_host(host, HOST_DOWN): 1.0, **uplink}

    def copy(self, device: Accelerator) -> TransferRoute:
        """Return the way from the host's memory to a device."""
        return TransferRoute({**self._down(device.place, device.host), self._port(device, "in"): 1.0})

    def read(self, host: str = "") -> TransferRoute:
        """Return the way from the drive to the host's memory; further hosts have drives like the first."""
        storage = self._topology.storage
        path = {**self._up(LOCAL if host else storage.place, host), of_host(host, self.drive): 1.0}
        return TransferRoute(path, limit=link_rate(storage.link) * PACKET_SHARE)

    def edge(self, one: Accelerator, other: Accelerator, group: Sequence[Accelerator]) -> TransferRoute:
        """Return the way from one device to another; `group` are those of its place that communicate at once."""
        out, into = self._port(one, "out"), self._port(other, "in")
        if one.host != other.host:
            path = {
                out: 1.0,
                **self._up(one.place, one.host),
                of_host(one.host, NETWORK_OUT): 1.0,
                of_host(other.host, NETWORK_IN): 1.0,
                **self._down(other.place, other.host),
                into: 1.0,
            }
            return TransferRoute(path, limit=NETWORK_RATE, kind="network")
        if one.place == other.place:
            kind, rate, _ = edge_within_place(one.place, group, self._topology)
            if kind == "nvlink":
                return TransferRoute({}, limit=rate, kind="nvlink")
            bridge = (of_host(one.host, HOST_UP), of_host(one.host, HOST_DOWN))
            across = dict.fromkeys(bridge, 1.0) if one.place == LOCAL else {}
            return TransferRoute({out: 1.0, into: 1.0, **across}, limit=rate)
        edge = edge_between_places({one.place, other.place})
        uplinks = [link for place, link in self._topology.uplinks.items() if place in (one.place, other.place)]
        narrowest = min(link_rate(link) for link in (one.link, other.link, *uplinks))
        return TransferRoute(
            {out: 1.0, **self._up(one.place, one.host), **self._down(other.place, one.host), into: 1.0},
            limit=edge.rate * narrowest / X16_GEN3_RATE,
        )

    def _beside(self, one: Accelerator) -> list[Accelerator]:
        """Return the devices of one's place, with it."""
        return [device for device in self._devices if (device.host, device.place) == (one.host, one.place)]

    def ring(self, count: int) -> TransferRoute:
        """Return the way of a byte that each device sends to its neighbour at once, places one after the other."""
        devices = self._devices
        if not devices:
            return TransferRoute({LOOPBACK: float(count)}, kind="loopback")
        path: Counter[str] = Counter()
        limit, kind = float("inf"), "nvlink"
        for one, other in zip(devices, [*devices[1:], devices[0]], strict=True):
            edge = self.edge(one, other, self._beside(one))
            path.update(edge.path)
            limit = min(limit, edge.limit)
            kind = max(kind, edge.kind, key=SLOWER.index)
        return TransferRoute(path, limit=limit, kind=kind)

    def pcie_neighbours(self) -> dict[str, tuple[bool, bool]]:
        """Return, by device, whether a ring's bytes come to it and leave it over PCIe."""
        devices, over = self._devices, []
        for one, other in zip(devices, [*devices[1:], *devices[:1]], strict=True):
            over.append(len(devices) > 1 and self.edge(one, other, self._beside(one)).kind != "nvlink")
        return {device.name: (over[index - 1], over[index]) for index, device in enumerate(devices)}
