"""Topology files, read strictly."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from benchmarks.model import TopologyError, read_topology, topology_schema
from benchmarks.model.calibration import PAPER_TOPOLOGIES
from benchmarks.model.reference_data import CARD_GB
from benchmarks.model.topology import PcieLink
from falconweb.config import BASE_DIR

EXAMPLES = BASE_DIR / "docs" / "topologies"
LEAST = {"format": "falconweb.topology/1"}


@pytest.mark.parametrize("name", PAPER_TOPOLOGIES)
def test_published_configurations_are_read_from_their_examples(name: str) -> None:
    text = (EXAMPLES / f"{name}.json").read_text()
    assert read_topology(text) == PAPER_TOPOLOGIES[name]


def test_the_published_schema_is_what_is_read() -> None:
    assert json.loads((EXAMPLES / "topology.schema.json").read_text()) == topology_schema()
    jsonschema.Draft202012Validator.check_schema(topology_schema())
    for name in PAPER_TOPOLOGIES:
        jsonschema.validate(json.loads((EXAMPLES / f"{name}.json").read_text()), topology_schema())


def test_what_is_left_out_has_a_meaning() -> None:
    found = read_topology(
        json.dumps(
            {
                **LEAST,
                "accelerators": [
                    {"name": "a", "model": "V100-SXM2-32GB"},
                    {"name": "b", "model": "H100 PCIe", "place": "x/1/H1"},
                ],
            }
        )
    )
    assert [device.memory_bytes for device in found.accelerators] == [32 * CARD_GB, 80 * CARD_GB]
    assert found.uplinks == {"x/1/H1": PcieLink()}
    assert found.storage.place == "local"


@pytest.mark.parametrize(
    ("plain", "field", "said"),
    [
        ({}, "format", "there is none"),
        ({"format": "falconweb.topology/9"}, "format", "falconweb.topology/9"),
        ({"format": ["x"]}, "format", "it must be"),
        ({**LEAST, "cores": "many"}, "cores", "expected `int`"),
        ({**LEAST, "cores": 0}, "cores", ">= 1"),
        ({**LEAST, "colour": "red"}, "colour", "no such member"),
        ({**LEAST, "accelerators": [{"name": "a"}]}, "accelerators[0].model", "missing"),
        ({**LEAST, "accelerators": [{"name": "a", "model": "b", "x": 1}]}, "accelerators[0].x", "no such member"),
        (
            {**LEAST, "accelerators": [{"name": "a", "model": "b", "link": {"lanes": 3}}]},
            "accelerators[0].link.lanes",
            "3",
        ),
        ({**LEAST, "accelerators": [{"name": "a", "model": "b"}] * 2}, "accelerators[1].name", "twice"),
        ({**LEAST, "uplinks": {"nowhere": {}}}, "uplinks", "nowhere"),
        ({**LEAST, "memory_bytes": -1}, "memory_bytes", "> 0"),
        ({**LEAST, "local_fabric": "string"}, "local_fabric", "string"),
        ({**LEAST, "accelerators": [{"name": str(i), "model": "b"} for i in range(257)]}, "accelerators", "256"),
    ],
)
def test_a_wrong_field_is_named(plain: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(TopologyError) as refused:
        read_topology(json.dumps(plain))
    assert refused.value.field == field
    assert refused.value.sentence.startswith(field)
    assert said in refused.value.sentence


@pytest.mark.parametrize(
    ("text", "line"),
    [('{"format":\n "falconweb.topology/1",\n oops}', 3), ("", 1), ("[]", 1), ("null", 1)],
)
def test_what_is_no_json_object_is_told_with_its_line(text: str, line: int) -> None:
    with pytest.raises(TopologyError) as refused:
        read_topology(text)
    assert refused.value.line == line


@pytest.mark.parametrize("text", [b"\xff\xfe\x00", b"[" * 200_000, b" " * (2**20 + 1)])
def test_what_is_no_text_too_deep_or_too_long_is_refused_in_a_sentence(text: bytes) -> None:
    with pytest.raises(TopologyError) as refused:
        read_topology(text)
    assert refused.value.sentence.endswith(".")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    with pytest.raises(TopologyError):
        read_topology(f'{{"format": "falconweb.topology/1", "memory_bytes": {number}}}')
