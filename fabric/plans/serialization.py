"""Plans in words and in JSON: their base state, their steps, and the changes since."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from django.utils import translation

from accounts.models import User
from core.language import SOURCE_LANGUAGE, _, english
from fabric.inventory.labels import host_port_name, slot_label
from fabric.inventory.models import Device, Drawer, Host, HostPort, Port
from fabric.operations.rules import DrawerSnapshot, PortSetting
from fabric.operations.selectors import operation_summary
from fabric.plans.rules import DesiredState, PlannedSteps, PlanStep


@dataclass(frozen=True, kw_only=True)
class DesiredParts:
    """The rows that a desired state names, by their ids."""

    devices: Mapping[int, Device]
    host_ports: Mapping[int, HostPort]
    drawers: Mapping[int, Drawer]
    ports: Mapping[int, Port]
    hosts: Mapping[int, Host]

    @property
    def chassis(self) -> set[int]:
        """The ids of the chassis that they are in."""
        rows = (*self.devices.values(), *self.host_ports.values(), *self.drawers.values(), *self.ports.values())
        return {row.chassis_id for row in rows}


def base_state_json(drawers: Iterable[DrawerSnapshot]) -> dict[str, Any]:
    """Return, as JSON, the state of drawers that a plan is based on: a DesiredState, and the identities of devices."""
    seen = list(drawers)
    state = DesiredState(
        attachments={device.id: device.attached for drawer in seen for device in drawer.devices},
        modes={drawer.id: drawer.mode for drawer in seen if drawer.id is not None},
        cables={port.id: port.host for drawer in seen for port in drawer.ports},
        settings={port: setting for drawer in seen for port, setting in drawer.settings.items()},
    )
    return {**state.as_json(), "identities": {str(one.id): one.identity for drawer in seen for one in drawer.devices}}


def replaced_devices(base: Mapping[str, Any], now: Mapping[str, Any]) -> list[int]:
    """Return the devices (ids) whose slots have other devices than when the plan was made."""
    then, current = base.get("identities", {}), now.get("identities", {})
    return [int(pk) for pk, identity in then.items() if pk in current and current[pk] != identity]


def base_differences(base: Mapping[str, Any], now: Mapping[str, Any], person: User | None) -> list[str]:
    """Return sentences on the differences from the base state of a plan that the user may see."""
    if base == now:
        return []
    then, current = DesiredState.from_json(base), DesiredState.from_json(now)
    devices = visible_rows(
        Device.objects.select_related("slot"), person, _changed(then.attachments, current.attachments)
    )
    names = host_port_names({*then.attachments.values(), *current.attachments.values()}, person)
    sentences: list[str] = []
    for pk, device in devices.items():
        before, after = (names.get(one.get(pk), _("no host")) for one in (then.attachments, current.attachments))
        name = f"{device.name} ({device.slot.name})" if device.slot else device.name
        sentences.append(_("{device} was at {before} and is at {after} now.", device=name, before=before, after=after))
    swapped = visible_rows(Device.objects.select_related("slot__drawer"), person, replaced_devices(base, now)).values()
    sentences += [
        _("There is another device in {slot} now: {device}.", slot=slot_label(row) or row.uri, device=row.name)
        for row in swapped
    ]
    drawers = Drawer.objects.select_related("chassis")
    for pk, drawer in visible_rows(drawers, person, _changed(then.modes, current.modes)).items():
        before, after = (one.modes[pk].value if pk in one.modes else _("none") for one in (then, current))
        sentences.append(
            _(
                "{chassis} {drawer} was in mode {before} and is in {after} now.",
                chassis=drawer.chassis.name,
                drawer=drawer.name,
                before=before,
                after=after,
            )
        )
    host_ports = HostPort.objects.select_related("chassis")
    cables = visible_rows(host_ports, person, _changed(then.cables, current.cables)).values()
    sentences += [
        _("The cable of {chassis} {label} leads to another host now.", chassis=port.chassis.name, label=port.label)
        for port in cables
    ]
    ports = visible_rows(Port.objects.all(), person, _changed(then.settings, current.settings)).values()
    sentences += [_("{port} is configured otherwise now.", port=port.name) for port in ports]
    return sentences


def host_port_names(pks: Collection[int | None], person: User | None) -> dict[int | None, str]:
    """Return host ports in words, by id; those that the person may not see are 'another host'."""
    rows = HostPort.objects.select_related("host").filter(pk__in=[pk for pk in pks if pk is not None])
    seen = {row.pk for row in rows} if person is None else set(
        HostPort.objects.visible_to(person).filter(pk__in=rows).values_list("pk", flat=True)
    )  # fmt: skip
    return {row.pk: host_port_name(row) if row.pk in seen else _("another host") for row in rows} | {None: _("no host")}


def step_sentence(step: PlanStep, parts: DesiredParts) -> str:
    """Return a step as a sentence for everybody who may see its device: another tenant's host is not named."""
    with translation.override(SOURCE_LANGUAGE):  # it is stored
        if step.device is not None:
            source = parts.host_ports[step.source] if step.source is not None else None
            target = parts.host_ports[step.target] if step.target is not None else None
            return operation_summary(parts.devices[step.device], source, target)
        if step.kind == "mode" and step.drawer is not None:
            drawer = parts.drawers[step.drawer]
            return f"Change {drawer.chassis.name} {drawer.name} to {step.mode}"
        if step.kind == "cable" and step.source is not None:
            port = parts.host_ports[step.source]
            host = parts.hosts[step.host].name if step.host is not None else "no host"
            return f"Move the cable of {port.chassis.name} {port.label} to {host}"
        port_row = parts.ports[step.port or 0]
        return f"Configure {port_row.chassis.name} {port_row.name} as {(step.setting or PortSetting()).words}"


