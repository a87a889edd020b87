"""The subject of an event and the tenant that owned it, as of the event's time.

The rows of the fabric have the current state. An event that is read from a log later may have happened in an earlier
one: where the history has no tenant, only administrators see the event.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils import timezone

from core.database import CompiledQuery, single
from fabric.history.models import Attachment
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port, Slot, Switch
from fabric.inventory.selectors import ReadingOwner
from fabric.leases.models import Tenure

# Where the start of the current state is not recorded, it is assumed to be at least this old.
JUST_NOW: Final = timedelta(minutes=2)
# The registries whose messages name a part of the fabric, and its port, in their arguments.
FABRIC_MESSAGES: Final = ("Fabric.", "AcceleratorFabric.")


def stays_since(rows: QuerySet[Attachment], since: Any) -> QuerySet[Attachment]:
    """Return those of these periods that had not ended at a time, the latest first."""
    return rows.filter(Q(until=None) | Q(until__gt=since)).order_by("-since", "-pk")


STAYS_OF_DEVICE: Final[CompiledQuery[Attachment]] = CompiledQuery(
    lambda device, since: stays_since(Attachment.objects.filter(device=device).select_related("slot"), since)
)


class DeviceStays:
    """Periods of some devices or slots, the latest first."""

    def __init__(self, rows: Iterable[Attachment]) -> None:
        self._of_device: defaultdict[int, list[Attachment]] = defaultdict(list)
        self._in_slot: defaultdict[int | None, list[Attachment]] = defaultdict(list)
        self._at_port: defaultdict[int | None, list[Attachment]] = defaultdict(list)
        for stay in rows:
            self._of_device[stay.device_id].append(stay)
            self._in_slot[stay.slot_id].append(stay)
            self._at_port[stay.host_port_id].append(stay)
        self._now = timezone.now()

    def of_device(self, device: int, at: datetime) -> Attachment | None:
        """Return the period of a device at a time, None where unknown."""
        return _at_time(self._of_device[device], at)

    def in_slot(self, slot: int, at: datetime) -> Attachment | None:
        """Return the period in a slot at a time, None where unknown."""
        return _at_time(self._in_slot[slot], at)

    def host_was_there(self, name: str, host_port: int, at: datetime) -> bool:
        """Return whether the host that is at a host port now was there at a time."""
        if at > self._now - JUST_NOW:
            return True
        stay = _at_time(self._at_port[host_port], at)
        return stay is not None and stay.host_name == name


def _at_time(stays: Iterable[Attachment], at: datetime) -> Attachment | None:
    return next((one for one in stays if one.since <= at and (one.until is None or at < one.until)), None)


def _holders(rows: QuerySet[Any]) -> QuerySet[Any, Any]:
    """Return the ids of those of these parts that a tenant has, each with the tenant's, its name and its begin."""
    return rows.filter(tenant__isnull=False).values_list("pk", "tenant", "tenant__name", "tenant_since")


# Those of the device of an operation.
TENURES_OF_DEVICE: Final[CompiledQuery[Tenure]] = CompiledQuery(
    lambda device: Tenure.objects.filter(device=device, tenant__isnull=False)
)
HOLDER_OF_DEVICE: Final[CompiledQuery[Device]] = CompiledQuery(lambda pk: _holders(Device.objects.filter(pk=pk)))


def _tenures(devices: Collection[int], host_ports: Collection[int]) -> list[Tenure]:
    """Return the tenants of devices and host ports (ids) over time.

    The current ones are read from the rows, too: a grant may be slightly older than its record.
    """
    known_until = timezone.now() - JUST_NOW
    held: dict[str, Iterable[Sequence[Any]]]
    if len(devices) == 1 and not host_ports:
        (device,) = devices
        found = TENURES_OF_DEVICE.objects(device)
        held = {"device_id": HOLDER_OF_DEVICE.rows(device)}
    else:
        past = Tenure.objects.filter(Q(device__in=devices) | Q(host_port__in=host_ports), tenant__isnull=False)
        found = list(past)
        held = {
            "device_id": _holders(Device.objects.filter(pk__in=devices)),
            "host_port_id": _holders(HostPort.objects.filter(pk__in=host_ports)),
        }
    for column, rows in held.items():
        for pk, tenant, name, since in rows:
            tenure = Tenure(tenant_id=tenant, tenant_name=name, began_at=since or known_until)
            setattr(tenure, column, pk)
            found.append(tenure)
    return found


