"""What a service lacks of a Redfish interoperability profile (DSP0272 1.10), judged by a walk: nothing is requested.

Requirements of resources, properties, actions and values are judged. What may be written is not, since a walk does not
try it; nor are the sections Protocol and Registries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from fabric.bmc.crawl import CrawledResource
from fabric.bmc.gaps import GapKind, ProfileGap
from fabric.bmc.values import JsonObject, link, text

PROFILES_FOLDER = Path(__file__).parents[2] / "docs" / "profiles"
FABRIC_PROFILE = "FalconWebPCIeFabric"
# What has to be met always, and what by one resource of the type at least: by any service, and by a good one.
MANDATORY, SUPPORTED, RECOMMENDED = "Mandatory", "Supported", "Recommended"
JUDGED_LEVELS = (MANDATORY, SUPPORTED, RECOMMENDED)
VALUE_REQUIREMENTS = frozenset({"MinCount", "Values", "PropertyRequirements"})
MAX_EXAMPLES = 3
MAX_PROFILE_BYTES = 4 * 2**20
# Types in subtrees that a walk of the inventory does not enter: none of them is missed.
UNWALKED_TYPES = re.compile(
    "AccountService|ActionInfo|Assembly|Bios|Certificate|ComponentIntegrity|JsonSchemaFile|Key|License|LogEntry|"
    "ManagerAccount|MessageRegistry|MetricDefinition|MetricReportDefinition|Role|SecureBoot|Session|EventDestination|"
    "Task|Triggers|VirtualMedia"
)


class ProfileError(ValueError):
    """A profile that cannot be used; its text is a sentence for users."""


@dataclass(frozen=True)
class InteropProfile:
    """A Redfish interoperability profile: its requirements by type of resource."""

    name: str
    version: str
    resources: Mapping[str, JsonObject]

    @property
    def purposes(self) -> list[str]:
        """The titles of its use cases, in their order, each as often as it is used."""
        return [title for kind in self.resources for title, _ in self.use_cases(kind)]

    def use_cases(self, kind: str) -> Iterator[tuple[str, JsonObject]]:
        """Yield the use cases of a type, each with its title; '' where the type has only one, without a title."""
        asked = self.resources.get(kind, {})
        for case in asked.get("UseCases", [asked] if kind in self.resources else []):
            yield text(case, "UseCaseTitle"), case


def read_profile(name: str) -> InteropProfile:
    """Return a profile by its file, or one of `docs/profiles` by name. Raises ProfileError."""
    known = {file.name.partition(".")[0]: file for file in sorted(PROFILES_FOLDER.glob("*.json"))}
    file = known.get(name, Path(name))
    try:
        with file.open("rb") as content:
            document = msgspec.json.decode(content.read(MAX_PROFILE_BYTES))
    except OSError as error:
        raise ProfileError(f"{name} is no file, and none of the profiles {', '.join(known)}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProfileError(f"{name} is not a JSON document.") from error
    if not isinstance(document, dict) or not text(document, "ProfileName"):
        raise ProfileError(f"{name} is not a Redfish interoperability profile: it has no ProfileName.")
    if document.get("RequiredProfiles"):
        raise ProfileError(f"{name} builds on other profiles, which are judged by themselves: name one of them.")
    resources = document.get("Resources", {})
    if not _is_sound(resources):
        raise ProfileError(f"{name} is not a Redfish interoperability profile: its Resources are malformed.")
    return InteropProfile(document["ProfileName"], text(document, "ProfileVersion"), resources)


def _is_sound(resources: Any) -> bool:
    """Return whether requirements have the form that is relied upon here, at every depth."""
    texts = ("URIs", "SubordinateToResource")
    lists: dict[str, type] = {"UseCases": dict, "ConditionalRequirements": dict, **dict.fromkeys(texts, str)}
    lists |= dict.fromkeys(("Values", "CompareValues", "UseCaseKeyValues"), object)
    maps = {"PropertyRequirements", "ActionRequirements"}

    def is_requirement(asked: Any) -> TypeGuard[dict[str, Any]]:
        return (
            isinstance(asked, dict)
            and all(isinstance(asked.get(name, []), list) for name in lists)
            and all(isinstance(one, kind) for name, kind in lists.items() for one in asked.get(name, []))
            and all(isinstance(asked.get(name, {}), dict) for name in maps)
            and all(is_requirement(one) for name in maps for one in asked.get(name, {}).values())
            and all(
                is_requirement(one) for name in ("UseCases", "ConditionalRequirements") for one in asked.get(name, [])
            )
        )

    return isinstance(resources, dict) and all(is_requirement(asked) for asked in resources.values())


@cache
def fabric_profile() -> InteropProfile:
    """Return FalconWeb's own profile of a PCIe fabric."""
    return read_profile(FABRIC_PROFILE)


