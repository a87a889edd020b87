"""Traces that a person sees, and plays of them on a topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import zstandard
from django.db.models import QuerySet

from accounts.models import User
from accounts.visibility import visible_or_404
from benchmarks.model import ModelError
from benchmarks.model.calibration import PAPER_TOPOLOGIES
from benchmarks.runs.topology import composition_topology, host_composition
from benchmarks.simulation.chakra import MAX_TRACE_BYTES, read_trace
from benchmarks.simulation.trace import TraceSimulation, simulate_trace
from benchmarks.traces.models import ImportedTrace
from core.database import natural
from core.errors import Invalid
from core.language import _
from fabric.inventory.models import Host

DEFAULT_PLACE: Final = "falconGPUs"


@dataclass(frozen=True, kw_only=True)
class PlayedTrace:
    """A play of a trace at a place; `place` is the topology's name. `sent_rate`: bytes a second of each device."""

    place: str
    simulation: TraceSimulation

    @property
    def sent_rate(self) -> float:
        return self.simulation.sent / self.simulation.seconds if self.simulation.seconds else 0.0

    @property
    def waited(self) -> float:
        """Seconds in which neither kernels ran nor bytes of an exchange moved: copies, the host, and waiting."""
        return max(0.0, self.simulation.seconds - self.simulation.computed - self.simulation.exposed)


def trace_list(person: User) -> QuerySet[ImportedTrace]:
    """Return the traces that a person sees, newest first, without their files."""
    return ImportedTrace.objects.visible_to(person).defer("content")


def trace_get(person: User, pk: object) -> ImportedTrace:
    """Return a trace. Raises NotFound."""
    row: ImportedTrace = visible_or_404(ImportedTrace.objects.defer("content"), person, pk, "trace")
    return row


def places(person: User) -> list[tuple[str, str]]:
    """Return where a trace can be played: published configurations, and hosts that the person sees; value and label."""
    hosts = Host.objects.visible_to(person).order_by(natural("name")).values_list("pk", "name")
    published = [name for name, one in PAPER_TOPOLOGIES.items() if len(one.accelerators) > 1]
    return [(str(pk), name) for pk, name in hosts] + [(name, _("{name}, published", name=name)) for name in published]


def trace_play(person: User, trace: ImportedTrace, *, place: str, devices: str = "") -> PlayedTrace:
    """Play a trace on a published configuration, or on a host as it is composed now, by its id.

    `devices` '' takes all. Raises NotFound for a place that the person does not see, Invalid for an impossible number.
    """
    topology = PAPER_TOPOLOGIES.get(place) or composition_topology(host_composition(person, place))
    count = len(topology.accelerators)
    if not count:
        raise Invalid(_("{name} has no GPU now: nothing can be played on it.", name=topology.name))
    if devices and not (devices.isascii() and devices.isdecimal() and len(devices) < 6):
        raise Invalid(_("The number of devices is a whole number."), errors={"devices": _("Give a whole number.")})
    content = zstandard.decompress(trace.content, max_output_size=MAX_TRACE_BYTES)
    try:
        found = simulate_trace(read_trace(content), topology, int(devices) if devices else count)
    except ModelError as error:
        raise Invalid(error.sentence, errors={"devices": error.sentence}) from error
    return PlayedTrace(place=topology.name, simulation=found)
