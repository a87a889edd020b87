"""The topology of a run: host, accelerators, links, storage; and its JSON file.

Rates are bytes a second, sizes bytes, times seconds. A topology has one host, the accelerators of one run with the
links to them, and the storage of its data.

{"format": "falconweb.topology/1", "name": "hybridGPUs", "cores": 40, "memory_bytes": 811748818944,
 "accelerators": [{"name": "GPU 0", "model": "V100-SXM2-16GB"}, ...],
 "storage": {"model": "SSDPEDKX040T7"}, "uplinks": {"falcon-1/drawer 1/H1": {"lanes": 16, "generation": 3}}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from benchmarks.model.reference_data import CARD_GB, device_datasheet
from core.language import _
from core.text import split_location

LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class PcieLink:
    """A PCIe link as trained: lanes and generation."""

    lanes: int = 16
    generation: int = 3


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A GPU: its model ('V100-SXM2-16GB'), and its place.

    `place` is 'local' for the host's own, else the name of a switch below a host port: 'falcon-1/drawer 1/H1'.
    Devices of one place reach each other without the host. `host` is its host, '' for that of the topology.
    """

    name: str
    model: str
    place: str = LOCAL
    link: PcieLink = PcieLink()
    memory_bytes: float = 16e9
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where the data lies; a disk of which nobody says what it is."""

    model: str = "local storage"
    place: str = LOCAL
    link: PcieLink = PcieLink(lanes=4, generation=3)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The topology of a run. `uplinks` are the links from the host to each place of its accelerators that is not local.

    `local_fabric` connects the local accelerators. `other_hosts` are those after the first, of a run over several;
    cores, memory and storage are the first's.
    """

    name: str = ""
    host: str = ""
    other_hosts: tuple[str, ...] = ()
    cores: int = 40
    memory_bytes: float = 756 * 2**30
    accelerators: tuple[Accelerator, ...] = ()
    storage: Storage = Storage()
    uplinks: Mapping[str, PcieLink] = field(default_factory=dict)
    local_fabric: Literal["nvlink", "pcie"] = "nvlink"


TOPOLOGY_FORMAT = "falconweb.topology/1"
MAX_FILE_BYTES = 2**20  # bytes
MAX_DEVICES = 256

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=200)]
Size = Annotated[float, msgspec.Meta(gt=0, le=1e18)]


class TopologyError(ValueError):
    """A topology file was refused: `field` is 'accelerators[2].link.lanes' etc., `line` counts from 1 or is None."""

    def __init__(self, sentence: str, *, field: str = "", line: int | None = None) -> None:
        self.sentence, self.field, self.line = sentence, field, line
        super().__init__(sentence)


