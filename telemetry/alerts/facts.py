"""What alert engines start from: the rules that are on, the facts of a chassis, and the states of its open alerts."""

from __future__ import annotations

from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port
from telemetry.alerts.checks import ActiveRule, ChassisFacts, RuleSet
from telemetry.alerts.engine import FIRING, PENDING, CheckState
from telemetry.alerts.models import Alert, BuiltInSwitch, Rule
from telemetry.alerts.rules import BUILT_IN_RULES, AlertSubject


def active_rule(rule: Rule) -> ActiveRule:
    """Return a rule in a form independent of the database."""
    return ActiveRule(
        pk=rule.pk,
        name=rule.name,
        metric=rule.metric,
        scope=rule.as_scope(),
        terms=rule.terms,
        severity=rule.severity,
        version=str(rule.changed_at),
    )


def enabled_built_ins() -> frozenset[str]:
    """Return the names of the built-in rules that are on."""
    switched = dict(BuiltInSwitch.objects.values_list("name", "enabled"))
    return frozenset(name for name, known in BUILT_IN_RULES.items() if switched.get(name, known.is_on))


def active_rules() -> RuleSet:
    rules = tuple(active_rule(rule) for rule in Rule.objects.filter(enabled=True).order_by("pk"))
    switched = BuiltInSwitch.objects.order_by("-changed_at").values_list("changed_at", flat=True).first()
    return RuleSet(rules=rules, built_ins=enabled_built_ins(), version=str(switched or ""))


def chassis_facts(chassis_id: int, *, with_parts: bool = True) -> ChassisFacts:
    """Return the facts of a chassis in five queries, whatever its size; raises Chassis.DoesNotExist.

    Without its parts they are those that the check needs of a chassis that does not answer.
    """
    name = Chassis.objects.values_list("name", flat=True).get(pk=chassis_id)
    subjects = {("chassis", 0): AlertSubject(object="chassis", chassis=chassis_id, name=name)}
    if not with_parts:
        return ChassisFacts(chassis=chassis_id, name=name, subjects=subjects)
    for pk, drawer_name in Drawer.objects.filter(chassis=chassis_id).order_by().values_list("pk", "name"):
        subjects["drawer", pk] = AlertSubject(object="drawer", chassis=chassis_id, drawer=pk, name=drawer_name)
    behind: dict[int, AlertSubject] = {}
    rows = (
        Device.objects.filter(chassis=chassis_id)
        .order_by()
        .values_list(
            "pk",
            "name",
            "kind",
            "tenant",
            "slot__drawer",
            "slot__port",
            "slot__name",
            "slot__drawer__name",
            "slot__number",
        )
    )
    for pk, device_name, kind, tenant, drawer, port, slot, in_drawer, number in rows:
        # A chassis has many devices of one model: only their places distinguish them.
        place = f"{in_drawer} slot {number}" if in_drawer else slot
        device = AlertSubject(
            object="device", chassis=chassis_id, drawer=drawer, device=pk, device_kind=kind, tenant=tenant,
            name=f"{device_name}, {place}" if place else device_name,
        )  # fmt: skip
        subjects["device", pk] = device
        if port is not None:
            behind[port] = device
    attached = HostPort.objects.filter(chassis=chassis_id, port__isnull=False).order_by()
    host_ports = {row[0]: row[1:] for row in attached.values_list("port", "pk", "tenant", "drawer", "label")}
    ports = Port.objects.filter(chassis=chassis_id).order_by()
    for pk, port_name, drawer in ports.values_list("pk", "name", "switch__drawer"):
        device_behind = behind.get(pk)
        host_port, tenant, port_drawer, label = host_ports.get(pk, (None, None, drawer, ""))
        subjects["port", pk] = AlertSubject(
            object="port", chassis=chassis_id, drawer=device_behind.drawer if device_behind else port_drawer or drawer,
            device=device_behind.device if device_behind else None,
            device_kind=device_behind.device_kind if device_behind else "", port=pk, host_port=host_port,
            tenant=device_behind.tenant if device_behind else tenant,
            name=f"Link of {device_behind.name}" if device_behind else f"Host port {label}" if label else port_name,
        )  # fmt: skip
    return ChassisFacts(chassis=chassis_id, name=name, subjects=subjects)


def open_alert_states(chassis_id: int) -> dict[tuple[str, str], CheckState]:
    """Return the stored states of a chassis' checks, by their identity, from which its engine continues."""
    rows = Alert.objects.filter(chassis=chassis_id, state__in=Alert.OPEN).order_by()
    found = rows.values_list("cause", "series_key", "state", "since", "worst_value")
    return {
        (cause, key): CheckState(
            PENDING if state == Alert.State.PENDING else FIRING,
            since.timestamp(),
            float("nan") if worst is None else worst,
        )
        for cause, key, state, since, worst in found
    }