@dataclass(frozen=True)
class EventSubject:
    """The subject of an event: ids of its own row and of those it belongs to, None where there is none."""

    device_id: int | None = None
    port_id: int | None = None
    drawer_id: int | None = None
    host_id: int | None = None
    host_port_id: int | None = None
    name: str = ""
    link: str = ""


@dataclass(frozen=True)
class _SubjectRecord:
    """A subject in the current state; the device in a slot, or the host at a host port, depends on the time.

    `is_slot` is whether the subject is the device in the slot. `device` is the device of the resource; where `moves` is
    set, other devices may use the resource later, so that it is this device's only while it stays where it is now.
    """

    subject: EventSubject
    slot: int | None = None
    is_slot: bool = False
    device: int | None = None
    moves: bool = False
    host_name: str = ""


class ChassisSubjects:
    """The subjects of one chassis by the URIs of their resources, read once for a batch of events.

    `owners` has the owners of the sensors of the newest walk; `since` is the oldest time that is looked up.
    """

    def __init__(self, chassis_id: int, owners: Mapping[str, ReadingOwner], *, since: datetime) -> None:
        self._by_uri: dict[str, _SubjectRecord] = {}
        self._by_owner: dict[tuple[str, int], _SubjectRecord] = {}
        self._slots: dict[int, _SubjectRecord] = {}
        self._sensors = {uri: owner for uri, owner in owners.items() if owner.name or owner.related}
        self._stays = DeviceStays(stays_since(Attachment.objects.filter(chassis=chassis_id), since))
        row = Chassis.objects.filter(pk=chassis_id).values("name", "uri").first()
        self.chassis_name: str = row["name"] if row else ""
        self._whole = EventSubject(name=self.chassis_name, link=reverse("fabric:chassis", args=[chassis_id]))
        if row and row["uri"]:
            self._by_uri[row["uri"]] = _SubjectRecord(self._whole)
        self._read_drawers(chassis_id)
        self._read_slots(chassis_id)
        self._read_ports(chassis_id)
        self._read_devices(chassis_id)

    def _read_drawers(self, chassis_id: int) -> None:
        for pk, uri, name in Drawer.objects.filter(chassis=chassis_id).values_list("pk", "uri", "name"):
            record = _SubjectRecord(EventSubject(drawer_id=pk, name=name, link=reverse("fabric:drawer", args=[pk])))
            self._by_uri[uri] = self._by_owner["drawer", pk] = record
        for uri, name, drawer in Switch.objects.filter(chassis=chassis_id).values_list("uri", "name", "drawer"):
            self._by_uri[uri] = _SubjectRecord(
                EventSubject(drawer_id=drawer, name=name, link=self._drawer_link(drawer))
            )

    def _read_slots(self, chassis_id: int) -> None:
        rows = list(Slot.objects.filter(chassis=chassis_id).values_list("pk", "uri", "name", "drawer", "port"))
        # A PCIeDevice has its own slot; the members of a list of slots share one resource, which is none of them.
        shared = Counter(uri.partition("#")[0] for _, uri, *_ in rows)
        for pk, uri, name, drawer, port in rows:
            subject = EventSubject(port_id=port, drawer_id=drawer, name=name, link=self._drawer_link(drawer))
            self._slots[pk] = self._by_uri[uri] = _SubjectRecord(subject, slot=pk, is_slot=True)
            resource = uri.partition("#")[0]
            if shared[resource] == 1:
                self._by_uri.setdefault(resource, self._slots[pk])

    def _read_ports(self, chassis_id: int) -> None:
        fields = ("pk", "uri", "name", "switch__drawer", "slot", "slot__drawer")
        for pk, uri, name, drawer, slot, of_slot in Port.objects.filter(chassis=chassis_id).values_list(*fields):
            link = reverse("fabric:port", args=[pk])
            record = _SubjectRecord(
                EventSubject(port_id=pk, drawer_id=of_slot or drawer, name=name, link=link), slot=slot
            )
            self._by_uri[uri] = self._by_owner["port", pk] = record
        rows = HostPort.objects.filter(chassis=chassis_id)
        of_ports = {pk: record for (kind, pk), record in self._by_owner.items() if kind == "port"}
        uris = {record.subject.port_id: uri for uri, record in self._by_uri.items() if not record.is_slot}
        for row in rows.values("pk", "uri", "endpoint_uri", "port", "drawer", "host", "host__name", "label"):
            link = reverse("fabric:port", args=[row["port"]]) if row["port"] else self._whole.link
            subject = EventSubject(
                port_id=row["port"], drawer_id=row["drawer"], host_id=row["host"], host_port_id=row["pk"],
                name=f"Host port {row['label']}", link=link,
            )  # fmt: skip
            record = _SubjectRecord(subject, host_name=row["host__name"] or "")
            for uri in (row["uri"], row["endpoint_uri"]):
                self._by_uri[uri] = record
            if (port := of_ports.get(row["port"])) is not None:
                self._by_uri[uris[row["port"]]] = replace(record, subject=replace(subject, name=port.subject.name))

    def _read_devices(self, chassis_id: int) -> None:
        fields = ("pk", "uri", "processor_uri", "endpoint_uri", "name", "slot")
        others: defaultdict[str, list[_SubjectRecord]] = defaultdict(list)
        for pk, uri, processor, endpoint, name, slot in Device.objects.filter(chassis=chassis_id).values_list(*fields):
            subject = EventSubject(device_id=pk, name=name, link=reverse("fabric:device", args=[pk]))
            record = _SubjectRecord(subject, slot=slot, device=pk)
            self._by_uri[uri] = self._by_owner["device", pk] = record
            for resource in {processor, endpoint} - {"", uri}:
                others[resource].append(replace(record, moves=True))
        self._shared_resources = dict(others)

    def _drawer_link(self, drawer: int | None) -> str:
        return reverse("fabric:drawer", args=[drawer]) if drawer else self._whole.link

    def of(self, uri: str, at: datetime) -> EventSubject:
        """Return the subject of a resource at a time: the nearest one at or above its URI, else the chassis."""
        for place in _ancestor_uris(uri):
            found = self._find(place, at)
            if found is None and (owner := self._sensors.get(place)) is not None:
                found = self._of_sensor(owner, at)
            if found is not None:
                return found
        return self._whole

    @cached_property
    def _by_last_segment(self) -> Mapping[str, Sequence[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for uri in (*self._by_uri, *self._shared_resources):
            found[uri.rpartition("/")[2]].append(uri)
        return found

    def named(self, message: str, arguments: Sequence[str], at: datetime) -> str:
        """Return the URI of the part, or of its port, that the arguments of a message name by Id; '' if unclear."""
        if not message.startswith(FABRIC_MESSAGES) or not arguments:
            return ""
        # Before the names, a message of a rate has the rate and its threshold.
        owner, *port = arguments[-2:] if message.startswith("AcceleratorFabric.") else arguments[:2]
        for tail in (f"/{owner}/Ports/{''.join(port)}", f"/{owner}"):
            uris = (uri for uri in self._by_last_segment.get(tail.rpartition("/")[2], ()) if uri.endswith(tail))
            found = {subject: uri for uri in uris if (subject := self._find(uri, at)) is not None}
            if len(found) == 1:
                return found.popitem()[1]
        return ""

    def _find(self, uri: str, at: datetime) -> EventSubject | None:
        if (record := self._by_uri.get(uri)) is not None:
            return self._as_of(record, at)
        found = (self._as_of(record, at) for record in self._shared_resources.get(uri, ()))
        return next((one for one in found if one is not None), None)

    def _nearest(self, uri: str, at: datetime) -> EventSubject | None:
        return next((found for place in _ancestor_uris(uri) if (found := self._find(place, at)) is not None), None)

    def _of_sensor(self, owner: ReadingOwner, at: datetime) -> EventSubject | None:
        """Return the subject of a sensor: the one device or link that it names, else its owner."""
        # Not through other sensors: they may refer to each other.
        named = {one for uri in owner.related if (one := self._nearest(uri, at)) is not None}
        parts = [one for one in named if one.device_id is not None or one.port_id is not None]
        record = self._by_owner.get((owner.kind, owner.id))
        subject = parts[0] if len(parts) == 1 else self._as_of(record, at) if record is not None else None
        if subject is None or not owner.name:
            return subject
        return replace(subject, name=f"{subject.name}: {owner.name}"[:300])

    def _as_of(self, record: _SubjectRecord, at: datetime) -> EventSubject | None:
        """Return the subject of a record at a time, None for a resource that may have been another device's then."""
        subject = record.subject
        if record.device is not None:
            stay = self._stays.of_device(record.device, at)
            if record.moves and (stay is None or stay.slot_id is None or stay.slot_id != record.slot):
                return None
            place = self._slots.get((stay.slot_id if stay is not None else record.slot) or 0)
            if place is not None:
                subject = replace(subject, port_id=place.subject.port_id, drawer_id=place.subject.drawer_id)
            return replace(subject, name=stay.device_name) if stay is not None else subject
        if record.slot is not None and (stay := self._stays.in_slot(record.slot, at)) is not None:
            subject = replace(subject, device_id=stay.device_id)
            if record.is_slot:
                subject = replace(subject, name=stay.device_name, link=reverse("fabric:device", args=[stay.device_id]))
        if subject.host_port_id and not self._stays.host_was_there(record.host_name, subject.host_port_id, at):
            subject = replace(subject, host_id=None)
        return subject


def _ancestor_uris(uri: str) -> Iterator[str]:
    """Yield a URI, without its fragment where it has one, and its ancestors."""
    place = uri.rstrip("/")
    while place.count("/") > 2:
        yield place
        above, of_member, _ = place.rpartition("#")
        place = above if of_member else place.rpartition("/")[0]


def tenants_at(wanted: Iterable[tuple[EventSubject, datetime]]) -> list[Tenure]:
    """Return the tenant of each subject at its time, in the form of a tenure; one without a tenant where unknown."""
    pairs = list(wanted)
    devices = {one.device_id for one, _ in pairs if one.device_id}
    tenures = _tenures(devices, {one.host_port_id for one, _ in pairs if one.host_port_id})
    return [next((one for one in tenures if _is_tenure_of(one, subject, at)), Tenure()) for subject, at in pairs]


def _is_tenure_of(tenure: Tenure, subject: EventSubject, at: datetime) -> bool:
    own = (subject.device_id is not None and tenure.device_id == subject.device_id) or (
        subject.host_port_id is not None and tenure.host_port_id == subject.host_port_id
    )
    return own and tenure.began_at <= at and (tenure.ended_at is None or at < tenure.ended_at)


def subject_at(
    *,
    at: datetime,
    device_id: int | None = None,
    port_id: int | None = None,
    drawer_id: int | None = None,
    host_id: int | None = None,
) -> EventSubject:
    """Return the subject of given ids at a time; removed rows contribute nothing."""
    if device_id is not None:
        return _device(device_id, port_id, drawer_id, host_id, at)
    if port_id is not None:
        return _port(port_id, drawer_id, host_id, at)
    if drawer_id is not None:
        name = Drawer.objects.filter(pk=drawer_id).values_list("name", flat=True).first() or ""
        return EventSubject(
            drawer_id=drawer_id, host_id=host_id, name=name, link=reverse("fabric:drawer", args=[drawer_id])
        )
    if host_id is not None:
        name = Host.objects.filter(pk=host_id).values_list("name", flat=True).first() or ""
        return EventSubject(host_id=host_id, name=name, link=reverse("fabric:host", args=[host_id]))
    return EventSubject()


def _device(
    device_id: int, port_id: int | None, drawer_id: int | None, host_id: int | None, at: datetime
) -> EventSubject:
    stays = DeviceStays(STAYS_OF_DEVICE.objects(device_id, at))
    stay = stays.of_device(device_id, at)
    # A stay may be in no slot that the chassis reports: the current slot says nothing about that time.
    slot = stay.slot if stay is not None else single(Slot.objects.filter(device=device_id))
    port, drawer = (slot.port_id, slot.drawer_id) if slot is not None else (None, None)
    named = Device.objects.filter(pk=device_id).values_list("name", flat=True)
    return EventSubject(
        device_id, port_id or port, drawer_id or drawer, host_id,
        name=stay.device_name if stay is not None else named.first() or "",
        link=reverse("fabric:device", args=[device_id]),
    )  # fmt: skip


def _port(port_id: int, drawer_id: int | None, host_id: int | None, at: datetime) -> EventSubject:
    fields = (
        "name", "switch__drawer", "slot", "slot__drawer", "host_port", "host_port__host", "host_port__host__name",
    )  # fmt: skip
    port: dict[str, Any] = Port.objects.filter(pk=port_id).values(*fields).first() or {}
    slot, host_port, device = port.get("slot"), port.get("host_port"), None
    if slot is not None:
        stay = DeviceStays(stays_since(Attachment.objects.filter(slot=slot), at)).in_slot(slot, at)
        device = stay.device_id if stay is not None else None
    if host_id is None and host_port is not None:
        stays = DeviceStays(stays_since(Attachment.objects.filter(host_port=host_port), at))
        is_same = stays.host_was_there(port["host_port__host__name"] or "", host_port, at)
        host_id = port["host_port__host"] if is_same else None
    return EventSubject(
        device, port_id, drawer_id or port.get("slot__drawer") or port.get("switch__drawer"), host_id, host_port,
        port.get("name", ""), reverse("fabric:port", args=[port_id]),
    )  # fmt: skip
