"""Progress of an attachment: requested, switched, link trained, seen by the host, in use."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from django.db.models import Prefetch, QuerySet
from django.utils.text import capfirst

from accounts.approvals.models import Danger
from accounts.approvals.services import Proposal
from accounts.audit.services import target_of
from accounts.models import User
from accounts.visibility import visible_or_404
from core.database import CompiledQuery
from core.language import _, gettext_noop
from core.zones import CLOCK, local_words
from fabric.agents.selectors import DeviceOnHost, devices_on_hosts, holders_label, uncertainty_label
from fabric.inventory.labels import host_port_name, may_name_host
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, ManagedPart
from fabric.inventory.selectors import Rows, downgraded, visible_prefetch
from fabric.operations.models import Operation, Plan
from fabric.operations.projected_state import DrawerKey

StageState = Literal["done", "waiting", "wrong", "unknown"]


@dataclass(frozen=True)
class ReadinessStage:
    """A stage: reached (done), not yet (waiting), not as it should be (wrong), or unknown."""

    name: str
    state: StageState
    sentence: str = ""


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """The stages of a device; no stages: attached to no host.

    `uncertainty` says why its host cannot identify its card, and who uses the candidates; '' where it can.
    """

    stages: tuple[ReadinessStage, ...] = ()
    is_reported: bool = False  # whether the host's agent reports who uses it
    used_by: str = ""
    uncertainty: str = ""


def device_readiness(device: Device, *, operation: Operation | None = None) -> Readiness:
    """Return the stages of a device: of its present attachment, or of the open `operation` on it.

    `device` is best read with `host_port__host` and `slot__port`.
    """
    target = operation.target_id if operation is not None and operation.is_open else None
    if device.host_port is None and target is None:
        return Readiness()
    switched = device.host_port is not None and target in {None, device.host_port_id}
    link: tuple[StageState, str] = _link_stage(device) if switched else ("waiting", "")
    side = devices_on_hosts([device])[device.pk] if switched else DeviceOnHost(reported=False)
    return Readiness(
        stages=(
            ReadinessStage(_("Requested"), "done"),
            ReadinessStage(_("Switched"), "done" if switched else "waiting"),
            ReadinessStage(_("Link trained"), *link),
            ReadinessStage(_("Seen by the host"), *_seen_stage(side, is_trained=link[0] == "done")),
            ReadinessStage(_("In use"), *_use_stage(side)),
        ),
        is_reported=side.reported,
        used_by="" if side.unsure else holders_label(side.holders),
        uncertainty=uncertainty_label(side),
    )


def _link_stage(device: Device) -> tuple[StageState, str]:
    port = device.slot.port if device.slot is not None else None
    if port is None or not port.link_status:
        return "unknown", _("The chassis does not report its link.")
    if port.link_status in {"Training", "Starting"}:
        return "waiting", _("It trains.")
    if port.link_status != "LinkUp":
        return "wrong", _("The link is '{status}'.", status=port.link_status)
    if below := downgraded(device):
        return "wrong", _("Below its maximum width or speed: {below}.", below=below)
    width = port.active_width or "?"
    if port.speed_gbps:
        return "done", _("x{width} at {speed:g} Gb/s, as it should be.", width=width, speed=port.speed_gbps)
    return "done", _("x{width}, as it should be.", width=width)


def _seen_stage(side: DeviceOnHost, *, is_trained: bool) -> tuple[StageState, str]:
    if not side.reported:
        return "unknown", side.no_report_reason
    if side.unsure:
        return "unknown", f"{capfirst(_(side.unsure))}."
    if side.seen is None:
        todo = _("The host does not see it. Detach and attach it again, so that the host rescans.")
        return "wrong" if is_trained else "waiting", todo
    if side.seen.width:
        return "done", _("At {address}, x{width}.", address=side.seen.address, width=side.seen.width)
    return "done", _("At {address}.", address=side.seen.address)


def _use_stage(side: DeviceOnHost) -> tuple[StageState, str]:
    if not side.reported:
        return "unknown", ""
    if side.unsure:
        return "unknown", f"{capfirst(uncertainty_label(side))}."
    if not side.holders:
        return "waiting", _("No process uses it now.")
    return "done", _("By {holders}.", holders=holders_label(side.holders))


SAMPLE_SIZE = 200
MIN_SAMPLES = 3  # fewer do not show the usual duration
QUANTILES = 10
NO_HISTORY = gettext_noop("no history yet")

DurationKey = tuple[str, int]  # the kind of an operation, and the id of its chassis


@dataclass(frozen=True, kw_only=True)
class DurationRange:
    """The 10th and the 90th percentile of a duration, in s."""

    low: float
    high: float

    @property
    def words(self) -> str:
        """Return 'usually 4 to 9 s'."""
        return _("usually {range}", range=format_duration_range(self.low, self.high))


def usual_durations(kinds: Collection[DurationKey]) -> dict[DurationKey, DurationRange]:
    """Return how long operations of these kinds usually take; those without a history are left out.

    The source is the newest 200 that succeeded on the same chassis, else on all.
    """
    found: dict[DurationKey, DurationRange] = {}
    anywhere: dict[str, DurationRange | None] = {}
    done = Operation.objects.filter(state=Operation.State.DONE, started_at__isnull=False, finished_at__isnull=False)
    for kind, chassis in sorted(set(kinds)):
        usually = _duration_range(done.filter(kind=kind, chassis=chassis))
        if usually is None:
            if kind not in anywhere:
                anywhere[kind] = _duration_range(done.filter(kind=kind))
            usually = anywhere[kind]
        if usually is not None:
            found[kind, chassis] = usually
    return found


def longest_drawer_duration(
    steps: Iterable[tuple[DrawerKey, str]], usual: dict[DurationKey, DurationRange]
) -> DurationRange | None:
    """Return how long steps (drawer and kind) take: drawers in parallel, the steps of each one after the other.

    None where there are no steps, or no history of one of the kinds.
    """
    sums: dict[DrawerKey, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for place, kind in steps:
        if (usually := usual.get((kind, place[0]))) is None:
            return None
        sums[place][0] += usually.low
        sums[place][1] += usually.high
    if not sums:
        return None
    return DurationRange(low=max(low for low, _ in sums.values()), high=max(high for _, high in sums.values()))


def format_duration_range(low: float, high: float) -> str:
    """Return two durations in s as '4 to 9 s', '0.4 to 0.9 s' or '2 to 4 min'; as one where they round to one."""
    if high >= 120:
        begin, end, unit = f"{low / 60:.0f}", f"{high / 60:.0f}", "min"
    elif high < 3:
        begin, end, unit = f"{low:.1f}", f"{high:.1f}", "s"
    else:
        begin, end, unit = f"{low:.0f}", f"{high:.0f}", "s"
    return f"{end} {unit}" if begin == end else _("{begin} to {end} {unit}", begin=begin, end=end, unit=unit)


def _duration_range(done: Any) -> DurationRange | None:
    times = done.order_by("-finished_at").values_list("started_at", "finished_at")[:SAMPLE_SIZE]
    seconds = [max(0.0, (finished - started).total_seconds()) for started, finished in times]
    if len(seconds) < MIN_SAMPLES:
        return None
    tenths = statistics.quantiles(seconds, n=QUANTILES, method="inclusive")
    return DurationRange(low=tenths[0], high=tenths[-1])


def operation_rows(
    person: User, *, chassis: int | None = None, device: int | None = None, state: str | None = None
) -> Rows:
    """Return operations, newest first, with the chassis, drawers, devices and host ports that the user may see.

    The requester of an operation still sees it when its device is granted to another tenant.
    """
    rows = Operation.objects.visible_to(person).order_by("-requested_at")
    if chassis is not None:
        rows = rows.filter(chassis__in=Chassis.objects.visible_to(person).filter(pk=chassis).values("pk"))
    if device is not None:
        rows = rows.filter(device__in=Device.objects.visible_to(person).filter(pk=device).values("pk"))
    if state is not None:
        rows = rows.filter(state=state)
    return rows.select_related("proof").prefetch_related(
        visible_prefetch("chassis", Chassis, person),
        visible_prefetch("drawer", Drawer, person),
        visible_prefetch("device", Device, person),
        visible_prefetch("managed_part", ManagedPart, person),
        visible_prefetch("source", HostPort, person),
        visible_prefetch("target", HostPort, person),
    )


def visible_host_port(person: User, pk: int | None) -> HostPort | None:
    """Return the host port of that id, None for None; raises NotFound where the user sees none."""
    row: HostPort | None = None if pk is None else visible_or_404(HostPort.objects.all(), person, pk, "host port")
    return row


def may_cancel(person: User, operation: Operation) -> bool:
    """Return whether the user may cancel an operation: administrators, and members of the requester's tenant."""
    return person.may_compose and (person.is_administrator or operation.tenant_id == person.tenant_id)


