"""Reports of hosts' agents on devices: whether the host sees a device, and who uses it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from django.utils import timezone

from core.database import CompiledQuery
from core.language import _, gettext_noop, joined
from fabric.agents.models import HostAgent
from fabric.inventory.models import Device, HostPort
from hostwire.protocol import DeviceHolder, DeviceSelector, HostReport, PciDevice

MAX_HOLDERS_NAMED: Final = 5  # holders of a device that a sentence names
MAX_HOLDER_LENGTH: Final = 80
INDISTINGUISHABLE: Final = gettext_noop("its host cannot distinguish it from other cards of its kind")
UNREADABLE_CARD: Final = gettext_noop("its host has a card that cannot be read, which may be this one")


@dataclass(frozen=True, kw_only=True)
class DeviceMatch:
    """A device among the cards of a host: `seen` is None where the host shows none, or it is ambiguous.

    If ambiguous, `unsure` says why, and `possible` are the candidate cards; it is '' for a certain result.
    """

    seen: PciDevice | None = None
    possible: tuple[PciDevice, ...] = ()
    unsure: str = ""


@dataclass(frozen=True, kw_only=True)
class DeviceOnHost:
    """A device as its host shows it; `reported` is False without a report: no agent, or an unreachable one.

    `seen` and `unsure` are as in `DeviceMatch`; `holders` are those who use it, or where that is unsure one of the
    candidate cards; `among_others` is True where such a card may be another tenant's.
    """

    reported: bool
    no_report_reason: str = ""
    seen: PciDevice | None = None
    unsure: str = ""
    holders: tuple[DeviceHolder, ...] = ()
    among_others: bool = False


def devices_on_hosts(devices: Collection[Device]) -> dict[int, DeviceOnHost]:
    """Return the hosts' reports on devices, by the devices' ids, in two queries; each report is parsed once.

    Best read with `host_port__host`.
    """
    hosts = {one.host_port.host_id for one in devices if one.host_port is not None}
    agents = {one.host_id: one for one in HostAgent.objects.filter(host__in=hosts - {None})}
    reports = {host: latest_report(agent) for host, agent in agents.items() if not is_agent_away(agent)}
    neighbours = attached_devices([host for host, report in reports.items() if report is not None])
    return {one.pk: _device_on_host(one, agents, reports, neighbours) for one in devices}


def attached_devices(hosts: Collection[int]) -> Mapping[int, list[Device]]:
    """Return all devices attached to hosts according to the database, by the hosts' ids."""
    found: defaultdict[int, list[Device]] = defaultdict(list)
    rows = Device.objects.filter(host_port__host__in=hosts, missing_since=None) if hosts else Device.objects.none()
    for row in rows.select_related("host_port"):
        if row.host_port is not None and row.host_port.host_id is not None:
            found[row.host_port.host_id].append(row)
    return found


AGENT_BEHIND: Final[CompiledQuery[HostAgent]] = CompiledQuery(
    lambda port: HostAgent.objects.select_related("host").filter(host__host_ports=port).order_by()
)


def reporting_agent(port: HostPort) -> tuple[HostAgent | None, str]:
    """Return the agent of the host behind a host port if it reports, else None and the sentence that says why not.

    It is that of the cable as it is stored now.
    """
    agent = AGENT_BEHIND.first(port.pk)
    reports = agent is not None and not is_agent_away(agent)
    return (agent, "") if reports else (None, no_report_reason(port, is_known=agent is not None))


def _device_on_host(
    device: Device,
    agents: Mapping[int, HostAgent],
    reports: Mapping[int, HostReport | None],
    neighbours: Mapping[int, list[Device]],
) -> DeviceOnHost:
    port = device.host_port
    if port is None:
        return DeviceOnHost(reported=False, no_report_reason=_("It is attached to no host."))
    report = reports.get(port.host_id or 0)
    if report is None:
        return DeviceOnHost(reported=False, no_report_reason=no_report_reason(port, is_known=port.host_id in agents))
    others = neighbours[port.host_id or 0]
    found = match_device(report, device, others)
    cards = [found.seen] if found.seen is not None else found.possible
    return DeviceOnHost(
        reported=True,
        seen=found.seen,
        unsure=found.unsure,
        holders=_card_holders(report, {_card(one.address) for one in cards}),
        # Administrators see everything, and only they see unassigned devices.
        among_others=bool(found.unsure)
        and device.tenant_id is not None
        and any(one.tenant_id != device.tenant_id for one in others),
    )


