"""What the first `make up` of the simulated lab opens on: an hour of readings, two finished runs, and a plan.

Readings are simulated here, and stored as a gap says: nothing was read then. Runs and plan are made by the services
that pages use, and take their usual way.
"""

from __future__ import annotations

import math
import secrets
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from typing import TypeVar

import numpy as np
import redis
from django.conf import settings
from django.db.models import Count, Q

from accounts.models import Role, User
from benchmarks.runs.models import Run
from benchmarks.runs.requests import RunRequest, spec_for_composition
from benchmarks.runs.rules import Composition
from benchmarks.runs.services import run_create
from core.errors import Conflict
from fabric.bmc.series import Quantity
from fabric.history.services import attachments_backdate
from fabric.inventory.models import Chassis, Device, Host, HostPort
from fabric.operations.models import Plan
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_create
from falconweb.launch.simulation import simulated_addresses
from telemetry.live.catalogue import BYTE_RATES, SeriesEntry, Values
from telemetry.live.frames import current_catalogue, recent_frames
from telemetry.store.batches import GAP_SECONDS, ColumnLayout, ReadingBatch, ReadingRow, RecordedGap
from telemetry.store.writer import StoreWriter

HOUR = 3600
MINUTE = 60
START_SECONDS = 120.0  # for the first readings, and the first report of an agent
WRITE_SECONDS = 60.0
FRAMES = 6  # live ones: one of them at least is of a device at work, which pauses now and then
SIMULATED = "Simulated: nothing was read before the first start."
# The share of its live value that a quantity has of the load, of now and of the last half minute.
FAST_SHARES: Mapping[str, float] = {
    Quantity.UTILISATION: 1.0, Quantity.POWER: 0.8, Quantity.CURRENT: 0.8, **dict.fromkeys(BYTE_RATES.values(), 1.0),
}  # fmt: skip
SLOW_SHARES: Mapping[str, float] = {
    Quantity.TEMPERATURE: 0.3, Quantity.FAN_RPM: 0.1, Quantity.FAN_PERCENT: 0.1, Quantity.POWER: 0.2,
    **dict.fromkeys(BYTE_RATES.values(), 0.3),
}  # fmt: skip
# Of a load, as the simulator has it: long stretches of work, short pauses between epochs, seconds each.
PERIODS = (18.0, 55.0)
PAUSE_BELOW, PAUSE = -0.82, 0.14
FAST_SECONDS, SLOW_SECONDS = 1.0, 25.0
NOISE = 0.02
STEPS = {"steps": 50, "warmup": 10}  # of a run: some ten seconds
GPUS = 2
Found = TypeVar("Found")


def demo_fill() -> None:
    """Fill a site that has nothing but simulated chassis, and neither runs nor plans; others stay as they are.

    Raises TimeoutError where no chassis is read, or no agent reports, within START_SECONDS.
    """
    chassis = list(Chassis.objects.order_by("name"))
    # A tunnel to a real one has an address of this machine, too.
    simulated = simulated_addresses(settings.CONFIG.data)
    if not chassis or any(one.url not in simulated for one in chassis) or Run.objects.exists() or Plan.objects.exists():
        return
    for one in chassis:
        store_hour(one.pk, *_wait_for(partial(_live_readings, one.pk)))
    person = User.objects.filter(role=Role.ADMINISTRATOR, is_active=True).order_by("pk")[0]
    _plan(person)
    _wait_for(partial(_runs, person))


def simulated_hour(
    entries: Sequence[SeriesEntry], values: Values, loads: Mapping[tuple[str, int], tuple[str, int]]
) -> Values:
    """Return an hour of readings [seconds, series] as those at work are `values`, with bytes as a BMC counts them.

    What belongs to one device moves together: `loads` names the device whose load moves another object.
    """
    table = np.empty((HOUR, len(entries)))
    load = cache(_load)
    for column, (entry, value) in enumerate(zip(entries, values, strict=True)):
        owner, quantity = (entry["object"], entry["id"]), entry["quantity"]
        owner = loads.get(owner, owner)
        share, seconds = FAST_SHARES.get(quantity, 0.0), FAST_SECONDS
        if not share or owner[0] != "device":  # of several devices together
            share, seconds = SLOW_SHARES.get(quantity, 0.0), SLOW_SECONDS
        moved = value * (1 - share + share * load(owner, seconds)) if share else np.full(HOUR, value)
        if quantity == Quantity.UTILISATION:
            moved = np.minimum(moved, 100.0)
        elif quantity == Quantity.ENERGY:  # the BMC has counted it since its start alone
            moved = np.full(HOUR, math.nan)
        elif quantity in BYTE_RATES.values():
            moved = np.cumsum(np.rint(moved))
        table[:, column] = np.round(moved, 2)
    return table


def store_hour(chassis: int, entries: Sequence[SeriesEntry], values: Values, until: float) -> None:
    """Store an hour of simulated readings of a chassis, up to `until` (Unix s), and say that they are simulated."""
    slots = Device.objects.filter(chassis=chassis, slot__port__isnull=False).values_list("slot__port", "pk")
    loads = {("port", port): ("device", device) for port, device in slots}
    writer = StoreWriter(gather=0.0)
    for batch in _batches(chassis, entries, simulated_hour(entries, values, loads), until):
        writer.put(batch)
    writer.stop(WRITE_SECONDS)
    # The first walk found the devices in place: charts of chassis, drawers and hosts count them from then on.
    attachments_backdate(chassis=chassis, since=datetime.fromtimestamp(until - HOUR, UTC))


