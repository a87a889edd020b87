"""Where a request shall run, as the site knows it: and what the model believes, by the runs that somebody sees."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from accounts.models import User
from benchmarks.deploy.answer import PlaceError
from benchmarks.deploy.wanted import Place
from benchmarks.model import Belief, TopologyError, read_topology, refit
from benchmarks.model.shapes import Topology
from benchmarks.runs.composition import Composition
from benchmarks.runs.observing import observations
from benchmarks.runs.placing import topology_of
from fabric.models import Device, Host, HostPort
from falconweb.errors import FalconWebError


def topology_for(person: User, place: Place) -> Topology:
    """Return what a place of a request gets; raises PlaceError, also for what the person may not see."""
    if place.topology is not None:
        return _given(place.topology)
    try:
        return topology_of(_composition(person, place))
    except FalconWebError as error:
        raise PlaceError(error.sentence) from error


def belief_for(person: User) -> Belief | None:
    """Return the model as the runs that somebody sees have fitted it, None where there are none."""
    found = observations(person)
    return refit(found) if found else None


def hosts_named(person: User) -> list[tuple[int, str]]:
    """Return the hosts that somebody may name."""
    return list(Host.objects.visible_to(person).order_by("name").values_list("pk", "name"))


def _given(plain: Any) -> Topology:
    try:
        return read_topology(json.dumps(plain))
    except TopologyError as error:
        raise PlaceError(error.sentence) from error


def _composition(person: User, place: Place) -> Composition:
    """Return a composition that is given, or what is attached to a host; of what the person sees alone."""
    if place.composition is not None:
        try:
            composition = Composition.from_json(place.composition)
        except msgspec.ValidationError as error:
            raise PlaceError(f"This is no composition: {error}.") from error
    else:
        composition = _attached(person, place.host)
    devices, ports = set(composition.devices), set(composition.devices.values())
    seen = (
        Host.objects.visible_to(person).filter(pk=composition.host).exists()
        and Device.objects.visible_to(person).filter(pk__in=devices).count() == len(devices)
        and HostPort.objects.visible_to(person).filter(pk__in=ports).count() == len(ports)
    )
    if not seen:
        raise PlaceError("There is no such host, device or host port.")
    return composition


def _attached(person: User, name: str) -> Composition:
    """Return what is on a host now, by its id or name."""
    hosts = Host.objects.visible_to(person)
    is_id = name.isascii() and name.isdecimal() and len(name) < 19
    host = hosts.filter(name=name).first() or (hosts.filter(pk=int(name)).first() if is_id else None)
    if host is None:
        raise PlaceError("No host of this site has this name: nothing is predicted for it.")
    attached = Device.objects.visible_to(person).filter(host_port__host=host, kind=Device.Kind.GPU, missing_since=None)
    ports = set(HostPort.objects.visible_to(person).filter(host=host).values_list("pk", flat=True))
    pairs = attached.order_by("pk").values_list("pk", "host_port")
    return Composition(
        host=host.pk,
        local_gpus=min(host.local_gpu_count, 64),
        devices={pk: port for pk, port in pairs if port in ports},
    )
