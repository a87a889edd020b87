"""What a host's agent tells of a device: whether the host sees it, and who uses it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from fabric.models import Device, HostAgent, HostPort
from fabric.services.agents import is_away, report_of
from hostwire.shapes import DeviceWanted, Holder, HostReport, PciDevice

MOST_TOLD: Final = 5  # of those who use a device, in a sentence
LONGEST_TOLD: Final = 80


@dataclass(frozen=True, kw_only=True)
class HostSide:
    """A device as its host shows it; `told` is False where nobody tells: no agent, or one that is away.

    `seen` is None where the host sees no such device; `holders` are those who use it.
    """

    told: bool
    why_untold: str = ""
    seen: PciDevice | None = None
    holders: tuple[Holder, ...] = ()


def host_side_of(device: Device) -> HostSide:
    """Return what the host that a device is attached to tells of it; best read with `host_port__host`."""
    return host_sides_of([device])[device.pk]


def host_sides_of(devices: Collection[Device]) -> dict[int, HostSide]:
    """Return what the hosts of devices tell of them, by the devices' ids; one query, each report is read once."""
    hosts = {one.host_port.host_id for one in devices if one.host_port is not None}
    agents = {one.host_id: one for one in HostAgent.objects.filter(host__in=hosts - {None})}
    reports = {host: report_of(agent) for host, agent in agents.items() if not is_away(agent)}
    return {one.pk: _side(one, agents, reports) for one in devices}


def agent_of(port: HostPort) -> tuple[HostAgent | None, str]:
    """Return the agent of the host behind a host port if it reports, else None and the sentence that says why not."""
    agent = HostAgent.objects.select_related("host").filter(host=port.host_id or 0).first()
    reports = agent is not None and not is_away(agent)
    return (agent, "") if reports else (None, _why_untold(port, is_known=agent is not None))


def _side(device: Device, agents: Mapping[int, HostAgent], reports: Mapping[int, HostReport | None]) -> HostSide:
    port = device.host_port
    if port is None:
        return HostSide(told=False, why_untold="It is attached to no host.")
    report = reports.get(port.host_id or 0)
    if report is None:
        return HostSide(told=False, why_untold=_why_untold(port, is_known=port.host_id in agents))
    seen = seen_by(report, device)
    return HostSide(told=True, seen=seen, holders=report.holders.get(seen.address, ()) if seen is not None else ())


def _why_untold(port: HostPort, *, is_known: bool) -> str:
    if port.host is None:
        return f"No host is known behind {port.label}."
    return f"The agent of {port.host.name} does not report." if is_known else f"No agent runs on {port.host.name}."


def seen_by(report: HostReport, device: Device) -> PciDevice | None:
    """Return the device among those that a host sees: by its serial number, else where only one has its IDs."""
    living = [one for one in report.devices if one.answers]
    if device.serial_number:
        by_serial = [one for one in living if one.serial and _same_serial(one.serial, device.serial_number)]
        if by_serial:
            return by_serial[0]
        if any(one.serial for one in living if _same_ids(one, device)):
            return None  # this host tells serial numbers of such devices, and this one's is not among them
    alike = [one for one in living if _same_ids(one, device)]
    return alike[0] if len(alike) == 1 else None


def wanted_of(device: Device, seen: PciDevice | None = None) -> DeviceWanted:
    """Return how an agent is told which device is meant."""
    return DeviceWanted(
        address=seen.address if seen is not None else "",
        vendor_id=_hex(device.vendor_id),
        device_id=_hex(device.device_id),
        serial=device.serial_number if seen is None or seen.serial else "",
    )


def holders_in_words(holders: Iterable[Holder]) -> str:
    """Return who uses a device: 'python (process 4711 of maria), mount /data'; of many, the first."""
    words = []
    for one in holders:
        if one.kind == "process":
            command, owner = _short(one.command or one.what), _short(one.owner or "an unknown owner")
            words.append(f"{command} (process {one.pid} of {owner})")
        else:
            words.append(f"{one.kind} {_short(one.what)}".strip())
    more = len(words) - MOST_TOLD
    return ", ".join(words[:MOST_TOLD]) + (f" and {more} more" if more > 0 else "")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TOLD else f"{text[: LONGEST_TOLD - 1]}…"


def _same_serial(one: str, other: str) -> bool:
    return _plain(one) == _plain(other)


def _plain(serial: str) -> str:
    return "".join(character for character in serial.casefold() if character.isalnum())


def _same_ids(one: PciDevice, device: Device) -> bool:
    return (one.vendor_id.casefold(), one.device_id.casefold()) == (_hex(device.vendor_id), _hex(device.device_id))


def _hex(text: str) -> str:
    """Return an ID as sysfs writes it; BMCs write '0x10DE'."""
    digits = text.casefold().removeprefix("0x")
    return f"0x{digits.rjust(4, '0')}" if digits else ""
