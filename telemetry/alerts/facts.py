"""What the rules need to know from the database: the book of rules, a chassis' parts, and its open alerts."""

from __future__ import annotations

from collections.abc import Iterable

from fabric.models import Chassis, Device, Drawer, HostPort, Port
from telemetry.alerts.checks import Book, Facts, RuleInForce
from telemetry.alerts.engine import FIRING, PENDING, State
from telemetry.alerts.models import Alert, BuiltInSwitch, Rule
from telemetry.alerts.scopes import Subject
from telemetry.alerts.terms import BUILT_INS


def rule_in_force(rule: Rule) -> RuleInForce:
    """Return a rule without the database."""
    return RuleInForce(
        pk=rule.pk,
        name=rule.name,
        metric=rule.metric,
        scope=rule.as_scope(),
        terms=rule.terms,
        severity=rule.severity,
        version=str(rule.changed_at),
    )


def built_ins_on() -> frozenset[str]:
    """Return the names of the built-in rules that are on."""
    switched = dict(BuiltInSwitch.objects.values_list("name", "enabled"))
    return frozenset(name for name, known in BUILT_INS.items() if switched.get(name, known.is_on))


def book_in_force() -> Book:
    """Return all that may ring just now."""
    rules = tuple(rule_in_force(rule) for rule in Rule.objects.filter(enabled=True).order_by("pk"))
    switched = BuiltInSwitch.objects.order_by("-changed_at").values_list("changed_at", flat=True).first()
    return Book(rules=rules, built_ins=built_ins_on(), version=str(switched or ""))


def facts_of(chassis_id: int) -> Facts:
    """Return what is known of a chassis' parts; raises Chassis.DoesNotExist. Five queries, however large it is."""
    name = Chassis.objects.values_list("name", flat=True).get(pk=chassis_id)
    subjects = {("chassis", 0): Subject(object="chassis", chassis=chassis_id, name=name)}
    for pk, drawer_name in Drawer.objects.filter(chassis=chassis_id).values_list("pk", "name"):
        subjects["drawer", pk] = Subject(object="drawer", chassis=chassis_id, drawer=pk, name=drawer_name)
    behind: dict[int, Subject] = {}
    links: dict[int, int | None] = {}
    device_lanes: dict[int, int | None] = {}
    rows = Device.objects.filter(chassis=chassis_id).values_list(
        "pk", "name", "kind", "tenant", "slot__drawer", "slot__port", "host_port__port", "max_lanes", "missing_since",
        "slot__name", "slot__drawer__name", "slot__number",
    )  # fmt: skip
    for pk, device_name, kind, tenant, drawer, port, upstream, lanes, missing, slot, in_drawer, number in rows:
        # A chassis has many devices of one model: only the place tells them apart.
        place = f"{in_drawer} slot {number}" if in_drawer else slot
        device = Subject(
            object="device", chassis=chassis_id, drawer=drawer, device=pk, device_kind=kind, tenant=tenant,
            name=f"{device_name}, {place}" if place else device_name,
        )  # fmt: skip
        subjects["device", pk] = device
        if port is not None:
            behind[port] = device
        if upstream is not None and missing is None:
            links |= {one: None for one in (port, upstream) if one is not None}
            if port is not None:
                device_lanes[port] = lanes
    held = {
        port: (pk, tenant, drawer, label)
        for port, pk, tenant, drawer, label in HostPort.objects.filter(
            chassis=chassis_id, port__isnull=False
        ).values_list("port", "pk", "tenant", "drawer", "label")
    }
    ports = Port.objects.filter(chassis=chassis_id).values_list(
        "pk", "name", "switch__drawer", "width", "configured_width"
    )
    for pk, port_name, drawer, width, configured in ports:
        device_behind = behind.get(pk)
        host_port, tenant, port_drawer, label = held.get(pk, (None, None, drawer, ""))
        subjects["port", pk] = Subject(
            object="port", chassis=chassis_id, drawer=device_behind.drawer if device_behind else port_drawer or drawer,
            device=device_behind.device if device_behind else None,
            device_kind=device_behind.device_kind if device_behind else "", port=pk, host_port=host_port,
            tenant=device_behind.tenant if device_behind else tenant,
            name=f"Link of {device_behind.name}" if device_behind else f"Host port {label}" if label else port_name,
        )  # fmt: skip
        if pk in links:
            links[pk] = min((one for one in (width, configured, device_lanes.get(pk)) if one), default=None)
    return Facts(chassis=chassis_id, name=name, subjects=subjects, links=links)


def open_states(chassis_id: int) -> dict[tuple[str, str], State]:
    """Return how it stands with the checks of a chassis, by their identity: what its engine goes on from."""
    rows = Alert.objects.filter(chassis=chassis_id, state__in=Alert.OPEN)
    found = rows.values_list("cause", "series_key", "state", "since", "worst_value")
    return {
        (cause, key): State(
            PENDING if state == Alert.State.PENDING else FIRING,
            since.timestamp(),
            float("nan") if worst is None else worst,
        )
        for cause, key, state, since, worst in found
    }


def notes_of(rules: Iterable[int]) -> dict[int, str]:
    """Return what administrators wrote to their rules (ids), of those that are in force."""
    return dict(Rule.objects.filter(pk__in=list(rules), enabled=True).values_list("pk", "note"))
