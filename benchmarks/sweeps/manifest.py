"""FfDL manifests: each field becomes a part of a grid, is kept, is ignored and told why, or is refused. Pure.

Nothing that stands in `data_stores` is echoed: not in what is explained, not in problems, not in what is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from benchmarks.sweeps.grid import Grid
from benchmarks.sweeps.manifest_fields import Explained, Fields
from fabric.allocation.nodes import Unreadable
from fabric.allocation.places import Problem, Problems, TooManyProblems
from fabric.allocation.yaml_text import read_yaml
from falconweb.errors import Invalid

LARGEST: Final = 100_000  # characters
HIDDEN: Final = "Something is wrong here. It is not shown, since it may hold what a data store is reached by."


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What was read: members of a grid, a title, what became of each field, and what is wrong.

    `kept` is the manifest as it may be stored and shown: without what data stores are reached by.
    """

    grid: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    explained: tuple[Explained, ...] = ()
    problems: tuple[Problem, ...] = ()
    kept: str = ""

    def grid_with(self, chosen: Mapping[str, Any]) -> Grid:
        """Return the grid, with what was `chosen` beside the manifest where that says nothing. Raises Invalid."""
        if self.problems:
            raise refused(self)
        return Grid.from_json({**chosen, **self.grid})


def refused(manifest: Manifest) -> Invalid:
    """Return the error of a manifest with problems: the first as its sentence, all by field."""
    first = manifest.problems[0]
    where = f"Line {first.place.line}, column {first.place.column}: " if first.place.line else ""
    errors: dict[str, str] = {}
    for one in manifest.problems:
        errors.setdefault(one.place.path or "manifest", one.sentence)
    return Invalid(
        f"The manifest cannot be used. {where}{first.sentence}",
        errors=errors,
        problems=[one.as_json() for one in manifest.problems],
    )


def read_manifest(text: str) -> Manifest:
    """Return what a manifest, YAML or JSON, comes to; what is wrong with it is told with line and column."""
    text = text.removeprefix("\ufeff")
    problems = Problems(text)
    if len(text) > LARGEST:
        problems.add(f"A manifest has at most {LARGEST:,} characters; this one has {len(text):,}.", "", 0)
        return Manifest(problems=problems.told())
    fields = Fields(problems)
    try:
        root = read_yaml(text, problems)
        fields.read(root)
    except Unreadable as error:
        problems.add_last(error.sentence, error.offset)
    except TooManyProblems:
        problems.add_last("More is wrong than is told here.", 0)
    told = _without_secrets(problems.told(), fields.secrets)
    if told:
        return Manifest(problems=told, explained=tuple(fields.explained))
    return Manifest(
        grid=fields.grid, title=fields.title, explained=tuple(fields.explained), kept="\n".join(fields.kept) + "\n"
    )


def _without_secrets(problems: Sequence[Problem], secrets: Collection[str]) -> tuple[Problem, ...]:
    """Return problems; of those that would show what stands in a data store only where they are."""
    told = []
    for one in problems:
        in_stores = one.place.path.startswith("data_stores")
        if in_stores or any(secret in one.sentence or secret in one.place.path for secret in secrets):
            place = replace(one.place, path="data_stores" if in_stores else "")
            told.append(Problem(sentence=HIDDEN, place=place))
        else:
            told.append(one)
    return tuple(told)