class _StrictPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a file, which refuses unknown members."""


class LinkPart(_StrictPart, frozen=True):
    """A PCIe link as trained."""

    lanes: Literal[1, 2, 4, 8, 16] = 16
    generation: Literal[1, 2, 3, 4, 5, 6] = 3


class AcceleratorPart(_StrictPart, frozen=True):
    """A GPU. `place` is 'local', or the switch below a host port: 'falcon-1/drawer 1/H1'."""

    name: Name
    model: Name
    place: Name = LOCAL
    link: LinkPart = LinkPart()
    memory_bytes: Size | None = None


class StoragePart(_StrictPart, frozen=True):
    """Where the data lies; a disk of which nobody says what it is."""

    model: Name = Storage.model
    place: Name = LOCAL
    link: LinkPart = LinkPart(lanes=4)


class TopologyPart(_StrictPart, frozen=True):
    """One host with what is attached to it. `uplinks` lead from it to each place that is not local."""

    format: Literal["falconweb.topology/1"]
    name: Text = ""
    host: Text = ""
    cores: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 40
    memory_bytes: Size = float(756 * 2**30)
    accelerators: Annotated[tuple[AcceleratorPart, ...], msgspec.Meta(max_length=MAX_DEVICES)] = ()
    storage: StoragePart = StoragePart()
    uplinks: dict[Name, LinkPart] = {}
    local_fabric: Literal["nvlink", "pcie"] = "nvlink"


def read_topology(text: str | bytes) -> Topology:
    """Return the topology of a file. Raises TopologyError, with the wrong field or line."""
    if len(text) > MAX_FILE_BYTES:
        raise TopologyError(
            _("The file is larger than {size} KiB: a topology is a few of them.", size=MAX_FILE_BYTES // 1024)
        )
    try:
        plain = json.loads(text)
    except UnicodeDecodeError:
        raise TopologyError(_("The file is not UTF-8.")) from None
    except RecursionError:
        raise TopologyError(_("The file nests too deeply.")) from None
    except json.JSONDecodeError as wrong:
        sentence = _(
            "Line {line}, column {column} is no JSON: {message}.",
            line=wrong.lineno,
            column=wrong.colno,
            message=wrong.msg,
        )
        raise TopologyError(sentence, line=wrong.lineno) from None
    if not isinstance(plain, dict):
        raise TopologyError(_("A topology is a JSON object."), line=1)
    if plain.get("format") != TOPOLOGY_FORMAT:
        given = plain.get("format")
        sentence = (
            _("format: it must be '{format}', and there is none.", format=TOPOLOGY_FORMAT)
            if given is None
            else _(
                "format: it must be '{format}', and it is {given}.",
                format=TOPOLOGY_FORMAT,
                given=json.dumps(given)[:80],
            )
        )
        raise TopologyError(sentence, field="format")
    try:
        part = msgspec.convert(plain, TopologyPart)
    except msgspec.ValidationError as wrong:
        message, field = _error_location(str(wrong))
        raise TopologyError(f"{field}: {message}." if field else f"{message}.", field=field) from None
    return _topology_from_part(part)


def _error_location(message: str) -> tuple[str, str]:
    """Return the message and the field of an error of msgspec: 'Expected `int`, got `str` - at `$.cores`'."""
    sentence, field = split_location(message)
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", sentence)
    if unknown is not None:
        return _("there is no such member"), ".".join(filter(None, (field, unknown[1])))
    missing = re.fullmatch(r"Object missing required field `(.*)`", sentence)
    if missing is not None:
        return _("it is missing"), ".".join(filter(None, (field, missing[1])))
    return sentence[0].lower() + sentence[1:], field


def _topology_from_part(part: TopologyPart) -> Topology:
    names: set[str] = set()
    for index, device in enumerate(part.accelerators):
        if device.name in names:
            field = f"accelerators[{index}].name"
            raise TopologyError(_("{field}: '{name}' is there twice.", field=field, name=device.name), field=field)
        names.add(device.name)
    places = {device.place for device in part.accelerators} | {part.storage.place}
    for place in part.uplinks:
        if place not in places or place == LOCAL:
            sentence = _(
                "uplinks: nothing is at '{place}'; a place is named by an accelerator or the storage.", place=place
            )
            raise TopologyError(sentence, field="uplinks")
    plain = msgspec.to_builtins(part)
    for device in plain["accelerators"]:
        device["memory_bytes"] = device["memory_bytes"] or gpu_memory_bytes(device["model"])
    # A place without a link of its own is assumed to have full cabling.
    plain["uplinks"] = {place: plain["uplinks"].get(place, {}) for place in sorted(places - {LOCAL})}
    return msgspec.convert(plain, Topology)


def gpu_memory_bytes(model: str) -> float:
    """Return the memory of a GPU, bytes: from its name ('V100-SXM2-32GB'), else from its data sheet."""
    named = re.search(r"(\d{1,3})\s?GB", model.upper())
    return float(named[1]) * CARD_GB if named else device_datasheet(model).memory_bytes


def topology_schema() -> dict[str, Any]:
    """Return the JSON Schema of a topology file."""
    schema = json.loads(json.dumps(msgspec.json.schema(TopologyPart)))  # lists where Python has tuples
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A topology: one host with its accelerators, links and storage",
        **schema,
    }
