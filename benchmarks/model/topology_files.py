"""Topology files: versioned JSON in and out, with a published schema and errors that name line and field.

{"format": "falconweb.topology/1", "name": "hybridGPUs", "cores": 40, "memory_bytes": 811748818944,
 "accelerators": [{"name": "GPU 0", "model": "V100-SXM2-16GB"}, ...],
 "storage": {"model": "SSDPEDKX040T7"}, "uplinks": {"falcon-1/drawer 1/H1": {"lanes": 16, "generation": 3}}}
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

import msgspec

from benchmarks.model.facts import device_facts
from benchmarks.model.shapes import LOCAL, Accelerator, Link, Storage, Topology

FORMAT = "falconweb.topology/1"
LARGEST_FILE = 2**20  # bytes
MOST_DEVICES = 256

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=200)]
Size = Annotated[float, msgspec.Meta(gt=0, le=1e18)]


class TopologyError(ValueError):
    """A topology file was refused: `field` is where ('accelerators[2].link.lanes'), `line` counts from 1 or is None."""

    def __init__(self, sentence: str, *, field: str = "", line: int | None = None) -> None:
        self.sentence, self.field, self.line = sentence, field, line
        super().__init__(sentence)


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a file: members that it does not know are refused."""


class LinkPart(_Strict, frozen=True):
    """A PCIe link as trained."""

    lanes: Literal[1, 2, 4, 8, 16] = 16
    generation: Literal[1, 2, 3, 4, 5, 6] = 3


class AcceleratorPart(_Strict, frozen=True):
    """A GPU. `place` is 'local', or the switch below a host port: 'falcon-1/drawer 1/H1'."""

    name: Name
    model: Name
    place: Name = LOCAL
    link: LinkPart = LinkPart()
    memory_bytes: Size | None = None


class StoragePart(_Strict, frozen=True):
    """Where the data lies; a disk of which nobody says what it is."""

    model: Name = Storage.model
    place: Name = LOCAL
    link: LinkPart = LinkPart(lanes=4)


class TopologyPart(_Strict, frozen=True):
    """One host with what is attached to it. `uplinks` lead from it to each place that is not local."""

    format: Literal["falconweb.topology/1"]
    name: Text = ""
    host: Text = ""
    cores: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 40
    memory_bytes: Size = float(756 * 2**30)
    accelerators: Annotated[tuple[AcceleratorPart, ...], msgspec.Meta(max_length=MOST_DEVICES)] = ()
    storage: StoragePart = StoragePart()
    uplinks: dict[Name, LinkPart] = {}
    local_fabric: Literal["nvlink", "pcie"] = "nvlink"


def read_topology(text: str | bytes) -> Topology:
    """Return the topology that a file holds. Raises TopologyError, with the field or the line that is wrong."""
    if len(text) > LARGEST_FILE:
        raise TopologyError(f"The file is larger than {LARGEST_FILE // 1024} KiB: a topology is a few of them.")
    try:
        plain = json.loads(text)
    except UnicodeDecodeError:
        raise TopologyError("The file is no text in UTF-8.") from None
    except RecursionError:
        raise TopologyError("The file nests too deeply.") from None
    except json.JSONDecodeError as wrong:
        sentence = f"Line {wrong.lineno}, column {wrong.colno} is no JSON: {wrong.msg}."
        raise TopologyError(sentence, line=wrong.lineno) from None
    if not isinstance(plain, dict):
        raise TopologyError("A topology is a JSON object.", line=1)
    if plain.get("format") != FORMAT:
        given = plain.get("format")
        told = "there is none" if given is None else f"it is {json.dumps(given)[:80]}"
        raise TopologyError(f"format: it must be '{FORMAT}', and {told}.", field="format")
    try:
        part = msgspec.convert(plain, TopologyPart)
    except msgspec.ValidationError as wrong:
        message, field = _where(str(wrong))
        raise TopologyError(f"{field}: {message}." if field else f"{message}.", field=field) from None
    return _topology(part)


def _where(message: str) -> tuple[str, str]:
    """Return the message and the field of an error of msgspec: 'Expected `int`, got `str` - at `$.cores`'."""
    found = re.fullmatch(r"(.*?) - at `(?:key in )?\$\.?(.*)`", message, re.DOTALL)
    said, field = found.groups() if found is not None else (message, "")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", said)
    if unknown is not None:
        return "there is no such member", ".".join(filter(None, (field, unknown[1])))
    missing = re.fullmatch(r"Object missing required field `(.*)`", said)
    if missing is not None:
        return "it is missing", ".".join(filter(None, (field, missing[1])))
    return said[0].lower() + said[1:], field


def _topology(part: TopologyPart) -> Topology:
    names: set[str] = set()
    for index, device in enumerate(part.accelerators):
        if device.name in names:
            field = f"accelerators[{index}].name"
            raise TopologyError(f"{field}: '{device.name}' is there twice.", field=field)
        names.add(device.name)
    places = {device.place for device in part.accelerators} | {part.storage.place}
    for place in part.uplinks:
        if place not in places or place == LOCAL:
            sentence = f"uplinks: nothing is at '{place}'; a place is named by an accelerator or the storage."
            raise TopologyError(sentence, field="uplinks")
    return Topology(
        name=part.name,
        host=part.host,
        cores=part.cores,
        memory_bytes=part.memory_bytes,
        accelerators=tuple(
            Accelerator(
                name=device.name,
                model=device.model,
                place=device.place,
                link=_link(device.link),
                memory_bytes=device.memory_bytes or memory_named(device.model),
            )
            for device in part.accelerators
        ),
        storage=Storage(model=part.storage.model, place=part.storage.place, link=_link(part.storage.link)),
        # A place without a link of its own is taken to be cabled in full.
        uplinks={place: _link(part.uplinks.get(place, LinkPart())) for place in sorted(places - {LOCAL})},
        local_fabric=part.local_fabric,
    )


def memory_named(model: str) -> float:
    """Return the memory of a GPU, bytes: as its name says ('V100-SXM2-32GB'), else as its data sheet does."""
    named = re.search(r"(\d{1,3})\s?GB", model.upper())
    return float(named[1]) * 1e9 if named else device_facts(model).memory_bytes


def _link(part: LinkPart) -> Link:
    return Link(lanes=part.lanes, generation=part.generation)


def topology_json(topology: Topology) -> str:
    """Return a topology as a file, that `read_topology` reads back."""

    def link(one: Link) -> dict[str, int]:
        return {"lanes": one.lanes, "generation": one.generation}

    plain: dict[str, Any] = {
        "format": FORMAT,
        "name": topology.name,
        "host": topology.host,
        "cores": topology.cores,
        "memory_bytes": topology.memory_bytes,
        "accelerators": [
            {
                "name": device.name,
                "model": device.model,
                "place": device.place,
                "link": link(device.link),
                "memory_bytes": device.memory_bytes,
            }
            for device in topology.accelerators
        ],
        "storage": {
            "model": topology.storage.model,
            "place": topology.storage.place,
            "link": link(topology.storage.link),
        },
        "uplinks": {place: link(one) for place, one in topology.uplinks.items()},
        "local_fabric": topology.local_fabric,
    }
    return json.dumps(plain, indent=1) + "\n"


def topology_schema() -> dict[str, Any]:
    """Return the JSON Schema of a topology file."""
    schema = json.loads(json.dumps(msgspec.json.schema(TopologyPart)))  # lists where Python has tuples
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A topology: one host with its accelerators, links and storage",
        **schema,
    }
