"""The hosts of a run, each with its devices as it reports them, and what it is requested to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import msgspec
from django.utils.crypto import salted_hmac

from benchmarks.runs.claims import RunClaim, RunFailed
from benchmarks.runs.models import Run, RunNode
from benchmarks.runs.recording import GPU_PREFIX, node_reading_key
from benchmarks.runs.rules import Composition, HostShare, rank_counts
from benchmarks.runs.simulation import host_profile, simulation_profile
from benchmarks.runs.topology import device_label, own_drive, recorded_topology
from fabric.agents.models import HostAgent
from fabric.agents.selectors import attached_devices, device_selector, latest_report, match_device
from fabric.inventory.models import Device
from hostwire.protocol import DeviceSelector, HostReport, PciDevice, TrainRequest
from hostwire.training import NodePart, SentSpec, SimulationProfile

DEVICE_VISIBLE_TIMEOUT: Final = 45.0  # for an attached device to appear in its host's report, and to NVML there
RENDEZVOUS_PORTS: Final = range(20000, 32768)  # below those that Linux gives to connections
TOKEN_LENGTH: Final = 32  # hexadecimal digits


@dataclass(frozen=True)
class HostDevices:
    """The devices of a run at one of its hosts, as that reports them.

    `devices` are the GPUs in the order of ranks, then the drive; `addresses` are PCI addresses by the label of the
    device, `foreign` those of all chassis devices attached to the host. `drive` holds the data and may be the host's
    own. `rendezvous` is the host's address in runs over several.
    """

    share: HostShare
    devices: tuple[DeviceSelector, ...]
    addresses: Mapping[str, str]
    foreign: tuple[str, ...]
    drive: PciDevice | None
    rendezvous: str


def node_devices(claim: RunClaim, nodes: Sequence[RunNode]) -> list[HostDevices] | None:
    """Return the devices of a run as its hosts report them; None until all appear. Raises RunFailed."""
    composition = Composition.from_json(claim.run.composition)
    found = []
    for node, share in zip(nodes, composition.shares, strict=True):
        devices = _host_devices(claim, composition, node, share)
        if devices is None:
            return None
        found.append(devices)
    return found


def _host_devices(claim: RunClaim, composition: Composition, node: RunNode, share: HostShare) -> HostDevices | None:
    report = latest_report(HostAgent.objects.filter(host=share.host).first())
    neighbours = attached_devices([share.host]).get(share.host, [])
    gpus: list[DeviceSelector] = []
    drives: list[DeviceSelector] = []
    addresses: dict[str, str] = {}
    drive = own_drive(report, neighbours) if composition.own_drive else None
    if composition.own_drive and drive is None:
        if claim.seconds_in_state > DEVICE_VISIBLE_TIMEOUT:
            raise RunFailed("refused", f"{node.name} no longer shows an NVMe drive of its own.")
        claim.set_sentence(f"Waiting for the NVMe drive of {node.name}, which it does not report.")
        return None
    for pk, device in _devices_in_order(share).items():
        found = match_device(report, device, neighbours) if report is not None else None
        if found is None or found.seen is None:
            why = found.unsure if found is not None and found.unsure else "its host does not report it"
            if claim.seconds_in_state > DEVICE_VISIBLE_TIMEOUT:
                raise RunFailed("refused", f"{device.name} cannot be used: {why}.")
            claim.set_sentence(f"Waiting for {device.name}: {why}.")
            return None
        if _is_late_to_nvml(claim, report, device, found.seen):
            claim.set_sentence(f"Waiting for {device.name}: NVML of {node.name} does not show it.")
            return None
        addresses[device_label(device)] = found.seen.address
        drive = found.seen if pk == composition.storage else drive
        (gpus if device.kind == Device.Kind.GPU else drives).append(device_selector(device, found.seen))
    others = [match_device(report, one, neighbours).seen for one in neighbours] if report is not None else []
    foreign = tuple(sorted({one.address for one in others if one is not None}))
    rendezvous = report.trainer.address if report is not None else ""
    return HostDevices(share, (*gpus, *drives), addresses, foreign, drive, rendezvous)


def _is_late_to_nvml(claim: RunClaim, report: HostReport | None, device: Device, seen: PciDevice) -> bool:
    """Return whether NVML may still show a GPU that CUDA needs; once the time is over, its host says what it has."""
    if claim.run.executor != "torch" or claim.run.specification().backend != "cuda" or device.kind != Device.Kind.GPU:
        return False
    shown = {gpu.address for gpu in report.gpus} if report is not None else set()
    return seen.address not in shown and claim.seconds_in_state <= DEVICE_VISIBLE_TIMEOUT


def _devices_in_order(share: HostShare) -> dict[int, Device]:
    rows = Device.objects.select_related("chassis", "slot").in_bulk(share.devices)
    return {pk: rows[pk] for pk in share.devices if pk in rows}


def address_labels(nodes: Sequence[RunNode], seen: Sequence[HostDevices]) -> dict[str, str]:
    """Return the names of chassis devices by PCI address, of further hosts with their host: as their readings are."""
    return {
        node_reading_key(node, GPU_PREFIX + address).removeprefix(GPU_PREFIX): label
        for node, there in zip(nodes, seen, strict=True)
        for label, address in there.addresses.items()
    }


def train_requests(run: Run, nodes: Sequence[RunNode], seen: Sequence[HostDevices]) -> list[TrainRequest]:
    """Return what each host of a run is requested to start. Raises RunFailed."""
    if run.executor == "simulated":
        profiles: Sequence[SimulationProfile | None] = _profiles(run, nodes, seen)
        return [_train_request(run, there, profile=one) for there, one in zip(seen, profiles, strict=True)]
    parts: Sequence[NodePart | None] = _node_parts(run, seen) if len(nodes) > 1 else [None]
    return [_train_request(run, there, node=part) for there, part in zip(seen, parts, strict=True)]


def _profiles(run: Run, nodes: Sequence[RunNode], seen: Sequence[HostDevices]) -> list[SimulationProfile]:
    """Return what each simulated host plays of a run: the same steps, with the load of its own devices."""
    topology = recorded_topology(run)
    if topology is None:
        raise RunFailed("refused", "Its topology is not recorded.")
    addresses = {label: address for there in seen for label, address in there.addresses.items()}
    drives = [there.drive.address if there.drive is not None else "" for there in seen]
    whole = simulation_profile(
        run.specification(),
        topology,
        addresses,
        drive=drives[0],
        exercise=run.exercise,
        seed=crc32(str(run.pk).encode()),  # a repeated request is the same
    )
    return [
        host_profile(whole, topology, host=node.name if node.number else "", drive=drive)
        for node, drive in zip(nodes, drives, strict=True)
    ]


def _node_parts(run: Run, seen: Sequence[HostDevices]) -> list[NodePart]:
    """Return the part of each host; it follows from the run, so that a repeated request is the same."""
    gpus = run.devices.filter(kind=Device.Kind.GPU).values_list("pk", flat=True)
    ranks = rank_counts(Composition.from_json(run.composition), run.specification(), list(gpus))
    secret = salted_hmac("benchmarks.runs.nodes", str(run.pk), algorithm="sha256").hexdigest()
    return [
        NodePart(
            first_rank=sum(ranks[:number]),
            ranks=ranks[number],
            rendezvous=seen[0].rendezvous,
            port=RENDEZVOUS_PORTS[int(secret[TOKEN_LENGTH:], 16) % len(RENDEZVOUS_PORTS)],
            address=there.rendezvous,
            token=secret[:TOKEN_LENGTH],
        )
        for number, there in enumerate(seen)
    ]


def _train_request(
    run: Run, seen: HostDevices, *, profile: SimulationProfile | None = None, node: NodePart | None = None
) -> TrainRequest:
    return TrainRequest(
        run=str(run.pk),
        spec=msgspec.convert(run.spec, SentSpec),
        executor="simulated" if run.executor == "simulated" else "torch",
        limit=run.limit_seconds,
        devices=seen.devices,
        local=seen.share.local_gpus,
        foreign=seen.foreign if seen.share.local_gpus else (),
        drive=DeviceSelector(address=seen.drive.address, serial=seen.drive.serial) if seen.drive is not None else None,
        profile=profile,
        node=node,
    )
