"""What makes two records one and the same, wherever they lie: all but ids, the log, and where they have been."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.records.shapes import RunLine, SeriesLine

Floats = NDArray[np.float64]
STORED: Final = np.dtype("<f8")
# Of the header: how it came here is not part of it.
LEFT_OUT: Final = ("kind", "id", "provenance", "executor", "source")


class Identity:
    """A hash that grows with a record; neither the order of its series nor where their lines break matters."""

    def __init__(self, header: RunLine) -> None:
        plain = {name: value for name, value in msgspec.to_builtins(header).items() if name not in LEFT_OUT}
        self._header = msgspec.json.encode(_plain(plain), order="sorted")
        self._series: dict[str, Any] = {}

    def add(self, line: SeriesLine) -> None:
        """Take in values of a series."""
        known = self._series.get(line.key)
        if known is None:
            about = msgspec.json.encode([line.key, line.unit, line.source, float(line.interval)])
            known = self._series[line.key] = hashlib.sha256(about)
        known.update(np.column_stack([column(line.at), column(line.values)]).astype(STORED).tobytes())

    def hexdigest(self) -> str:
        """Return it, hexadecimal."""
        whole = hashlib.sha256(self._header)
        for key in sorted(self._series):
            whole.update(self._series[key].digest())
        return whole.hexdigest()


def column(values: tuple[float | None, ...]) -> Floats:
    """Return values as float64, NaN where there is none."""
    return np.array([np.nan if one is None else one for one in values], dtype=np.float64)


def _plain(value: Any) -> Any:
    """Return JSON with whole numbers as such: some databases keep 1e22 as one, others do not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value