def profile_gaps(
    profile: InteropProfile, found: Mapping[str, CrawledResource], *, everything: bool
) -> tuple[ProfileGap, ...]:
    """Return what the resources of a walk lack, in the order of the profile.

    `everything` is whether the walk entered the subtrees without inventory: else nothing in them is missed.
    """
    judged = _Judgement(found)
    by_kind: dict[str, list[CrawledResource]] = {}
    for uri in sorted(found):  # the order of a walk varies
        by_kind.setdefault(found[uri].kind, []).append(found[uri])
    for kind in profile.resources:
        for title, case in profile.use_cases(kind):
            judged.begin(title, kind)
            matching = [each for each in by_kind.get(kind, []) if judged.applies(case, each)]
            for each in matching:
                judged.judge(case, each)
            if not matching and (everything or not UNWALKED_TYPES.match(kind)):
                level = case.get("ReadRequirement", MANDATORY)
                judged.count(level, GapKind.RESOURCE, "", is_met=False, asked=case, uri="")
    return tuple(judged.gaps())


@dataclass
class _Tally:
    """How often a requirement was met and missed; `reason` is the purpose that the profile gives it."""

    reason: str
    met: int = 0
    missed: int = 0
    examples: list[str] = field(default_factory=list)


class _Judgement:
    """The requirements of a profile, counted over the resources of a walk."""

    def __init__(self, found: Mapping[str, CrawledResource]) -> None:
        self._found = found
        self._tallies: dict[tuple[str, str, str, GapKind, str, str], _Tally] = {}
        self._about = ("", "")  # title of the use case, and type of resource

    def begin(self, title: str, kind: str) -> None:
        """Begin a use case."""
        self._about = (title, kind)

    def gaps(self) -> Iterator[ProfileGap]:
        """Yield what was missed."""
        for (purpose, resource, path, kind, level, wanted), tally in self._tallies.items():
            if tally.missed and (level == MANDATORY or not tally.met):
                yield ProfileGap(
                    purpose=purpose, resource=resource, property=path, kind=kind, wanted=wanted,
                    is_recommended=level == RECOMMENDED, missing=tally.missed, of=tally.met + tally.missed,
                    reason=tally.reason, examples=tuple(tally.examples),
                )  # fmt: skip

    def count(
        self, level: str, kind: GapKind, path: str, *, is_met: bool, asked: JsonObject, uri: str, wanted: str = ""
    ) -> None:
        """Count a requirement; levels that ask for nothing by themselves are left out."""
        if level not in JUDGED_LEVELS:
            return
        key = (*self._about, path, kind, level, wanted)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally(text(asked, "Purpose"))
        if is_met:
            tally.met += 1
            return
        tally.missed += 1
        if uri and uri not in tally.examples and len(tally.examples) < MAX_EXAMPLES:
            tally.examples.append(uri)

    def applies(self, case: JsonObject, each: CrawledResource) -> bool:
        """Return whether a use case is about a resource."""
        if not _matches_uris(case, each.uri):
            return False
        kind = text(case, "UseCaseType") or "Normal"
        if kind == "AbsentResource":
            return text(each.body, "Status", "State") == "Absent"
        values = case.get("UseCaseKeyValues")
        if values is None:
            return True
        name, compare = text(case, "UseCaseKeyProperty"), text(case, "UseCaseComparison") or "Equal"
        if kind == "Normal":
            return self._compares(compare, values, *_at_pointer(each.body, f"/{name}"))
        # The property of the nearest resource above it: ChassisType of Chassis, Protocol of Drive.
        owner, key = next(
            (one, name) for one, name in (("Chassis", "ChassisType"), ("Drive", "Protocol"), ("Memory", "MemoryType"),
                                          ("Port", "Protocol"), ("Processor", "ProcessorType"), ("", ""))
            if kind.startswith(one)
        )  # fmt: skip
        above = next((one for one in self._above(each.uri) if one.kind == owner), None)
        return above is not None and self._compares(compare, values, *_at_pointer(above.body, f"/{key}"))

    def judge(self, case: JsonObject, each: CrawledResource) -> None:
        """Count the requirements that a use case has of a resource."""
        asked = self._in_effect(case, each, each.body)
        version = re.search(r"\.v(\d+)_(\d+)_(\d+)\.", text(each.body, "@odata.type"))
        wanted = text(asked, "MinVersion")
        if version and re.fullmatch(r"\d+(\.\d+){0,2}", wanted):
            is_met = tuple(map(int, version.groups())) >= tuple(map(int, wanted.split(".")))
            self.count(MANDATORY, GapKind.VERSION, "", is_met=is_met, asked=asked, uri=each.uri, wanted=wanted)
        self._judge_object(case.get("PropertyRequirements", {}), each, each.body, "")
        for name, action in case.get("ActionRequirements", {}).items():
            level = action.get("ReadRequirement", MANDATORY)
            has_it, _ = _at_pointer(each.body, f"/Actions/#{each.kind}.{name}")
            self.count(level, GapKind.ACTION, name, is_met=has_it, asked=action, uri=each.uri)

    def _judge_object(self, asked_of: JsonObject, each: CrawledResource, body: JsonObject, prefix: str) -> None:
        for name, requirement in asked_of.items():
            asked, path = self._in_effect(requirement, each, body), f"{prefix}{name}"
            other = asked.get("ReplacedByProperty") or ("" if name in body else asked.get("ReplacesProperty"))
            if other and _has(each.body, body, str(other)):
                continue  # the newer property, or still the older one, says it
            level = asked.get("ReadRequirement", MANDATORY)
            if level == "IfPopulated":
                level = "" if text(each.body, "Status", "State") == "Absent" else MANDATORY
            is_there = name in body
            if level == "Excluded":
                self.count(MANDATORY, GapKind.EXCLUDED, path, is_met=not is_there, asked=asked, uri=each.uri)
            else:
                self.count(level, GapKind.PROPERTY, path, is_met=is_there, asked=asked, uri=each.uri)
            if is_there and level != "None" and not VALUE_REQUIREMENTS.isdisjoint(asked):
                self._judge_value(asked, each, body[name], path)

    def _judge_value(self, asked: JsonObject, each: CrawledResource, value: Any, path: str) -> None:
        def count(level: str, kind: GapKind, wanted: object, *, is_met: bool) -> None:
            self.count(level, kind, path, is_met=is_met, asked=asked, uri=each.uri, wanted=str(wanted))

        if isinstance(least := asked.get("MinCount"), int) and isinstance(value, list):
            count(MANDATORY, GapKind.COUNT, least, is_met=len(value) >= least)
        if values := asked.get("Values"):
            compare, wanted = text(asked, "Comparison") or "AnyOf", ", ".join(map(str, values))
            if compare == "AnyOf":
                count(SUPPORTED, GapKind.VALUE, wanted, is_met=value in values)
            elif compare == "AllOf":
                for one in values:
                    count(SUPPORTED, GapKind.VALUE, one, is_met=value == one)
            else:
                count(MANDATORY, GapKind.VALUE, wanted, is_met=self._compares(compare, values, True, value))
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                self._judge_object(asked.get("PropertyRequirements", {}), each, part, f"{path}/")

    def _in_effect(self, asked: JsonObject, each: CrawledResource, body: JsonObject) -> JsonObject:
        """Return a requirement with the first of its conditions that holds in place of its own levels."""
        for condition in asked.get("ConditionalRequirements", ()):
            if self._holds(condition, each, body):
                levels = {"ReadRequirement": MANDATORY, "WriteRequirement": "None"}
                replaced = {name: value for name, value in asked.items() if name not in {"Values", "Comparison"}}
                return {**replaced, **levels, **condition}
        return asked

    def _holds(self, condition: JsonObject, each: CrawledResource, body: JsonObject) -> bool:
        if not _matches_uris(condition, each.uri):
            return False
        above = list(self._above(each.uri))
        parents = condition.get("SubordinateToResource", [])
        kinds = [one.kind for one in above[: len(parents)]]
        if kinds != [str(one) for one in reversed(parents)]:
            return False
        name, compare = text(condition, "CompareProperty"), text(condition, "CompareType")
        if not name or not compare:
            return True
        is_there, value = _at_pointer(each.body, name) if name.startswith("/") else (name in body, body.get(name))
        return self._compares(compare, condition.get("CompareValues", []), is_there, value)

    def _above(self, uri: str) -> Iterator[CrawledResource]:
        """Yield the resources above a URI, the nearest first; it ends at a segment without one."""
        while (uri := uri.rpartition("/")[0]) in self._found:
            yield self._found[uri]

    def _compares(self, compare: str, wanted: list[Any], is_there: bool, value: Any) -> bool:
        """Return whether a property is as a comparison of the specification wants it; one that is absent never is."""
        if compare == "Absent" or not is_there:
            return (compare == "Absent") is not is_there
        members = value if isinstance(value, list) else [value]
        return compare == "Present" or any(self._is_one(compare, wanted, one) for one in members)

    def _is_one(self, compare: str, wanted: list[Any], value: Any) -> bool:
        if compare in {"AnyOf", "AllOf", "Equal"}:
            return value in wanted
        if compare == "NotEqual":
            return value not in wanted
        if compare == "LinkToResource":
            target = self._found.get(link({"at": value}, "at"))
            return target is not None and target.kind in wanted
        if compare == "Pattern":
            return isinstance(value, str) and any(_fits(one, value) for one in wanted)
        return _is_number(value) and _is_in_range(compare, wanted, value)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_in_range(compare: str, wanted: list[Any], value: float) -> bool:
    """Return whether a number is within bounds; a Range has minimum, maximum and nominal value, any of them null."""
    bounds = [one if _is_number(one) else None for one in wanted]
    if compare == "Range":
        low, high = (*bounds, None, None)[:2]
        return (low is None or value >= low) and (high is None or value <= high)
    numbers = [one for one in bounds if one is not None]
    return {
        "GreaterThan": all(value > one for one in numbers),
        "GreaterThanOrEqual": all(value >= one for one in numbers),
        "LessThan": all(value < one for one in numbers),
        "LessThanOrEqual": all(value <= one for one in numbers),
    }.get(compare, True)


