"""What an event is about: rows of the fabric found by resource or by number, their pages, and who held them when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import F, Q, QuerySet
from django.urls import reverse

from fabric.models import Chassis, Device, Drawer, Host, HostPort, Port, Switch, Tenure
from fabric.selectors import Owner


@dataclass(frozen=True)
class Subject:
    """One thing: its own row and those that it belongs to, None where there is none."""

    device_id: int | None = None
    port_id: int | None = None
    drawer_id: int | None = None
    host_id: int | None = None
    host_port_id: int | None = None
    name: str = ""
    link: str = ""


@dataclass(frozen=True)
class Holder:
    """A tenant that held a thing, by number and name."""

    id: int | None = None
    name: str = ""


EVER = datetime.min.replace(tzinfo=UTC)
NOTHING = Subject()
NOBODY = Holder()


class Subjects:
    """The things of one chassis by the URIs of their resources, read once for as many events as come together."""

    def __init__(self, chassis_id: int, owners: Mapping[str, Owner]) -> None:
        self._by_uri: dict[str, Subject] = {}
        self._by_owner: dict[tuple[str, int], Subject] = {}
        row = Chassis.objects.filter(pk=chassis_id).values("name", "uri").first()
        self.chassis_name: str = row["name"] if row else ""
        self._whole = Subject(name=self.chassis_name, link=reverse("fabric:chassis", args=[chassis_id]))
        if row and row["uri"]:
            self._by_uri[row["uri"]] = self._whole
        self._drawers(chassis_id)
        self._ports(chassis_id)
        self._devices(chassis_id)
        for uri, owner in owners.items():
            if (subject := self._by_owner.get((owner.kind, owner.id))) is not None and uri not in self._by_uri:
                name = f"{subject.name}: {owner.name}" if owner.name else subject.name
                self._by_uri[uri] = replace(subject, name=name[:300])

    def _drawers(self, chassis_id: int) -> None:
        for pk, uri, name in Drawer.objects.filter(chassis=chassis_id).values_list("pk", "uri", "name"):
            subject = Subject(drawer_id=pk, name=name, link=reverse("fabric:drawer", args=[pk]))
            self._by_uri[uri] = self._by_owner["drawer", pk] = subject
        for uri, name, drawer in Switch.objects.filter(chassis=chassis_id).values_list("uri", "name", "drawer"):
            link = reverse("fabric:drawer", args=[drawer]) if drawer else self._whole.link
            self._by_uri[uri] = Subject(drawer_id=drawer, name=name, link=link)

    def _ports(self, chassis_id: int) -> None:
        fields = ("pk", "uri", "name", "switch__drawer", "slot__drawer", "slot__device")
        for pk, uri, name, drawer, of_slot, device in Port.objects.filter(chassis=chassis_id).values_list(*fields):
            link = reverse("fabric:port", args=[pk])
            subject = Subject(device_id=device, port_id=pk, drawer_id=of_slot or drawer, name=name, link=link)
            self._by_uri[uri] = self._by_owner["port", pk] = subject
        rows = HostPort.objects.filter(chassis=chassis_id)
        for row in rows.values("pk", "uri", "endpoint_uri", "port", "drawer", "host", "label"):
            link = reverse("fabric:port", args=[row["port"]]) if row["port"] else self._whole.link
            subject = Subject(
                port_id=row["port"], drawer_id=row["drawer"], host_id=row["host"], host_port_id=row["pk"],
                name=f"Host port {row['label']}", link=link,
            )  # fmt: skip
            for uri in (row["uri"], row["endpoint_uri"]):
                self._by_uri[uri] = subject
            for uri, known in list(self._by_uri.items()) if row["port"] else ():
                if known.port_id == row["port"] and known.host_port_id is None:
                    self._by_uri[uri] = replace(subject, name=known.name)

    def _devices(self, chassis_id: int) -> None:
        fields = ("pk", "uri", "processor_uri", "endpoint_uri", "name", "slot__port", "slot__drawer", "slot__uri")
        # The present one of a slot comes last, and stands for its resources.
        rows = Device.objects.filter(chassis=chassis_id).order_by(F("missing_since").asc(nulls_last=True))
        for pk, uri, processor, endpoint, name, port, drawer, slot in rows.values_list(*fields):
            link = reverse("fabric:device", args=[pk])
            subject = Subject(device_id=pk, port_id=port, drawer_id=drawer, name=name, link=link)
            self._by_owner["device", pk] = subject
            for resource in (uri, processor, endpoint, slot):
                if resource:
                    self._by_uri[resource.partition("#")[0]] = subject

    def of(self, uri: str) -> Subject:
        """Return what a resource belongs to: the nearest thing at or above it, the chassis where there is none."""
        at = uri.partition("#")[0].rstrip("/")
        while at.count("/") > 2:
            if (found := self._by_uri.get(at)) is not None:
                return found
            at = at.rpartition("/")[0]
        return self._whole

    def holders(self, wanted: Iterable[tuple[Subject, datetime]]) -> list[Holder]:
        """Return who held each thing at its moment."""
        pairs = list(wanted)
        devices = {one.device_id for one, _ in pairs if one.device_id}
        host_ports = {one.host_port_id for one, _ in pairs if one.host_port_id}
        spans = _tenures(devices, host_ports) if devices or host_ports else []
        return [_holder(spans, one, at) for one, at in pairs]


def _tenures(devices: Iterable[int], host_ports: Iterable[int]) -> list[dict[str, Any]]:
    """Return who held these things from when to when, and last who holds them now."""
    found = Tenure.objects.filter(Q(device__in=devices) | Q(host_port__in=host_ports))
    spans = list(found.values("device", "host_port", "tenant", "tenant_name", "began_at", "ended_at"))
    present: list[tuple[QuerySet[Any], str]] = [
        (Device.objects.filter(pk__in=devices), "device"),
        (HostPort.objects.filter(pk__in=host_ports), "host_port"),
    ]
    for rows, name in present:
        held = rows.filter(tenant__isnull=False).values_list("pk", "tenant", "tenant__name", "tenant_since")
        spans += [
            {
                "device": None, "host_port": None, name: pk, "tenant": tenant, "tenant_name": tenant_name,
                "began_at": since or EVER, "ended_at": None,
            }
            for pk, tenant, tenant_name, since in held
        ]  # fmt: skip
    return spans


def _holder(spans: list[dict[str, Any]], subject: Subject, at: datetime) -> Holder:
    for span in spans:
        own = subject.device_id is not None and span["device"] == subject.device_id
        own = own or (subject.host_port_id is not None and span["host_port"] == subject.host_port_id)
        if own and span["tenant"] and span["began_at"] <= at and (span["ended_at"] is None or at < span["ended_at"]):
            return Holder(span["tenant"], span["tenant_name"])
    return NOBODY


def subject_of(
    *,
    device_id: int | None = None,
    port_id: int | None = None,
    drawer_id: int | None = None,
    host_id: int | None = None,
) -> Subject:
    """Return the thing that numbers of rows name, with what it belongs to; rows that are gone tell nothing."""
    if device_id is not None:
        device = Device.objects.filter(pk=device_id).values("name", "slot__port", "slot__drawer").first() or {}
        return Subject(
            device_id, port_id or device.get("slot__port"), drawer_id or device.get("slot__drawer"), host_id,
            name=device.get("name", ""), link=reverse("fabric:device", args=[device_id]),
        )  # fmt: skip
    if port_id is not None:
        fields = ("name", "switch__drawer", "slot__drawer", "slot__device", "host_port", "host_port__host")
        port = Port.objects.filter(pk=port_id).values(*fields).first() or {}
        return Subject(
            port.get("slot__device"), port_id, drawer_id or port.get("slot__drawer") or port.get("switch__drawer"),
            host_id or port.get("host_port__host"), port.get("host_port"), port.get("name", ""),
            reverse("fabric:port", args=[port_id]),
        )  # fmt: skip
    if drawer_id is not None:
        name = Drawer.objects.filter(pk=drawer_id).values_list("name", flat=True).first() or ""
        return Subject(drawer_id=drawer_id, host_id=host_id, name=name, link=reverse("fabric:drawer", args=[drawer_id]))
    if host_id is not None:
        name = Host.objects.filter(pk=host_id).values_list("name", flat=True).first() or ""
        return Subject(host_id=host_id, name=name, link=reverse("fabric:host", args=[host_id]))
    return NOTHING


def holder_of(subject: Subject, at: datetime) -> Holder:
    """Return who held a thing at a moment."""
    if subject.device_id is None and subject.host_port_id is None:
        return NOBODY
    devices = [subject.device_id] if subject.device_id else []
    host_ports = [subject.host_port_id] if subject.host_port_id else []
    return _holder(_tenures(devices, host_ports), subject, at)
