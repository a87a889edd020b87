"""What messages mean: severity and plain words for each that is known, by registry and key without the version.

A BMC says how much a message matters, or should. Where it says nothing, or something that is no severity, what stands
here counts. Facts are those of the public registries, words are our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from telemetry.events import fabric_messages, service_messages, site_messages
from telemetry.events.words import OK, Severity, Words

# What services write for a severity: those of older schemas, of syslog, and in any case.
SPELLINGS = {
    "ok": OK, "informational": OK, "info": OK, "notice": OK, "debug": OK, "normal": OK, "none": OK,
    "warning": "Warning", "warn": "Warning", "caution": "Warning", "degraded": "Warning", "minor": "Warning",
    "critical": "Critical", "error": "Critical", "err": "Critical", "fatal": "Critical", "major": "Critical",
    "alert": "Critical", "emergency": "Critical", "nonrecoverable": "Critical",
}  # fmt: skip


@dataclass(frozen=True)
class Message:
    """One message of the catalogue."""

    name: str  # 'Fabric.LinkDropped'
    registry: str
    severity: Severity
    explanation: str
    advice: str  # what to do, '' where there is nothing to do

    @property
    def key(self) -> str:
        """Its name within the registry: 'LinkDropped'."""
        return self.name.removeprefix(f"{self.registry}.")


def _all(registries: Sequence[Mapping[str, Mapping[str, Words]]]) -> dict[str, Message]:
    return {
        f"{registry}.{key}": Message(f"{registry}.{key}", registry, *words)
        for registries_of in registries
        for registry, messages in registries_of.items()
        for key, words in messages.items()
    }


CATALOGUE: dict[str, Message] = _all(
    [site_messages.REGISTRIES, fabric_messages.REGISTRIES, service_messages.REGISTRIES]
)
_FOLDED = {name.casefold(): message for name, message in CATALOGUE.items()}


def message_of(message_id: str) -> str:
    """Return a message's name without its version: 'Fabric.1.0.LinkDropped' is 'Fabric.LinkDropped'."""
    parts = message_id.strip().split(".")
    return ".".join(part for index, part in enumerate(parts) if index in {0, len(parts) - 1} or not part.isdecimal())


def message_known(message_id: str) -> Message | None:
    """Return what the catalogue has of a message, with or without its version, in any case; None for a stranger."""
    return _FOLDED.get(message_of(message_id).casefold())


def severity_of(told: str, message_id: str) -> Severity:
    """Return how much an event matters: as its BMC says, else as the catalogue does, else not at all."""
    spelled = SPELLINGS.get("".join(told.split()).casefold())
    if spelled is not None:
        return spelled
    known = message_known(message_id)
    return known.severity if known else OK