def setting_json(setting: PortSetting | None) -> dict[str, Any]:
    """Return a port's setting as an operation stores it."""
    return {} if setting is None else asdict(setting)


def steps_json(planned: PlannedSteps, parts: DesiredParts | None = None) -> list[dict[str, Any]]:
    """Return steps and objections as JSON, as shown in the preview; `parts`: what `step_parts` returned for them."""
    if planned.objections:
        return [
            {"objection": english(one.sentence), "drawer": one.drawer, "device": one.device}
            for one in planned.objections
        ]
    parts = parts or step_parts(planned.steps)
    return [
        msgspec.to_builtins(step) | {"setting": setting_json(step.setting), "sentence": step_sentence(step, parts)}
        for step in planned.steps
    ]


def default_title(planned: PlannedSteps) -> str:
    if planned.objections:
        return "Not possible"
    count = len(planned.steps)
    return "Nothing to change" if not count else f"{count} step{'' if count == 1 else 's'}"


def step_parts(steps: Sequence[PlanStep]) -> DesiredParts:
    ports = {pk for step in steps for pk in (step.source, step.target) if pk is not None}
    return DesiredParts(
        devices=Device.objects.select_related("chassis", "slot").in_bulk([s.device for s in steps if s.device]),
        host_ports=HostPort.objects.select_related("chassis", "host").in_bulk(ports),
        drawers=Drawer.objects.select_related("chassis").in_bulk([s.drawer for s in steps if s.drawer]),
        ports=Port.objects.select_related("chassis").in_bulk([s.port for s in steps if s.port]),
        hosts=Host.objects.in_bulk([s.host for s in steps if s.host]),
    )


def visible_rows(rows: Any, person: User | None, pks: Collection[int]) -> dict[int, Any]:
    """Return the rows with these ids that the user may see."""
    if not pks:
        return {}
    found = rows.filter(pk__in=pks)
    if person is not None and not person.is_administrator:  # who sees all
        found = found.filter(pk__in=rows.model.objects.visible_to(person).filter(pk__in=pks).values("pk"))
    return {row.pk: row for row in found.order_by("pk")}


def _changed(then: Mapping[int, Any], now: Mapping[int, Any]) -> set[int]:
    return {pk for pk in {*then, *now} if then.get(pk, then) != now.get(pk, now)}
