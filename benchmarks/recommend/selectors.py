"""The pool of a person: hosts, drawers and devices that are free or theirs, and observations of visible runs."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q

from accounts.models import User
from benchmarks.model.reference_data import LOCAL_STORAGE
from benchmarks.model.topology import Storage
from benchmarks.recommend.history import chassis_power, site_times
from benchmarks.recommend.pool import DeviceClass, FreeDevice, HostPool, RecommendationPool
from benchmarks.runs.choices import chassis_unavailable_reason
from benchmarks.runs.models import Hold
from benchmarks.runs.rules import DRIVE_KEY
from benchmarks.runs.topology import (
    drive_model_name,
    link_of,
    local_accelerators,
    model_name,
    own_drive,
    own_drive_storage,
)
from core.database import natural
from fabric.agents.models import HostAgent
from fabric.agents.selectors import attached_devices, chassis_serial_numbers, latest_report
from fabric.inventory.models import Device, Drawer, Host, HostPort
from fabric.inventory.selectors import drawers_changeable
from fabric.leases.models import Lease, LeaseItem
from fabric.operations.models import Operation
from fabric.operations.projected_state import projected_drawers
from hostwire.protocol import HostReport

DEFAULT_GPU_MEMORY = 16e9
CRITICAL_HEALTH = "Critical"


def recommendation_pool(person: User) -> RecommendationPool:
    """Return the pool that a person may use now, in a constant number of queries (about a dozen).

    A device counts as free if it is assigned to the person's tenant (for an administrator also if unassigned), is
    present and healthy, and no run, operation or ending lease uses it. Devices of others count only for the rules of
    their drawers.
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
        .exclude(health=CRITICAL_HEALTH)
        .exclude(pk__in=leaving.exclude(device=None).values("device"))
        .select_related("chassis", "slot__port", "slot__drawer", "host_port")
    )
    usable = {port.pk for port in ports}
    free = [
        row
        for row in rows
        if not chassis_unavailable_reason(row.chassis)
        and row.pk not in busy
        and f"device/{row.pk}" not in held
        # A device at another tenant's host port can only be detached by that tenant.
        and (row.host_port_id is None or row.host_port_id in usable)
    ]
    drawers = tuple(projected_drawers({row.chassis_id for row in free}).values())
    hosts = Host.objects.visible_to(person)
    if not person.is_administrator:
        hosts = hosts.filter(pk__in={port.host_id for port in ports})
    named = Drawer.objects.filter(pk__in=[one.id for one in drawers if one.id is not None]).select_related("chassis")
    agents = {agent.host_id: agent for agent in HostAgent.objects.filter(host__in=hosts)}
    neighbours, of_chassis = attached_devices(list(agents)), chassis_serial_numbers()
    return RecommendationPool(
        hosts={
            host.pk: _host_pool(host, agents.get(host.pk), neighbours.get(host.pk, []), held, of_chassis)
            for host in hosts.order_by(natural("name"))
        },
        drawers=drawers,
        devices={row.pk: _free_device(row) for row in free},
        uplinks={port.pk: link_of(port.port) for port in ports},
        modes=frozenset(drawers_changeable(person, [one.id for one in drawers if one.id is not None])),
        places={row.pk: f"{row.chassis.name}/drawer {row.number}" for row in named},
        times=site_times(),
        power=chassis_power(drawers),
    )


def _host_pool(
    host: Host,
    agent: HostAgent | None,
    neighbours: Collection[Device],
    held: Collection[str],
    of_chassis: Collection[str],
) -> HostPool:
    taken = sum(key.startswith(f"host/{host.pk}/gpu/") for key in held)
    count = max(0, host.local_gpu_count - taken)
    report = latest_report(agent)
    local = local_accelerators(host, report, min(count, 1))
    is_free = f"host/{host.pk}/{DRIVE_KEY}" not in held
    drive = own_drive(report, neighbours, of_chassis) if is_free and _can_choose_drive(report) else None
    kind = (
        DeviceClass(model=local[0].model, memory_bytes=local[0].memory_bytes) if local else DeviceClass(model="unknown")
    )
    return HostPool(
        id=host.pk,
        name=host.name,
        memory_bytes=(host.memory_gib or 0.0) * 2**30 or HostPool.memory_bytes,
        local_gpus=count,
        local=kind,
        storage=own_drive_storage(drive) if drive is not None else Storage(model=LOCAL_STORAGE),
        own_drive=drive is not None,
    )


def _can_choose_drive(report: HostReport | None) -> bool:
    """Return whether the host's agent supports the choice of a drive; older agents do not."""
    return report is not None and (report.trainer.drives or "simulated" in report.trainer.executors)


def _free_device(row: Device) -> FreeDevice:
    port = row.slot.port if row.slot is not None else None
    is_storage = row.kind == Device.Kind.NVME
    kind = DeviceClass(
        model=drive_model_name(row.model) if is_storage else model_name(row.model),
        memory_bytes=0.0 if is_storage else float(row.memory_bytes or DEFAULT_GPU_MEMORY),
        link=link_of(port, row),
    )
    return FreeDevice(id=row.pk, name=f"{row.chassis.name}/{row.slot.name if row.slot else row.name}", kind=kind,
                      is_storage=is_storage)  # fmt: skip
