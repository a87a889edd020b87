"""The log of a run: pieces of what its processes wrote, kept as they come, read from a byte on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.runs.models import LogPart, Run

MOST_READ: Final = 256 * 1024  # bytes an answer
PART: Final = 64 * 1024  # bytes; a part grows to about so many
MOST_KEPT: Final = 64 * 2**20  # bytes of one run; what comes after is counted, and not kept
LEFT_OUT: Final = "\n[The log is longer than 64 MiB: what follows is not kept.]\n"


@dataclass(frozen=True)
class Piece:
    """A piece of a log: what lies from `first` to `next` (bytes), and whether there is `more` by now."""

    first: int
    next: int
    text: str
    more: bool


def log_append(run: Run, first: int, text: str) -> None:
    """Keep what the processes of a run wrote from byte `first` on.

    Nothing keeps two from adding the same twice: callers do so in the transaction that notes how far they are.
    """
    if not text:
        return
    last = run.log_parts.order_by("-first").first()
    if last is not None and last.first + _size(last.text) > MOST_KEPT:
        return
    if first + _size(text) > MOST_KEPT:
        text = LEFT_OUT
    # A database keeps no NUL in a text.
    text = text.replace("\0", "\ufffd")
    if last is not None and _size(last.text) < PART:
        last.text += text
        last.save(update_fields=["text"])
        return
    LogPart.objects.create(run=run, first=first if last is None else last.first + _size(last.text), text=text)


def log_read(run: Run, first: int = 0, *, most: int = MOST_READ) -> Piece:
    """Return what is kept of a log from a byte on, of a long one as many as `most` bytes; never half a character."""
    rows = run.log_parts.order_by("first")
    before = rows.filter(first__lte=first).order_by("-first").first()
    rows = rows.filter(first__gte=before.first) if before is not None else rows
    data, begin, more = b"", 0, False
    for part in rows.iterator(chunk_size=4):
        piece = part.text.encode()
        if not data:
            begin = max(first, part.first)
            piece = piece[begin - part.first :]
        data += piece
        if len(data) > most:
            data, more = data[:most], True
            break
    # Where it begins or is cut off within a character, that is left to who reads on.
    whole = data.decode(errors="ignore")
    return Piece(first=begin, next=max(first, begin) + len(whole.encode()), text=whole, more=more)


def log_size(run: Run) -> int:
    """Return how many bytes are kept of a log."""
    last = run.log_parts.order_by("-first").first()
    return 0 if last is None else last.first + _size(last.text)


def log_tail(run: Run, most: int = 16 * 1024) -> Piece:
    """Return the end of a log, from the beginning of a line on."""
    size = log_size(run)
    piece = log_read(run, max(0, size - most), most=most + 4)
    if piece.first == 0 or "\n" not in piece.text:
        return piece
    cut = piece.text.index("\n") + 1
    return Piece(piece.first + len(piece.text[:cut].encode()), piece.next, piece.text[cut:], more=False)


def _size(text: str) -> int:
    return len(text.encode())