def operations_visible_to(person: User) -> QuerySet[Operation]:
    """Return the operations a user may see, newest first; each with its plan where they may see that too."""
    rows = Operation.objects.visible_to(person).select_related("chassis", "device", "source", "target")
    return rows.prefetch_related(Prefetch("plan", Plan.objects.visible_to(person)))


# Sources in features above of parts that are being returned: why a user may no longer attach any of these devices (ids)
# or to any of these host ports (ids); '' where they may.
ATTACHMENT_CHECKS: Final[list[Callable[[User, Collection[int], Collection[int]], str]]] = []


def attachment_obstacle(person: User, devices: Collection[int], host_ports: Collection[int] = ()) -> str:
    """Return why the user may not attach any of these devices, or to any of these host ports; '' where they may."""
    return next((reason for check in ATTACHMENT_CHECKS if (reason := check(person, devices, host_ports))), "")


PROOF_UNREAD = gettext_noop("Whether other links changed could not be read from the chassis.")


def queue_head(of: Operation) -> Operation | None:
    """Return the open operation whose turn it is among those that run one after the other with `of`.

    With its id, its claim and its plan.
    """
    return _queue_head_query(of.kind, is_in_drawer=of.drawer_id is not None).first(of.chassis_id, of.drawer_id)


@cache
def _queue_head_query(kind: str, *, is_in_drawer: bool) -> CompiledQuery[Operation]:
    def make(chassis: Any, drawer: Any) -> QuerySet[Operation]:
        of = Operation(kind=kind, chassis_id=chassis, drawer_id=drawer if is_in_drawer else None)
        return Operation.objects.open().in_queue_of(of).in_turn_to_run().only("lease_until", "plan")[:1]

    return CompiledQuery(make)