def _card_holders(report: HostReport, cards: Collection[str]) -> tuple[DeviceHolder, ...]:
    """Return the holders of any function of cards, each once."""
    held = [who for address, who in sorted(report.holders.items()) if _card(address) in cards]
    return tuple(dict.fromkeys(holder for who in held for holder in who))


def no_report_reason(port: HostPort, *, is_known: bool) -> str:
    """Return why no agent reports for the host behind a host port; `is_known`: it has one."""
    if port.host is None:
        return _("No host is known behind {label}.", label=port.label)
    if is_known:
        return _("The agent of {host} does not report.", host=port.host.name)
    return _("No agent runs on {host}.", host=port.host.name)


def match_device(report: HostReport, device: Device, neighbours: Collection[Device]) -> DeviceMatch:
    """Return the device among the cards of a host; `neighbours` are the devices attached to that host.

    It is matched by its serial number. A card without one matches where no other card of its kind exists, neither on
    the host nor among the attached devices.
    """
    living = [one for one in report.devices if one.answers]
    others = [one for one in neighbours if one.pk != device.pk]
    if named := _with_serial(living, device):
        return _match_among(named, [one for one in others if _same_serial(one.serial_number, device.serial_number)])
    accounted = {_card(one.address) for other in others for one in _with_serial(living, other)}
    accounted |= {_card(one.address) for one in living if one.serial and device.serial_number}
    same_ids = [one for one in living if one.vendor_id and pci_ids(one) == pci_ids(device)]
    alike = [one for one in same_ids if _card(one.address) not in accounted]
    if alike:
        same_kind = [one for one in others if pci_ids(one) == pci_ids(device)]
        return _match_among(alike, [one for one in same_kind if not _with_serial(living, one)])
    unread = tuple(one for one in living if not one.vendor_id)
    return DeviceMatch(possible=unread, unsure=UNREADABLE_CARD if unread else "")


def host_local_devices(
    report: HostReport, neighbours: Collection[Device], of_chassis: Collection[str]
) -> list[PciDevice]:
    """Return the devices that certainly belong to a host itself, in the order of addresses.

    `of_chassis` are `chassis_serial_numbers`: a device that was just detached, or is missing, may still be shown. The
    origin of a card without a serial number is unknown.
    """
    given: set[str] = set()
    for device in neighbours:
        found = match_device(report, device, neighbours)
        given |= {_card(one.address) for one in ([found.seen] if found.seen is not None else found.possible)}
    given |= {_card(one.address) for one in report.devices if _normalized_serial(one.serial) in of_chassis}
    own = [one for one in report.devices if one.answers and one.serial and _card(one.address) not in given]
    return sorted(own, key=lambda one: one.address)


def chassis_serial_numbers() -> frozenset[str]:
    """Return the serial numbers of all present and past devices of chassis, normalized for `host_local_devices`."""
    numbers = Device.objects.exclude(serial_number="").values_list("serial_number", flat=True)
    return frozenset(_normalized_serial(serial) for serial in numbers)


def _match_among(cards: list[PciDevice], rivals: list[Device]) -> DeviceMatch:
    """Return the match among these cards, any of which may be any of the `rivals` too."""
    if len({_card(one.address) for one in cards}) == 1 and not rivals:
        return DeviceMatch(seen=cards[0])
    return DeviceMatch(possible=tuple(cards), unsure=INDISTINGUISHABLE)


def device_selector(device: Device, seen: PciDevice | None = None) -> DeviceSelector:
    """Return the selector of a device for its agent; the address selects a card without a serial number."""
    return DeviceSelector(
        address=seen.address if seen is not None else "",
        vendor_id=_pci_id(device.vendor_id),
        device_id=_pci_id(device.device_id),
        serial=(seen.serial if seen is not None else "") or device.serial_number,
    )


