"""A figure on somebody's behalf: the runs that are asked for, with predictions beside them on request, drawn."""

from __future__ import annotations

from dataclasses import dataclass

from accounts.models import User
from benchmarks.figures.asked import Asked
from benchmarks.figures.catalogue import FIGURES, Entry, drawn
from benchmarks.figures.predicted import predicted_rows
from benchmarks.figures.rows import counted, named
from benchmarks.figures.selectors import Selection, selection_of
from benchmarks.figures.shapes import Figure
from falconweb.errors import NotFound


@dataclass(frozen=True)
class Drawing:
    """The charts of an entry of the catalogue over a selection; `notes` are sentences on all of them."""

    entry: Entry
    selection: Selection
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]

    @property
    def shown(self) -> tuple[Figure, ...]:
        """Those that have something in them."""
        return tuple(figure for figure in self.figures if not figure.is_empty)


def drawing_of(person: User, name: str, asked: Asked) -> Drawing:
    """Return a figure over the runs that are asked for.

    Raises NotFound for a figure that there is not and for a run that the person may not see, Invalid for options that
    cannot be heeded.
    """
    if name not in FIGURES:
        raise NotFound("There is no such figure.")
    selection = selection_of(person, asked)
    entry = FIGURES[name]
    rows, notes = selection.rows, list[str]()
    if "predicted" in asked.besides and "predicted" in entry.besides:
        predicted, notes = predicted_rows(rows)
        rows = [*rows, *predicted]
    return Drawing(entry, selection, drawn(name, rows, asked.options), (*notes, *_notes(selection)))


def _notes(selection: Selection) -> list[str]:
    notes = []
    if selection.left_out:
        notes.append(f"There are {selection.found} runs: the newest {len(selection.rows)} are shown. Choose fewer.")
    if selection.without:
        those = counted(selection.without, "run")
        notes.append(f"{those} without results: {named(selection.without)}.")
    return notes