def _fits(pattern: object, value: str) -> bool:
    """Return whether a text begins as a pattern of a profile wants; an invalid pattern fits all."""
    try:
        return re.match(str(pattern), value[:1000]) is not None
    except re.error:
        return True


def _matches_uris(asked: JsonObject, uri: str) -> bool:
    """Return whether a URI has the form of one of a requirement's URIs, all of it where there are none."""
    patterns: Iterable[str] = asked.get("URIs") or ()
    return not patterns or any(_uri_pattern(one).fullmatch(uri) for one in patterns)


@lru_cache(1000)
def _uri_pattern(uri: str) -> re.Pattern[str]:
    """Return what a URI with names in braces, as profiles have them, matches."""
    return re.compile("[^/]+".join(map(re.escape, re.split(r"\{\w+\}", uri.rstrip("/")))))


def _at_pointer(body: JsonObject, pointer: str) -> tuple[bool, Any]:
    """Return whether a property exists at a JSON pointer, and its value."""
    value: Any = body
    for part in pointer.removeprefix("/").split("/"):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return False, None
    return True, value


def _has(whole: JsonObject, body: JsonObject, name: str) -> bool:
    """Return whether a property is there, by a pointer into the whole resource or by its name in a part of it."""
    return _at_pointer(whole, name)[0] if name.startswith("/") else name in body
