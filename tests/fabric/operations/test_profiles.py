"""Limits of drawers are those that are published of the model of the chassis, and none where nothing is."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from fabric.bmc.chassis_profiles import (
    ALL_MODES,
    FOLDER,
    PLAIN,
    ChassisProfile,
    ModeLimits,
    PublishedFact,
    profile,
    profile_files,
    profile_of,
)
from fabric.bmc.types import DrawerMode
from fabric.operations.rules import (
    DrawerState,
    HostConnection,
    attach_violation,
    mode_description,
    mode_violation,
)

ONE, TWO, ADVANCED = DrawerMode.STANDARD_ONE_HOST, DrawerMode.STANDARD_TWO_HOSTS, DrawerMode.ADVANCED


def drawer(known: ChassisProfile, mode: DrawerMode, *, hosts: int, attached: dict[int, str]) -> DrawerState:
    """Return a drawer with as many host ports, each cabled to a host of its own."""
    ports = [HostConnection(label=f"H{number}", number=number, host=f"{number}") for number in range(1, hosts + 1)]
    return DrawerState(mode=mode, connections=tuple(ports), attached=attached, profile=known)


@pytest.mark.parametrize(
    ("manufacturer", "model", "key"),
    [
        ("H3 Platform", "Falcon 4016", "h3-falcon-4016"),
        ("H3 Platform Inc.", "FALCON-4016-2D", "h3-falcon-4016"),
        ("H3 Platform", "Falcon 4109", "h3-falcon-4109"),
        ("H3 Platform", "Falcon C5022", "h3-falcon-c5022"),
        ("Microsemi", "PFX 48xG3", "microchip-switchtec-pfx-gen3"),
        ("GigaIO", "FabreX", "gigaio-fabrex"),
        ("H3 Platform", "Falcon 40161", ""),
        ("H3 Platform", "Falcon 4010", ""),
        ("H3 Platform", "", ""),
        ("Another", "Falcon 4016", ""),
        ("", "", ""),
    ],
)
def test_a_profile_is_chosen_by_manufacturer_and_model(manufacturer: str, model: str, key: str) -> None:
    assert profile_of(manufacturer, model).key == key


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_each_fact_has_a_source_that_was_read_on_a_day(path: Path) -> None:
    file = profile_files()[path.stem]
    assert profile_of(file.manufacturers[0], file.models[0]).key == path.stem
    for source in file.sources.values():
        assert source.url.startswith("https://")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", source.read)
    facts = [getattr(part, name) for part in (file.facts, *file.modes.values()) for name in part.__struct_fields__]
    used = {fact.source for fact in facts if isinstance(fact, PublishedFact)}
    assert used <= file.sources.keys()


def test_a_file_with_a_word_that_is_none_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="slotz"):
        msgspec.toml.decode(
            b'name="x"\nmanufacturers=[]\nmodels=[]\n[sources]\n[facts]\nslotz={value=1, source="s"}',
            type=type(profile_files()["h3-falcon-4016"]),
        )  # fmt: skip


@pytest.mark.parametrize("mode", list(DrawerMode))
def test_an_unknown_chassis_has_no_limits_of_its_own(mode: DrawerMode) -> None:
    full = drawer(PLAIN, mode, hosts=9, attached={slot: f"H{slot}" for slot in range(1, 9)})
    assert attach_violation(full, slot=40, label="H9") == ""
    assert PLAIN.limits(mode) == ModeLimits()
    if mode in ALL_MODES:
        assert mode_violation(full, mode) == ""
        assert mode_description(PLAIN, mode) == "Its limits are not known here: the BMC decides."


def test_limits_of_another_model_are_its_own() -> None:
    switch = profile("microchip-switchtec-pfx-gen3")
    crowd = {slot: f"H{slot}" for slot in range(1, 25)}
    assert attach_violation(drawer(switch, ADVANCED, hosts=25, attached={}), slot=30, label="H1") == ""
    assert "at most 24 hosts" in attach_violation(
        drawer(switch, ADVANCED, hosts=25, attached=crowd), slot=30, label="H25"
    )
    memory = profile("h3-falcon-c5022")
    there = {slot: f"H{slot}" for slot in range(1, 9)}
    unknown = drawer(memory, DrawerMode.UNKNOWN, hosts=9, attached=there)
    assert attach_violation(unknown, slot=9, label="H9") == (
        "H3 Platform Falcon C5022 serves at most 8 hosts, and it would be 9."
    )
    assert attach_violation(unknown, slot=23, label="H8").startswith("A drawer has slots 1 to 22")
    assert attach_violation(unknown, slot=9, label="H8") == ""


def test_modes_are_described_by_the_limits_of_the_model() -> None:
    falcon = profile("h3-falcon-4016")
    assert [mode_description(falcon, mode) for mode in falcon.mode_names] == [
        "One connection reaches all 8 slots.",
        "Two connections, each reaches one half: slots 1 to 4, and 5 to 8.",
        "Up to 3 hosts share the slots in any split.",
    ]
    assert falcon.mode_names == (ONE, TWO, ADVANCED)
    assert profile("h3-falcon-4109").mode_names == ALL_MODES
