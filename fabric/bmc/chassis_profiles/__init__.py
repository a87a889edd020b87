"""What is published of chassis of the field: their modes and limits, a file a model; an unknown chassis has no limits.

Each fact names its source and when that was read. What is not published is not in a file: the BMC enforces its rules.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

from fabric.bmc.types import DrawerMode

FOLDER = Path(__file__).parent


class PublishedSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where facts are published, and when that was read."""

    title: str
    url: str
    read: str
    published: str = ""  # '' where it has no date


class PublishedFact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number with the key of its source."""

    value: int
    source: str


class ModeFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is published of a mode of a drawer; None: nothing.

    `host_ports` is how many have devices at a time, `halves` how many reach one half of the slots each, `hosts` how
    many share the slots in any split.
    """

    host_ports: PublishedFact | None = None
    halves: PublishedFact | None = None
    hosts: PublishedFact | None = None


class ProfileFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is published of a chassis in every mode; `slots` and `hosts` are those of a drawer, if it has any."""

    drawers: PublishedFact | None = None
    slots: PublishedFact | None = None
    lanes: PublishedFact | None = None
    host_lanes: PublishedFact | None = None
    hosts: PublishedFact | None = None


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file."""

    name: str
    manufacturers: list[str]
    models: list[str]
    sources: dict[str, PublishedSource]
    facts: ProfileFacts = ProfileFacts()
    modes: dict[DrawerMode, ModeFacts] = {}


class ModeLimits(msgspec.Struct, frozen=True):
    """The limits of a drawer in one mode; 0: none that is known."""

    host_ports: int = 0
    halves: bool = False
    hosts: int = 0


class ChassisProfile(msgspec.Struct, frozen=True):
    """The known limits of a model of chassis; `slots` of a drawer, 0 where they are not known."""

    key: str = ""  # name of its file, '' for a chassis of which nothing is known
    name: str = ""
    slots: int = 0
    hosts: int = 0  # in every mode
    modes: tuple[tuple[DrawerMode, ModeLimits], ...] = ()

    def limits(self, mode: DrawerMode) -> ModeLimits:
        """Return the limits of a mode."""
        return dict(self.modes).get(mode) or ModeLimits(hosts=self.hosts)

    @property
    def mode_names(self) -> tuple[DrawerMode, ...]:
        """The modes that a drawer may have: the published ones, else all."""
        return tuple(mode for mode, _ in self.modes) or ALL_MODES


ALL_MODES = tuple(mode for mode in DrawerMode if mode is not DrawerMode.UNKNOWN)
PLAIN = ChassisProfile()


@cache
def profile_files() -> dict[str, ProfileFile]:
    """Return the content of every file by its key."""
    files = sorted(FOLDER.glob("*.toml"))
    return {path.stem: msgspec.toml.decode(path.read_bytes(), type=ProfileFile) for path in files}


@cache
def profile(key: str) -> ChassisProfile:
    """Return the profile of a file; raises KeyError for none."""
    file = profile_files()[key]
    facts = file.facts
    modes = tuple(
        (mode, ModeLimits(_value(one.host_ports), _value(one.halves) == 2, _value(one.hosts) or _value(facts.hosts)))
        for mode, one in file.modes.items()
    )
    return ChassisProfile(key=key, name=file.name, slots=_value(facts.slots), hosts=_value(facts.hosts), modes=modes)


@cache
def profile_of(manufacturer: str, model: str) -> ChassisProfile:
    """Return the profile of a chassis by what its BMC says of itself, spelled in any way; PLAIN for an unknown one."""
    for key, file in profile_files().items():
        if any(_names(one, manufacturer) for one in file.manufacturers) and any(
            _names(one, model) for one in file.models
        ):
            return profile(key)
    return PLAIN


def _value(fact: PublishedFact | None) -> int:
    return fact.value if fact is not None else 0


def _names(known: str, told: str) -> bool:
    """Return whether a text has the words and numbers of a name in a row: 'FALCON-4016-2D' a Falcon 4016."""
    words, others = (re.findall(r"[a-z]+|[0-9]+", text.casefold()) for text in (known, told))
    return any(others[place : place + len(words)] == words for place in range(len(others) - len(words) + 1))
