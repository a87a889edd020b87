"""What is, what is wanted, and the steps between them, as frozen values: pure, no database, no BMC.

`fabric.stepping` finds the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from fabric.bmc.types import DrawerMode
from fabric.rules import Connection, DrawerState

StepKind = Literal["attach", "detach", "move", "mode", "port", "cable"]
UNCONFIGURED = "UnconfiguredPort"
# What a port can be configured as; what else a service tells is shown, and never wanted.
PORT_TYPES = ("DownstreamPort", "UpstreamPort", UNCONFIGURED)
LANES = (1, 2, 4, 8, 16)


def port_types(*, of_host: bool) -> tuple[str, ...]:
    """Return what a port that leads to a host, or else to a slot, can be configured as: it is wired for that alone."""
    return ("UpstreamPort" if of_host else "DownstreamPort", UNCONFIGURED)


@dataclass(frozen=True, kw_only=True)
class PortSeen:
    """A host port: its id, the id of the switch port behind it, and the host that its cable leads to."""

    id: int
    label: str
    number: int
    host: int | None
    port: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceSeen:
    """A device in a slot: where it is attached (a host port's id, None: nowhere), and the id of its slot's port.

    `identity` tells it from another one that may be put into the slot.
    """

    id: int
    name: str
    slot: int
    attached: int | None
    port: int | None = None
    identity: str = ""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a port shall be: '' and None leave its type and its lanes as they are."""

    port_type: str = ""
    configured_width: int | None = None

    @property
    def words(self) -> str:
        """What is not left as it is, as its BMC calls it: 'DownstreamPort x8'."""
        lanes = f"x{self.configured_width}" if self.configured_width else ""
        return " ".join(one for one in (self.port_type, lanes) if one)


@dataclass(frozen=True, kw_only=True)
class DrawerSeen:
    """A drawer (id None: what is in no drawer) of a chassis as it will be after all that was asked for already."""

    chassis: int
    id: int | None
    name: str
    mode: DrawerMode
    ports: tuple[PortSeen, ...]
    devices: tuple[DeviceSeen, ...]
    # Ids of ports to what they are set to: only those that are known.
    settings: Mapping[int, Setting] = field(default_factory=dict)

    def state(self, *, is_empty: bool = False) -> DrawerState:
        """Return it as the rules see it; `is_empty`: as if nothing were attached."""
        labels = {} if is_empty else {port.id: port.label for port in self.ports}
        return DrawerState(
            mode=self.mode,
            connections=tuple(
                Connection(label=port.label, number=port.number, host="" if port.host is None else str(port.host))
                for port in self.ports
            ),
            attached={one.slot: labels[one.attached] for one in self.devices if one.attached in labels and one.slot},
        )


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is wanted, by ids; what is not named stays as it is.

    `attachments` device to host port (None: no host), `modes` drawer to mode, `cables` host port to host (None: no
    cable), `settings` switch port to its type and lanes.
    """

    attachments: Mapping[int, int | None] = field(default_factory=dict)
    modes: Mapping[int, DrawerMode] = field(default_factory=dict)
    cables: Mapping[int, int | None] = field(default_factory=dict)
    settings: Mapping[int, Setting] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON, ids as strings."""
        plain: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Wanted:
        """Read what `as_json` returned; raises msgspec.ValidationError for anything else."""
        return msgspec.convert(plain, cls, strict=False)

    def with_interrupted(self, steps: Iterable[Step]) -> Wanted:
        """Return it with the places of devices that the steps only interrupt.

        Planned anew after some of the steps, it puts those back too, which by then are elsewhere.
        """
        back = {step.device: step.target for step in steps if step.interrupts and step.device and step.kind == "attach"}
        return replace(self, attachments={**back, **self.attachments})


@dataclass(frozen=True, kw_only=True)
class Step:
    """One operation of a plan; `after` are the positions of the steps that must be done before it.

    `interrupts` marks a device that is taken out and put back where it was, for something else to change.
    """

    position: int
    kind: StepKind
    chassis: int
    drawer: int | None
    device: int | None = None
    source: int | None = None
    target: int | None = None
    mode: str = ""
    port: int | None = None
    setting: Setting | None = None
    host: int | None = None
    after: tuple[int, ...] = ()
    interrupts: bool = False


@dataclass(frozen=True, kw_only=True)
class Objection:
    """Why a wanted allocation cannot be: a sentence, and what it is about."""

    sentence: str
    drawer: int | None = None
    device: int | None = None


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The steps in an order in which each is allowed, or the objections and no steps."""

    steps: tuple[Step, ...] = ()
    objections: tuple[Objection, ...] = ()


def after_steps(drawer: DrawerSeen, wanted: Wanted) -> DrawerSeen:
    """Return a drawer as it is once all that is wanted of it is so."""
    return replace(
        drawer,
        mode=drawer.mode if drawer.id is None else wanted.modes.get(drawer.id, drawer.mode),
        ports=tuple(replace(port, host=wanted.cables.get(port.id, port.host)) for port in drawer.ports),
        devices=tuple(
            replace(device, attached=wanted.attachments.get(device.id, device.attached)) for device in drawer.devices
        ),
        settings={
            **drawer.settings,
            **{
                port: _merged(drawer.settings.get(port, Setting()), wanted.settings[port])
                for port in ports_of(drawer) & set(wanted.settings)
            },
        },
    )


def ports_of(drawer: DrawerSeen) -> set[int]:
    """Return the ids of the ports of a drawer, of slots and of host ports."""
    slots = {device.port for device in drawer.devices if device.port is not None}
    return slots | {port.port for port in drawer.ports if port.port is not None} | set(drawer.settings)


def _merged(now: Setting, wanted: Setting) -> Setting:
    return Setting(
        port_type=wanted.port_type or now.port_type,
        configured_width=wanted.configured_width or now.configured_width,
    )
