"""Properties of a Redfish resource read with tolerance: null, absent and wrongly typed values become '' or None."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Body = Mapping[str, Any]

# Gb/s a lane by generation, as Redfish counts them (raw rate of the link, one way).
LANE_GBPS = {"Gen1": 2.5, "Gen2": 5.0, "Gen3": 8.0, "Gen4": 16.0, "Gen5": 32.0, "Gen6": 64.0}
BINARY_GIGA = 2**30 / 1e9
LONGEST_NUMBER = 30  # digits; Python refuses to read thousands, and nobody counts so far


def inner(body: Body, *path: str) -> Any:
    """Return the value at a path of property names, None where any step is missing."""
    value: Any = body
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def mapping(body: Body, *path: str) -> Body:
    """Return the object at a path, {} where there is none."""
    value = inner(body, *path)
    return value if isinstance(value, Mapping) else {}


def objects(body: Body, *path: str) -> list[Body]:
    """Return the objects of the list at a path; other members are left out."""
    value = inner(body, *path)
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def text(body: Body, *path: str) -> str:
    """Return text exactly as given; a number that stands for text (a serial number) is written out."""
    value = inner(body, *path)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def texts(body: Body, *path: str) -> tuple[str, ...]:
    """Return the strings of the list at a path."""
    value = inner(body, *path)
    return tuple(entry for entry in value if isinstance(entry, str)) if isinstance(value, list) else ()


def number(body: Body, *path: str) -> float | None:
    """Return a finite number; text, null and booleans are None, never zero."""
    value = inner(body, *path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def integer(body: Body, *path: str) -> int | None:
    """Return a whole number; anything else is None."""
    value = inner(body, *path)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def boolean(body: Body, *path: str) -> bool | None:
    """Return True or False; anything else is None."""
    value = inner(body, *path)
    return value if isinstance(value, bool) else None


def plain_uri(link: str) -> str:
    """Return a link as a key: without fragment and trailing slash."""
    return link.split("#", 1)[0].rstrip("/")


def link(body: Body, *path: str) -> str:
    """Return where the reference at a path leads, '' where there is none."""
    value = inner(body, *path, "@odata.id")
    return plain_uri(value) if isinstance(value, str) else ""


def links(body: Body, *path: str) -> tuple[str, ...]:
    """Return where the references of the list (or the one reference) at a path lead, each once."""
    value = inner(body, *path)
    entries = value if isinstance(value, list) else [value]
    found = (link(entry) for entry in entries if isinstance(entry, Mapping))
    return tuple(dict.fromkeys(uri for uri in found if uri))


def every_link(value: Any) -> Iterator[Any]:
    """Yield every @odata.id and nextLink anywhere below a value, whatever its type."""
    stack = [value]
    while stack:
        current = stack.pop()
        if isinstance(current, Mapping):
            for name, child in current.items():
                if name == "@odata.id" or name.endswith("@odata.nextLink"):
                    yield child
                elif isinstance(child, Mapping | list):
                    stack.append(child)
        elif isinstance(current, list):
            stack.extend(current)


def trailing_number(label: str) -> int | None:
    """Return the number at the end of a label such as 'slot3' or 'Slot 3'."""
    match = re.search(r"(\d+)\s*$", label)
    return int(match[1]) if match and len(match[1]) <= LONGEST_NUMBER else None


def natural(uri: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts numbers inside text as numbers."""
    return tuple(
        (int(part), "") if part.isdecimal() and len(part) <= LONGEST_NUMBER else (-1, part)
        for part in re.split(r"(\d+)", uri)
        if part != ""
    )


def link_speed(gbps: float | None, lanes: Iterable[int | None]) -> float | None:
    """Return Gb/s of a PCIe link, put right where a service divided bits by 2^30.

    It is put right only if the corrected figure, and not the given one, is a generation's rate times one of `lanes`.
    """
    if gbps is None:
        return None
    true = [rate * count for count in lanes if count for rate in LANE_GBPS.values()]
    if any(math.isclose(gbps, value, rel_tol=1e-6) for value in true):
        return gbps
    corrected = gbps * BINARY_GIGA
    return next((value for value in true if math.isclose(corrected, value, rel_tol=2e-3)), gbps)


def is_uuid_set(uuid: str) -> bool:
    """Tell whether a UUID tells anything: that of a board on which it was never set shows one digit throughout."""
    return len(set(uuid.replace("-", ""))) > 1
