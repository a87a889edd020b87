"""What msgspec has to know of shapes before several threads read some.

msgspec looks at a class when it is first read: it asks Python for its annotations meanwhile, which lets other threads
in, and one that meets the class half looked at reads memory that is not there yet (msgspec 0.22.0 ends with a
segmentation fault). What was looked at before threads begin is only read afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


def shapes_prepare(*others: type[Any]) -> int:
    """Let msgspec look at all its structs that are defined by now, and at other classes; returns how many those are."""
    shapes = {*known(), *others}
    for shape in shapes:
        msgspec.json.Decoder(shape)
    return len(shapes)


def known(base: type[Any] = msgspec.Struct) -> Iterator[type[Any]]:
    """Yield the structs that are defined by now, below a base."""
    for shape in base.__subclasses__():
        if shape.__module__.partition(".")[0] != "msgspec":
            yield shape
        yield from known(shape)
