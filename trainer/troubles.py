"""What goes wrong in a run, in sentences with numbers."""

from __future__ import annotations

import re

GIB = 2**30


class Refused(Exception):
    """A run cannot be as it was asked for; its text is a sentence for people."""


def out_of_memory_bytes(error: BaseException) -> int | None:
    """Return how many bytes could not be allocated, 0 where the error does not say; None for any other error."""
    text = str(error)
    if isinstance(error, MemoryError):
        return 0
    if type(error).__name__ == "OutOfMemoryError":
        asked = re.search(r"allocate ([\d.]+) (KiB|MiB|GiB|bytes)", text)
        units = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
        return int(float(asked[1]) * units[asked[2]]) if asked else 0
    if "can't allocate memory" in text or "not enough memory" in text or "std::bad_alloc" in text:
        asked = re.search(r"allocate (\d+) bytes", text)
        return int(asked[1]) if asked else 0
    return None


def size(number: float) -> str:
    """Return bytes as people read them: '1.5 GiB', '300 MiB'."""
    if number >= GIB:
        return f"{number / GIB:.1f} GiB"
    return f"{number / 2**20:.0f} MiB" if number >= 2**20 else f"{number:.0f} bytes"


def last_line(error: BaseException) -> str:
    """Return the first line of what an exception says, with its kind: short enough for a page."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    return f"{type(error).__name__}: {text}"[:500].rstrip(". ") if text else type(error).__name__


# What gloo and NCCL say when the process at the other end is gone.
_GONE = re.compile(
    r"connection (was )?(closed|reset)|broken pipe|connection refused|remote process exited|peer closed|"
    r"ncclRemoteError|NCCL error.*remote|socket (closed|timeout)",
    re.IGNORECASE,
)


def lost_another(error: BaseException) -> bool:
    """Return whether the error only tells that another process of the run has ended."""
    return isinstance(error, RuntimeError) and bool(_GONE.search(str(error)))


def not_compiled(error: BaseException) -> bool:
    """Return whether the error is torch.compile's."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))