def open_operation_sentence(what: str, operation: Operation, person: User | None) -> str:
    """Return who is changing something, since when; for parts that the user may not see, that it has not ended."""
    if person is not None and not Operation.objects.visible_to(person).filter(pk=operation.pk).exists():
        return _("{what} is taken: another operation has not ended.", what=what)
    return _(
        "{what} is taken: {person} asked at {time} to '{summary}', which has not ended.",
        what=what, person=operation.requested_by_name, time=local_words(operation.requested_at, CLOCK),
        summary=operation.summary,
    )  # fmt: skip


def operation_summary(device: Device, source: HostPort | None, target: HostPort | None) -> str:
    """Return the summary of a change, for everybody who may see the device: another tenant's host is not named."""

    before, after = _place_label(device, source), _place_label(device, target)
    slot = f" ({device.slot.name})" if device.slot else ""
    if source is not None and source == target:
        return f"Detach {device.name}{slot} from {before} and attach it there again"
    if target is None:
        return f"Detach {device.name}{slot} from {before}"
    if source is None:
        return f"Attach {device.name}{slot} to {after}"
    return f"Move {device.name}{slot} from {before} to {after}"


def device_proposal(
    *, person: User, device: Device, target: HostPort | None, force: bool = False, **_: Any
) -> Proposal:
    """Return what a requested change of a device would do."""
    held = [one.tenant.name for one in (device, target) if one is not None and one.tenant is not None]
    dangers = ([Danger.FORCE] if force else []) + ([Danger.TENANT] if person.is_administrator and held else [])
    summary = operation_summary(device, device.host_port, target)
    return Proposal(
        dangers=dangers,
        target=target_of(device),
        sentence=f"{summary}{', by force' if force else ''}.",
        facts={"attached to": _place_label(device, device.host_port), "held by": held},
    )


def mode_proposal(*, drawer: Drawer, mode: str, **_: Any) -> Proposal:
    """Return what another mode of a drawer would change."""
    name = f"{drawer.chassis.name} {drawer.name}"
    attached = Device.objects.filter(slot__drawer=drawer, host_port__isnull=False).order_by("pk")
    return Proposal(
        dangers=[Danger.MODE],
        target=target_of(drawer, name),
        sentence=f"Change {name} to {mode}.",
        facts={"mode": drawer.mode, "attached": [f"{one.name} (port {one.host_port_id})" for one in attached]},
    )


def _place_label(device: Device, port: HostPort | None) -> str:
    return port.label if port is not None and not may_name_host(device, port) else host_port_name(port)
