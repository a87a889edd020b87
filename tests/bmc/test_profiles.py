"""What a service lacks of a profile is judged from a walk, as DMTF's validator judges it, and told in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fabric.bmc.crawl import CrawledResource
from fabric.bmc.gaps import GapKind, ProfileGap
from fabric.bmc.interoperability import (
    PROFILES_FOLDER,
    InteropProfile,
    ProfileError,
    fabric_profile,
    profile_gaps,
    read_profile,
)
from fabric.bmc.values import resource_type
from fabric.inventory.gaps import PURPOSES, gap_sentence, gaps_view
from fabric.inventory.profile_reasons import PROFILE_REASONS

V1 = "/redfish/v1"


def profile_of(resource: str, **requirement: Any) -> InteropProfile:
    return InteropProfile("Ours", "1.0.0", {resource: requirement})


def judged(profile: InteropProfile, *bodies: dict[str, Any], everything: bool = True) -> list[str]:
    """Return what resources lack, in words; each body has its URI."""
    return [gap_sentence(gap) for gap in gaps_of(profile, *bodies, everything=everything)]


def gaps_of(profile: InteropProfile, *bodies: dict[str, Any], everything: bool = True) -> tuple[ProfileGap, ...]:
    found = {
        body["@odata.id"]: CrawledResource(body["@odata.id"], resource_type(body["@odata.id"], body, ""), body, "")
        for body in bodies
    }
    return profile_gaps(profile, found, everything=everything)


def port(number: int, **properties: Any) -> dict[str, Any]:
    uri = f"{V1}/Fabrics/PCIe/Switches/1/Ports/{number}"
    return {"@odata.id": uri, "@odata.type": "#Port.v1_6_0.Port", "Id": str(number), **properties}


def asked(**properties: Any) -> InteropProfile:
    return profile_of("Port", PropertyRequirements=properties)


@pytest.mark.parametrize(
    ("requirement", "bodies", "sentences"),
    [
        ({}, [{}], ["Port has no X."]),
        ({}, [{"X": None}], []),
        ({}, [{}, {"X": 1}, {"X": 2}], ["1 of 3: Port has no X."]),
        ({"ReadRequirement": "Supported"}, [{}, {"X": 1}], []),
        ({"ReadRequirement": "Supported"}, [{}, {}], ["Port has no X."]),
        ({"ReadRequirement": "IfImplemented"}, [{}], []),
        ({"ReadRequirement": "None", "Values": ["a"], "Comparison": "Equal"}, [{"X": "b"}], []),
        ({"ReadRequirement": "IfPopulated"}, [{"Status": {"State": "Absent"}}], []),
        ({"ReadRequirement": "IfPopulated"}, [{"Status": {"State": "Enabled"}}], ["Port has no X."]),
        ({"ReadRequirement": "Excluded"}, [{"X": 1}], ["Port has X, which is not allowed."]),
        ({"ReplacedByProperty": "Y"}, [{"Y": 1}], []),
        ({"ReplacesProperty": "Y"}, [{"Y": 1}], []),
        ({"MinCount": 2}, [{"X": [1]}], ["X of Port has fewer than 2 entries."]),
        ({"Values": ["a", "b"]}, [{"X": "c"}, {"X": "b"}], []),
        ({"Values": ["a", "b"]}, [{"X": "c"}], ["X of Port is not a, b."]),
        ({"Values": ["a", "b"], "Comparison": "AllOf"}, [{"X": "a"}], ["X of Port is not b."]),
        ({"Values": ["a"], "Comparison": "Equal"}, [{"X": "c"}, {"X": "a"}], ["1 of 2: X of Port is not a."]),
        ({"Values": [3], "Comparison": "GreaterThan"}, [{"X": 3}], ["X of Port is not 3."]),
        ({"Values": [3], "Comparison": "LessThanOrEqual"}, [{"X": 3}], []),
        ({"Values": [1, None], "Comparison": "Range"}, [{"X": 0.5}], ["X of Port is not 1, None."]),
        ({"Values": ["^G"], "Comparison": "Pattern"}, [{"X": "Gen4"}], []),
        ({"PropertyRequirements": {"Z": {}}}, [{"X": [{"Z": 1}, {}]}], ["1 of 2: Port has no X/Z."]),
    ],
)
def test_a_property_is_judged_by_its_level_and_value(
    requirement: dict[str, Any], bodies: list[dict[str, Any]], sentences: list[str]
) -> None:
    assert judged(asked(X=requirement), *(port(number, **body) for number, body in enumerate(bodies))) == sentences


def test_a_condition_that_holds_takes_the_place_of_the_requirement() -> None:
    where = {"SubordinateToResource": ["Switch", "PortCollection"], "ReadRequirement": "Mandatory"}
    unless = {"CompareProperty": "/Actions/#Port.Go", "CompareType": "Present", "ReadRequirement": "Recommended"}
    profile = asked(X={"ReadRequirement": "None", "ConditionalRequirements": [unless, where]})
    switch = {"@odata.id": f"{V1}/Fabrics/PCIe/Switches/1", "@odata.type": "#Switch.v1_0_0.Switch"}
    ports = {"@odata.id": f"{V1}/Fabrics/PCIe/Switches/1/Ports", "@odata.type": "#PortCollection.PortCollection"}
    assert judged(profile, port(1)) == []
    assert judged(profile, port(1), switch, ports) == ["Port has no X."]
    (gap,) = gaps_of(profile, port(1, Actions={"#Port.Go": {}}), switch, ports)
    assert gap.is_recommended


def test_resources_versions_and_actions_are_judged() -> None:
    assert judged(profile_of("Port")) == ["There is no Port."]
    assert judged(profile_of("LogEntry"), everything=False) == []
    assert judged(profile_of("LogEntry")) == ["There is no LogEntry."]
    assert judged(profile_of("Port", ReadRequirement="IfImplemented")) == []
    assert judged(profile_of("Port", MinVersion="1.7.0"), port(1)) == ["Port is older than version 1.7.0."]
    assert judged(profile_of("Port", MinVersion="1.6.0"), port(1)) == []
    actions = {"Reset": {}, "Go": {"ReadRequirement": "IfImplemented"}}
    assert judged(profile_of("Port", ActionRequirements=actions), port(1)) == ["Port has no action Reset."]


def test_a_use_case_is_about_what_its_key_or_its_uris_say() -> None:
    keyed = {"UseCaseTitle": "A", "UseCaseKeyProperty": "Protocol", "UseCaseComparison": "Equal",
             "UseCaseKeyValues": ["PCIe"], "PropertyRequirements": {"X": {}}}  # fmt: skip
    placed = {
        "UseCaseTitle": "B",
        "URIs": ["/redfish/v1/Systems/{Id}/Ports/{PortId}"],
        "ReadRequirement": "Recommended",
    }
    absent = {"UseCaseTitle": "C", "UseCaseType": "AbsentResource", "PropertyRequirements": {"Y": {}}}
    profile = profile_of("Port", UseCases=[keyed, placed, absent])
    gaps = gaps_of(profile, port(1, Protocol="PCIe"), port(2, Protocol="Ethernet"), port(3, Status={"State": "Absent"}))
    assert [(gap.purpose, gap_sentence(gap), gap.is_recommended, gap.examples) for gap in gaps] == [
        ("A", "Port has no X.", False, (f"{V1}/Fabrics/PCIe/Switches/1/Ports/1",)),
        ("B", "There is no Port.", True, ()),
        ("C", "Port has no Y.", False, (f"{V1}/Fabrics/PCIe/Switches/1/Ports/3",)),
    ]


def test_three_places_of_many_are_named_always_the_same() -> None:
    bodies = [port(number) for number in range(300)]
    (gap,) = gaps_of(asked(X={}), *bodies)
    assert (gap.missing, gap.of, len(gap.examples)) == (300, 300, 3)
    assert gaps_of(asked(X={}), *reversed(bodies)) == (gap,)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not a JSON document"),
        ("[]", "it has no ProfileName"),
        ('{"ProfileName": "P", "Resources": {"Port": {"PropertyRequirements": []}}}', "its Resources are malformed"),
        ('{"ProfileName": "P", "Resources": {"Port": {"UseCases": [1]}}}', "its Resources are malformed"),
        ('{"ProfileName": "P", "RequiredProfiles": {"Base": {}}}', "builds on other profiles"),
        ("[" * 100_000, "is not a JSON document"),
    ],
)
def test_a_file_that_is_no_profile_is_refused_in_words(content: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(content)
    with pytest.raises(ProfileError, match="is no file, and none of the profiles FalconWebPCIeFabric"):
        read_profile("nowhere.json")
    with pytest.raises(ProfileError) as caught:
        read_profile(str(file))
    assert sentence in str(caught.value)


def test_each_reason_and_purpose_of_the_own_profile_can_be_translated() -> None:
    reasons: set[str] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            reasons.update([value["Purpose"]] if "Purpose" in value else [])
            for one in value.values():
                look(one)
        elif isinstance(value, list):
            for one in value:
                look(one)

    look(json.loads((PROFILES_FOLDER / "FalconWebPCIeFabric.v1_0_0.json").read_text())["Resources"])
    assert reasons == set(PROFILE_REASONS)
    assert set(fabric_profile().purposes) == set(PURPOSES)


def test_a_page_shows_what_is_mandatory_first_and_purposes_without_gaps() -> None:
    gaps: list[dict[str, Any]] = [
        {"purpose": "Health", "resource": "Port", "property": "LinkState", "is_recommended": True},
        {"purpose": "Health", "resource": "Port", "property": "LinkStatus", "reason": "It says whether a link is up."},
        {"purpose": "Composing", "kind": "way", "reason": "It has no zones."},
    ]
    view = gaps_view(gaps)
    assert view.summary == "Missing: 1 for health, 1 for composing"
    assert [(heading, [gap.sentence for gap in found]) for heading, found in view.groups] == [
        ("For monitoring", []),
        ("For health", ["Port has no LinkStatus.", "Port has no LinkState."]),
        ("For composing", ["There is no known way to attach devices."]),
    ]
    assert gaps_view([]).summary == gaps_view(gaps[:1]).summary == "Nothing mandatory is missing"
    assert GapKind.WAY.value == "way"
