"""Who was where at a moment: devices in slots, hosts at host ports, and the tenants that held them.

The rows of the fabric say what is so now. An event that is read from a log afterwards may have happened when it was
otherwise: what no history tells of was nobody's, so that administrators alone see it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Q, QuerySet
from django.utils import timezone

from fabric.models import Attachment, Device, HostPort, Tenure

# What is so now was so this long ago, too, where nothing says since when it is.
JUST_NOW: Final = timedelta(minutes=2)


@dataclass(frozen=True)
class Stay:
    """A time of a device in a slot (None: in none that the chassis names), under its name of then."""

    device: int
    device_name: str
    slot: int | None
    host_port: int | None
    host_name: str
    since: datetime
    until: datetime | None

    def covers(self, at: datetime) -> bool:
        """Tell whether a moment is in it."""
        return self.since <= at and (self.until is None or at < self.until)


class Stays:
    """The times of some devices or slots from `since` on, read once for as many moments as are asked for."""

    def __init__(self, rows: QuerySet[Attachment], *, since: datetime) -> None:
        fields = ("device", "device_name", "slot", "host_port", "host_name", "since", "until")
        lasting = rows.filter(Q(until=None) | Q(until__gt=since)).order_by("-since", "-pk")
        self._of_device: defaultdict[int, list[Stay]] = defaultdict(list)
        self._in_slot: defaultdict[int, list[Stay]] = defaultdict(list)
        self._at_port: defaultdict[int, list[Stay]] = defaultdict(list)
        for values in lasting.values_list(*fields):
            stay = Stay(*values)
            self._of_device[stay.device].append(stay)
            if stay.slot is not None:
                self._in_slot[stay.slot].append(stay)
            if stay.host_port is not None:
                self._at_port[stay.host_port].append(stay)
        self._now = timezone.now()

    def of_device(self, device: int, at: datetime) -> Stay | None:
        """Return where a device was, None where nothing tells."""
        return _at(self._of_device[device], at)

    def in_slot(self, slot: int, at: datetime) -> Stay | None:
        """Return what was in a slot, None where nothing tells."""
        return _at(self._in_slot[slot], at)

    def host_was(self, name: str, host_port: int, at: datetime) -> bool:
        """Tell whether the host of this name, which is at a host port now, was there already."""
        if at > self._now - JUST_NOW:
            return True
        stay = _at(self._at_port[host_port], at)
        return stay is not None and stay.host_name == name


@dataclass(frozen=True)
class Holder:
    """A tenant that held a thing, by number and name."""

    id: int | None = None
    name: str = ""


NOBODY: Final = Holder()


@dataclass(frozen=True)
class _Span:
    device: int | None
    host_port: int | None
    holder: Holder
    since: datetime
    until: datetime | None


class Tenures:
    """Who held some devices and host ports (ids), from when to when."""

    def __init__(self, devices: Collection[int], host_ports: Collection[int]) -> None:
        self._spans: list[_Span] = [*_ended(devices, host_ports), *_lasting(devices, host_ports)]

    def holder(self, device: int | None, host_port: int | None, at: datetime) -> Holder:
        """Return who held a device or a host port at a moment, NOBODY where nothing tells."""
        for span in self._spans:
            own = device is not None and span.device == device
            own = own or (host_port is not None and span.host_port == host_port)
            if own and span.since <= at and (span.until is None or at < span.until):
                return span.holder
        return NOBODY


def _at(stays: Iterable[Stay], at: datetime) -> Stay | None:
    return next((stay for stay in stays if stay.covers(at)), None)


def _ended(devices: Collection[int], host_ports: Collection[int]) -> Iterable[_Span]:
    if not devices and not host_ports:
        return
    rows = Tenure.objects.filter(Q(device__in=devices) | Q(host_port__in=host_ports), tenant__isnull=False)
    fields = ("device", "host_port", "tenant", "tenant_name", "began_at", "ended_at")
    for device, host_port, tenant, name, since, until in rows.values_list(*fields):
        yield _Span(device, host_port, Holder(tenant, name), since, until)


def _lasting(devices: Collection[int], host_ports: Collection[int]) -> Iterable[_Span]:
    """Yield who holds them now, as their rows say: a grant may be a moment older than what is kept of it."""
    known_until = timezone.now() - JUST_NOW
    fields = ("pk", "tenant", "tenant__name", "tenant_since")
    if devices:
        held = Device.objects.filter(pk__in=devices, tenant__isnull=False)
        for pk, tenant, name, since in held.values_list(*fields):
            yield _Span(pk, None, Holder(tenant, name), since or known_until, None)
    if host_ports:
        ports = HostPort.objects.filter(pk__in=host_ports, tenant__isnull=False)
        for pk, tenant, name, since in ports.values_list(*fields):
            yield _Span(None, pk, Holder(tenant, name), since or known_until, None)
