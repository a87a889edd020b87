"""What a rule, a silence or a route is about: everything, or one part of the lab. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SCOPES: Final = (
    ("all", "Everything"),
    ("chassis", "A chassis"),
    ("drawer", "A drawer"),
    ("device_kind", "A kind of device"),
    ("device", "A device"),
    ("port", "A port"),
    ("tenant", "What a tenant holds"),
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a series is measured of, and where that stands: ids of rows, None where there is none.

    A port behind a slot names the device in the slot too: what is about the device takes its link in.
    """

    object: str  # 'chassis', 'drawer', 'device' or 'port'
    chassis: int
    drawer: int | None = None
    device: int | None = None
    device_kind: str = ""
    port: int | None = None
    host_port: int | None = None
    tenant: int | None = None
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """A part of the lab; `id` of its row, `word` the kind of device."""

    kind: str = "all"
    id: int | None = None
    word: str = ""

    def takes(self, subject: Subject) -> bool:
        """Tell whether a subject is in it."""
        if self.kind == "all":
            return True
        if self.kind == "device_kind":
            return self.word != "" and subject.device_kind == self.word
        found: int | None = getattr(subject, self.kind)
        return self.id is not None and found == self.id
