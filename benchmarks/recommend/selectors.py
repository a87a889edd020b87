"""What a person may choose from: hosts, drawers and devices that are free or theirs, and what runs have shown them."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q

from accounts.models import User
from benchmarks.model.facts import LOCAL_STORAGE
from benchmarks.model.shapes import Observation, Storage
from benchmarks.recommend.pool import FreeDevice, HostPool, Kind, Pool
from benchmarks.runs.drives import drive_name, own_drive, storage_of_own
from benchmarks.runs.holds import DRIVE
from benchmarks.runs.models import Hold
from benchmarks.runs.observing import observations
from benchmarks.runs.offered import why_out_of_reach
from benchmarks.runs.parts import link_of, model_name
from benchmarks.runs.placing import local_accelerators
from fabric.hostside import neighbours_on, serials_of_chassis
from fabric.models import Device, Drawer, Host, HostAgent, HostPort, Lease, LeaseItem, Operation
from fabric.outlook import drawers_seen
from fabric.permissions import drawers_changeable
from fabric.services.agents import report_of
from hostwire.shapes import HostReport

USUAL_MEMORY = 16e9
BROKEN = "Critical"


def pool_for(person: User) -> Pool:
    """Return what a person may use now: a dozen queries, however much there is.

    A device counts as free if it is the person's (an administrator's: nobody's, or their tenant's), is there and sound,
    and no run, operation or ending lease is at it. Devices of others count for the rules of their drawers alone.
    """
    own = Q(tenant=person.tenant_id) if person.tenant_id is not None else Q(tenant=None)
    if person.is_administrator:
        own |= Q(tenant=None)
    leaving = LeaseItem.objects.filter(released_at=None, lease__state=Lease.State.ENDING)
    ports = list(
        HostPort.objects.visible_to(person)
        .filter(own, missing_since=None)
        .exclude(host=None)
        .exclude(pk__in=leaving.exclude(host_port=None).values("host_port"))
        .select_related("port")
    )
    held = set(Hold.objects.values_list("key", flat=True))
    busy = set(Operation.objects.open().exclude(device=None).values_list("device", flat=True))
    rows = (
        Device.objects.visible_to(person)
        .filter(own, missing_since=None, kind__in=(Device.Kind.GPU, Device.Kind.NVME))
        .exclude(endpoint_uri="")
        .exclude(health=BROKEN)
        .exclude(pk__in=leaving.exclude(device=None).values("device"))
        .select_related("chassis", "slot__port", "slot__drawer", "host_port")
    )
    usable = {port.pk for port in ports}
    free = [
        row
        for row in rows
        if not why_out_of_reach(row.chassis)
        and row.pk not in busy
        and f"device/{row.pk}" not in held
        # What is attached to somebody else's host port is theirs to let go.
        and (row.host_port_id is None or row.host_port_id in usable)
    ]
    drawers = tuple(drawers_seen({row.chassis_id for row in free}).values())
    hosts = Host.objects.visible_to(person)
    if not person.is_administrator:
        hosts = hosts.filter(pk__in={port.host_id for port in ports})
    named = Drawer.objects.filter(pk__in=[one.id for one in drawers if one.id is not None]).select_related("chassis")
    agents = {agent.host_id: agent for agent in HostAgent.objects.filter(host__in=hosts)}
    neighbours, of_chassis = neighbours_on(list(agents)), serials_of_chassis()
    return Pool(
        hosts={
            host.pk: _host(host, agents.get(host.pk), neighbours.get(host.pk, []), held, of_chassis)
            for host in hosts.order_by("name")
        },
        drawers=drawers,
        devices={row.pk: _device(row) for row in free},
        uplinks={port.pk: link_of(port.port) for port in ports},
        modes=frozenset(drawers_changeable(person, [one.id for one in drawers if one.id is not None])),
        places={row.pk: f"{row.chassis.name}/drawer {row.number}" for row in named},
    )


def runs_known(person: User) -> list[Observation]:
    """Return what measured and imported runs that the person sees have shown."""
    return observations(person)


def _host(
    host: Host,
    agent: HostAgent | None,
    neighbours: Collection[Device],
    held: Collection[str],
    of_chassis: Collection[str],
) -> HostPool:
    taken = sum(key.startswith(f"host/{host.pk}/gpu/") for key in held)
    count = max(0, host.local_gpu_count - taken)
    report = report_of(agent)
    local = local_accelerators(host, report, min(count, 1))
    is_free = f"host/{host.pk}/{DRIVE}" not in held
    drive = own_drive(report, neighbours, of_chassis) if is_free and _reads_drives(report) else None
    kind = Kind(model=local[0].model, memory_bytes=local[0].memory_bytes) if local else Kind(model="unknown")
    return HostPool(
        id=host.pk,
        name=host.name,
        memory_bytes=(host.memory_gib or 0.0) * 2**30 or HostPool.memory_bytes,
        local_gpus=count,
        local=kind,
        storage=storage_of_own(drive) if drive is not None else Storage(model=LOCAL_STORAGE),
        own_drive=drive is not None,
    )


def _reads_drives(report: HostReport | None) -> bool:
    """Tell whether what runs on a host can be told which drive to read; agents of before could not."""
    return report is not None and (report.trainer.drives or "simulated" in report.trainer.executors)


def _device(row: Device) -> FreeDevice:
    port = row.slot.port if row.slot is not None else None
    is_storage = row.kind == Device.Kind.NVME
    kind = Kind(
        model=drive_name(row.model) if is_storage else model_name(row.model),
        memory_bytes=0.0 if is_storage else float(row.memory_bytes or USUAL_MEMORY),
        link=link_of(port, row),
    )
    return FreeDevice(id=row.pk, name=f"{row.chassis.name}/{row.slot.name if row.slot else row.name}", kind=kind,
                      is_storage=is_storage)  # fmt: skip
