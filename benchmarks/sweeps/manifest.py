"""FfDL manifests: each field becomes a part of a grid, is kept, is ignored with a reason, or is refused. Pure.

Values in `data_stores` are never echoed: not in explanations, not in problems, not in the stored manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from benchmarks.sweeps.grid import SweepGrid
from benchmarks.sweeps.manifest_fields import FieldExplanation, ManifestReader
from core.documents import DocumentProblem, DocumentProblems, DocumentSyntaxError, TooManyProblemsError, read_yaml
from core.errors import Invalid

MAX_MANIFEST_LENGTH: Final = 100_000  # characters
REDACTED_PROBLEM: Final = "The value is invalid. It is not shown, since it may contain credentials of a data store."


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A parsed manifest: members of a grid, a title, the treatment of each field, and the problems.

    `kept` is the manifest that may be stored and shown, without credentials of data stores.
    """

    grid: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    explained: tuple[FieldExplanation, ...] = ()
    problems: tuple[DocumentProblem, ...] = ()
    kept: str = ""

    def grid_with(self, chosen: Mapping[str, Any]) -> SweepGrid:
        """Return the grid, with `chosen` values for members that the manifest does not set. Raises Invalid."""
        if self.problems:
            raise manifest_error(self)
        return SweepGrid.from_json({**chosen, **self.grid})


def manifest_error(manifest: Manifest) -> Invalid:
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
    """Parse a manifest, YAML or JSON; problems have line and column."""
    text = text.removeprefix("\ufeff")
    problems = DocumentProblems(text)
    if len(text) > MAX_MANIFEST_LENGTH:
        problems.add(f"A manifest has at most {MAX_MANIFEST_LENGTH:,} characters; this one has {len(text):,}.", "", 0)
        return Manifest(problems=problems.in_order())
    fields = ManifestReader(problems)
    try:
        root = read_yaml(text, problems)
        fields.read(root)
    except DocumentSyntaxError as error:
        problems.add_last(error.sentence, error.offset)
    except TooManyProblemsError:
        problems.add_last("There are more problems than are listed here.", 0)
    told = _redact_secrets(problems.in_order(), fields.secrets)
    if told:
        return Manifest(problems=told, explained=tuple(fields.explained))
    return Manifest(
        grid=fields.grid, title=fields.title, explained=tuple(fields.explained), kept="\n".join(fields.kept) + "\n"
    )


def _redact_secrets(problems: Sequence[DocumentProblem], secrets: Collection[str]) -> tuple[DocumentProblem, ...]:
    """Return problems; those that would reveal a value of a data store have only their place."""
    told = []
    for one in problems:
        in_stores = one.place.path.startswith("data_stores")
        if in_stores or any(secret in one.sentence or secret in one.place.path for secret in secrets):
            place = replace(one.place, path="data_stores" if in_stores else "")
            told.append(DocumentProblem(sentence=REDACTED_PROBLEM, place=place))
        else:
            told.append(one)
    return tuple(told)
