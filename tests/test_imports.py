"""No module of the site imports in a circle: not at its head, nor inside a function."""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Collection, Mapping

import grimp

from tests.processes import ROOT

ROOMS = ("core", "accounts", "fabric", "telemetry", "benchmarks", "falconweb")
Imports = Mapping[str, Collection[str]]


def import_circle(imports: Imports) -> list[str]:
    """Return the modules of a circle, each imports the next and the last is the first; [] where there is none."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        circle: list[str] = error.args[1]
        return circle[::-1]  # there each is imported by the next
    return []


def circle_sentence(circle: list[str]) -> str:
    """Say who imports whom, and what to do."""
    return (
        f"{' imports '.join(circle)}. What two of them share moves to a module below both; what calls upwards becomes "
        "a signal, or a task that is enqueued by its name (core.enqueue)."
    )


def test_no_modules_import_in_a_circle() -> None:
    # Not installed, but of this checkout; imports inside functions and for types alone count too.
    graph = grimp.build_graph(*ROOMS, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 400, f"only {len(imports)} modules were found in {ROOT}"
    circle = import_circle(imports)
    assert not circle, circle_sentence(circle)


def test_a_circle_is_named_as_its_modules_import() -> None:
    circle = import_circle({"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()})
    assert circle[0] == circle[-1]
    assert set(itertools.pairwise(circle)) == {("a", "b"), ("b", "c"), ("c", "a")}
    assert "a imports b" in circle_sentence(circle)
    assert import_circle({"a": {"b"}, "b": set()}) == []
