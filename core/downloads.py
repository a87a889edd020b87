"""Downloads that are streamed: tables as CSV, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import cast

from django.http import StreamingHttpResponse

from core.language import english
from core.threads import run_in_thread

# Spreadsheets take a cell with such a first character for a formula (OWASP, CSV injection), some also with its
# full-width form.
FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# A cell that begins with none of these is safe; spaces may precede a formula.
SUSPECT_BEGINNINGS = frozenset((*FORMULA_PREFIXES, " "))


class _Echo:
    """A file object whose `write` returns the line, for csv.writer."""

    @staticmethod
    def write(line: str) -> str:
        return line


def csv_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield the lines of a table, in English for programs."""
    writer = csv.writer(_Echo())
    yield writer.writerow([english(column) for column in columns])
    for row in rows:
        yield writer.writerow([csv_cell(cell) for cell in row])


def csv_cell(cell: object) -> str:
    """Return the cell in a form that no spreadsheet takes for a formula."""
    text = "" if cell is None else english(str(cell))
    begins = text.lstrip(" ").startswith(FORMULA_PREFIXES)
    return f"'{text}" if begins and not isinstance(cell, int | float) else text


def csv_block(columns: Iterable[Sequence[object]]) -> str:
    """Return rows, given as columns, as the lines that `csv_table` has for them, in a seventh of its time."""
    cells = [_csv_cells(column) for column in columns]
    if len(cells) == 1:  # an empty line would have no cell at all
        cells = [['""' if cell == "" else cell for cell in cells[0]]]
    line = ",".join(["%s"] * len(cells)) + "\r\n"
    return "".join(map(line.__mod__, zip(*cells, strict=True)))


def _csv_cells(cells: Sequence[object]) -> Sequence[object]:
    """Return the cells of a column as they stand in a line: most columns need no look at each."""
    kinds = set(map(type, cells))
    if kinds <= {int}:
        return cells
    texts = cast("Sequence[str]", cells)
    if kinds != {str} or not SUSPECT_BEGINNINGS.isdisjoint({text[:1] for text in set(texts)}):
        texts = [csv_cell(cell) for cell in cells]
    together = "".join(texts)
    return list(map(_quoted, texts)) if _is_quoted(together) else texts


def _is_quoted(text: str) -> bool:
    return '"' in text or "," in text or "\n" in text or "\r" in text


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _is_quoted(text) else text


# The size of a chunk: a thread switch for each line of a table would cost more than the line.
PART_BYTES = 65_536
PART_SECONDS = 0.2


class Download(StreamingHttpResponse):
    """A file generated while it is sent: a log of millions of entries is never in memory as a whole."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the chunks, each made in a thread; Django's own method would make all of them first."""
        parts: Iterator[bytes] = iter(self)
        while part := await run_in_thread(_next_part, parts):
            yield part


def csv_download(lines: Iterable[str], name: str) -> Download:
    """Return lines of CSV, such as those of `csv_table`, as a file of that name."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Download(lines, content_type="text/csv; charset=utf-8", headers=headers)


def _next_part(parts: Iterator[bytes]) -> bytes:
    """Return the next chunk; b'' at the end."""
    gathered: list[bytes] = []
    size, late = 0, time.monotonic() + PART_SECONDS
    for part in parts:
        gathered.append(part)
        size += len(part)
        if size >= PART_BYTES or (size and time.monotonic() > late):
            break
    return b"".join(gathered)
