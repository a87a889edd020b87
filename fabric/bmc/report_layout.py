"""The layout of a metric report, learned from one: by it the next ones are read without an object for each value.

A service writes the same names in the same order each second; numbers and times differ, and what surrounds the list of
values may. report_numbers.c compares what stays the same and reads the numbers, in a fifth of the time that decoding
takes. `make` compiles it where there is a compiler; without it, reports are decoded.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from fabric.bmc.metric_report import DECODER, metric_number
from fabric.bmc.series import Floats

NUMBER, TIME = 0, 1
NUMBER_TEXT = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
VALUE = rb'"MetricValue"\s*:\s*("?)(?P<number>' + NUMBER_TEXT + rb")\1(?=\s*[,}])"
TEXTS = re.compile(VALUE + rb'|"Timestamp"\s*:\s*"(?P<time>[0-9:.+TZ-]+)"')
LIST_BEGIN = re.compile(rb'"MetricValues"\s*:\s*\[\s*(?=\{)')
LIST_END = re.compile(rb"(?<=\})\s*\]")
FIRST_MARK = 2**52  # numbers that no report has; exact as float
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def load_library(file: Path) -> Any:
    """Return the function of report_numbers.c, None where it is not compiled for this machine."""
    try:
        # Without giving other threads a turn: it takes some microseconds.
        read = ctypes.PyDLL(str(file)).read_report
    except (OSError, AttributeError):
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    read.restype = size
    read.argtypes = [ctypes.c_char_p, size, size, ctypes.c_char_p, size, pointer, pointer, size, pointer, size]
    return read


read_report = load_library(Path(__file__).with_name("report_numbers.so"))


class ReportLayout:
    """What is where in the list of values of a report, which is at `span` in `raw`.

    `texts` are the places (begin, end, kind) of what may be another text in the next report; `entries` those of
    `numbers`, the numbers of all entries, that are among them. The others stay as they are, such as states of links.
    """

    def __init__(
        self, raw: bytes, span: tuple[int, int], texts: list[tuple[int, int, int]], entries: list[int], numbers: Floats
    ) -> None:
        at, parts = span[0], []
        for begin, end, _ in texts:
            parts.append(raw[at:begin])
            at = end
        self._same = b"".join(parts) + raw[at : span[1]]
        self._rest = span[1] - at
        self._lengths = np.array([len(part) for part in parts], np.uint32)
        self._kinds = np.array([kind for _, _, kind in texts], np.uint8)
        self._found = np.empty(len(entries))
        self._addresses = self._lengths.ctypes.data, self._kinds.ctypes.data, self._found.ctypes.data
        self._entries = None if len(entries) == len(numbers) else np.array(entries, np.intp)
        self._numbers = numbers

    @classmethod
    def learn(cls, raw: bytes, numbers: Floats) -> Self | None:
        """Return the layout of a report with these numbers; None where others like it cannot be read by one."""
        matches = list(TEXTS.finditer(raw))
        # What looks like a value may be that of another object inside an entry: each is replaced by a mark, and the
        # report, decoded again, tells which marks are values of entries.
        parts: list[bytes] = []
        at = 0
        for number, match in enumerate(matches):
            if match.lastgroup == "number":
                parts += raw[at : match.start("number")], b"%d" % (FIRST_MARK + number)
                at = match.end("number")
        try:
            marked = DECODER.decode(b"".join(parts) + raw[at:]).metric_values
        except UNREADABLE:
            return None
        marks = [metric_number(entry.metric_value) - FIRST_MARK for entry in marked]
        entries = [place for place, mark in enumerate(marks) if 0 <= mark < len(matches)]
        values = [matches[int(marks[place])] for place in entries]
        opening = LIST_BEGIN.search(raw)
        closing = LIST_END.search(raw, values[-1].end()) if values else None
        if opening is None or closing is None or len(marked) != len(numbers):
            return None
        span = opening.end(), closing.start()
        times = [match for match in matches if match.lastgroup == "time" and span[0] < match.start() < span[1]]
        texts = [(*match.span("number"), NUMBER) for match in values] + [(*match.span("time"), TIME) for match in times]
        layout = cls(raw, span, sorted(texts), entries, numbers)
        known = layout.read(raw)
        return layout if known is not None and np.array_equal(known[1], numbers, equal_nan=True) else None

    def read(self, raw: bytes) -> tuple[str | None, Floats] | None:
        """Return time and numbers of a report; None of one that is laid out differently."""
        opening = LIST_BEGIN.search(raw)
        if opening is None:
            return None
        begin, (lengths, kinds, found) = opening.end(), self._addresses
        end = read_report(
            raw, len(raw), begin, self._same, self._rest, lengths, kinds, len(self._lengths), found, len(self._found)
        )
        if not end or raw.find(b'"MetricValues"', end) >= 0:
            return None
        try:
            around = DECODER.decode(raw[:begin] + raw[end:])
        except UNREADABLE:
            return None
        if around.metric_values:
            return None
        if self._entries is None:
            return around.timestamp, self._found.copy()
        numbers = self._numbers.copy()
        numbers[self._entries] = self._found
        return around.timestamp, numbers


class LayoutReader:
    """Reads reports by the layout of the last one that it could not read."""

    def __init__(self) -> None:
        self._layout: ReportLayout | None = None
        self._strange = 0  # reports in a row that it could not read

    def read(self, raw: bytes) -> tuple[str | None, Floats] | None:
        """Return time and numbers of a report, None where it has to be decoded."""
        found = None if self._layout is None else self._layout.read(raw)
        self._strange = self._strange + 1 if found is None else 0
        return found

    def learn(self, raw: bytes, numbers: Floats) -> None:
        """Learn from a report that was decoded, which takes as long as ten reports: ever less often if in vain."""
        is_worth_it = read_report is not None and not self._strange & (self._strange - 1)
        self._layout = ReportLayout.learn(raw, numbers) if is_worth_it else None