def _batches(chassis: int, entries: Sequence[SeriesEntry], table: Values, until: float) -> Iterator[ReadingBatch]:
    layout, run, before = ColumnLayout(entries), secrets.randbits(31), None
    times = [until - HOUR + second for second in range(HOUR)]
    for first in range(0, HOUR, MINUTE):
        part = slice(first, first + MINUTE)
        rows = tuple(ReadingRow(at, at, row) for at, row in zip(times[part], table[part], strict=True))
        gaps = (RecordedGap(times[0], until, SIMULATED),) if first == 0 else ()
        yield ReadingBatch(chassis, GAP_SECONDS, layout, rows, run, before, gaps=gaps)
        before = rows[-1].at


def _load(owner: tuple[str, int], seconds: float) -> Values:
    """Return the load of a device within the hour as the mean of the last `seconds` or so, about 1 at work.

    Of more than a pause it is 1 in the mean.
    """
    random = np.random.default_rng(zlib.crc32(repr(owner).encode()))
    phase = 2 * math.pi * (np.arange(HOUR) / random.uniform(*PERIODS) + random.random())
    work = np.where(np.sin(phase) > PAUSE_BELOW, 0.94 + 0.06 * np.sin(3.1 * phase), PAUSE)
    weights = np.exp(-np.arange(4 * seconds) / seconds)
    before = np.pad(work + NOISE * random.uniform(-1, 1, HOUR), (len(weights) - 1, 0), mode="reflect")
    load: Values = np.convolve(before, weights / weights.sum(), mode="valid")
    return load / load.mean() if seconds == SLOW_SECONDS else load


def _live_readings(chassis: int) -> tuple[list[SeriesEntry], Values, float] | None:
    """Return the series of a chassis, the highest of its first readings, and the time of the first.

    None before its devices are known, whose series are then its own.
    """
    entries = current_catalogue(chassis)
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2.0) as client:
        frames = list(recent_frames(client.lrange(f"live:recent:{chassis}", 0, -1)))
    known = [frame for frame in frames if frame[0] == frames[-1][0] and len(frame[2]) == len(entries)]
    if len(known) < FRAMES or not any(entry["object"] == "device" for entry in entries):
        return None
    table = np.array([values for _, _, values in known], dtype=np.float64)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of a series without any value
        return entries, np.nanmax(table, axis=0), known[0][1]


def _plan(person: User) -> None:
    """Draft a plan that attaches detached GPUs of a drawer to the host there that has fewest."""
    detached = Device.objects.filter(kind=Device.Kind.GPU, host_port=None, missing_since=None)
    detached = detached.order_by("chassis__name", "pk")
    first = detached.filter(slot__drawer__isnull=False).select_related("slot").first()
    if first is None or first.slot is None:
        return
    drawer = first.slot.drawer_id
    ports = HostPort.objects.filter(drawer=drawer, host__isnull=False).select_related("host")
    port = min(ports, key=lambda one: one.devices.count(), default=None)
    if port is None or port.host is None:
        return
    gpus = detached.filter(slot__drawer=drawer).values_list("pk", flat=True)[:GPUS]
    desired = DesiredState(attachments=dict.fromkeys(gpus, port.pk))
    plan_create(
        person=person,
        desired=desired,
        title=f"Attach {len(desired.attachments)} GPUs to {port.host.name}",
        origin="demo",
    )


def _runs(person: User) -> bool | None:
    """Start a run on GPUs of a host's own, and one on GPUs of a chassis; None while its agent does not report."""
    # While a host of the simulator runs something, its other devices idle: the host with fewest.
    gpus = Q(host_ports__devices__kind=Device.Kind.GPU, host_ports__devices__missing_since=None)
    hosts = Host.objects.annotate(gpus=Count("host_ports__devices", filter=gpus))
    host = hosts.filter(local_gpu_count__gte=GPUS, gpus__gte=GPUS).order_by("gpus", "name").first()
    if host is None:
        return True
    own = Device.objects.filter(kind=Device.Kind.GPU, host_port__host=host, missing_since=None).order_by("pk")
    attached = dict(own.values_list("pk", "host_port")[:GPUS])
    try:
        for composition in (Composition(host=host.pk, local_gpus=GPUS), Composition(host=host.pk, devices=attached)):
            spec = spec_for_composition("resnet50", "paper", STEPS, composition)
            request = RunRequest(spec=spec, composition=composition, executor="simulated", preset="paper")
            run_create(person=person, request=request, idempotency_key=f"demo-{composition.local_gpus}")
    except Conflict:
        return None
    return True


def _wait_for(look: Callable[[], Found | None]) -> Found:
    deadline = time.monotonic() + START_SECONDS
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError("No chassis was read, or no agent reports: the demonstration is not complete.")
        time.sleep(0.5)
    return found