def uncertainty_label(side: DeviceOnHost, *, names: bool = True) -> str:
    """Return why the use of a device is unknown, with the holders of its candidate cards: the end of a sentence.

    '' where it is known. `names` is False where nothing of the host may be disclosed.
    """
    if not side.unsure or not names or side.among_others:
        return _(side.unsure)
    if not side.holders:
        return _("{why}; no process uses any of them now", why=_(side.unsure))
    return _("{why}; in use among them: {holders}", why=_(side.unsure), holders=holders_label(side.holders))


def _shortened(text: str) -> str:
    # Not by Django's Truncator, which counts no combining characters: a host may send hundreds of them.
    return text if len(text) <= MAX_HOLDER_LENGTH else f"{text[: MAX_HOLDER_LENGTH - 1]}…"


def holders_label(holders: Iterable[DeviceHolder]) -> str:
    """Return the first holders of a device: 'python (process 4711 of maria since 10:42 UTC), mount /data'."""
    words = [_process_label(one) if one.kind == "process" else _hold_label(one) for one in holders]
    named, more = joined(words[:MAX_HOLDERS_NAMED], ", "), len(words) - MAX_HOLDERS_NAMED
    return _("{holders} and {count} more", holders=named, count=more) if more > 0 else named


def _hold_label(holder: DeviceHolder) -> str:
    return f"{holder.kind} {_shortened(holder.what)}".strip()


def _process_label(holder: DeviceHolder) -> str:
    command = _shortened(holder.command or holder.what)
    owner = _shortened(holder.owner) or _("an unknown owner")
    if at := _started_at(holder.started):
        return _("{command} (process {pid} of {owner} since {at})", command=command, pid=holder.pid, owner=owner, at=at)
    return _("{command} (process {pid} of {owner})", command=command, pid=holder.pid, owner=owner)


def _started_at(started: float) -> str:
    """Return '10:42 UTC', with the day unless that is today; '' for a start that is not known or not past."""
    now = timezone.now()
    if not 0 < started <= now.timestamp():
        return ""
    at = timezone.localtime(datetime.fromtimestamp(started, UTC))
    if at.date() == timezone.localdate():
        return f"{at:%H:%M %Z}"
    return _("{time} on {day} {zone}", time=at.strftime("%H:%M"), day=at.date(), zone=at.tzname())


def _with_serial(devices: Iterable[PciDevice], device: Device) -> list[PciDevice]:
    return [one for one in devices if _same_serial(one.serial, device.serial_number)]


def _same_serial(one: str, other: str) -> bool:
    return _normalized_serial(one) == _normalized_serial(other) != ""


def _normalized_serial(serial: str) -> str:
    return "".join(character for character in serial.casefold() if character.isalnum())


def _card(address: str) -> str:
    """Return the common prefix of the addresses of all functions of one card."""
    return address.rpartition(".")[0]


def pci_ids(device: Device | PciDevice) -> tuple[str, str]:
    """Return the vendor and device ID of a device as sysfs writes them: '0x10de'."""
    return _pci_id(device.vendor_id), _pci_id(device.device_id)


def _pci_id(text: str) -> str:
    """Return an ID as sysfs writes it; BMCs write '0x10DE'."""
    digits = text.casefold().removeprefix("0x")
    return f"0x{digits.rjust(4, '0')}" if digits else ""


# An agent reports every ten seconds: it counts as unreachable after three missing reports.
AWAY_SECONDS: Final = 35.0


def is_agent_away(agent: HostAgent) -> bool:
    """Return whether an agent is unreachable, so that the state of its host is unknown."""
    return agent.reported_at is None or agent.reported_at < timezone.now() - timedelta(seconds=AWAY_SECONDS)


def latest_report(agent: HostAgent | None) -> HostReport | None:
    """Return the newest report of an agent, None before the first, and without an agent."""
    if agent is None or not agent.report:
        return None
    try:
        return msgspec.convert(agent.report, HostReport)
    except msgspec.ValidationError:
        return None  # of an older version of the site
