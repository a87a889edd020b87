"""`python -m benchmarks.workloads NAME PRESET [field=value ...]` prints a specification for the trainer, as JSON."""

from __future__ import annotations

import sys

import msgspec

from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from benchmarks.workloads.validation import SpecError

USAGE = f"python -m benchmarks.workloads NAME PRESET [field=value ...]\nNames: {', '.join(CATALOGUE)}."


def main(words: list[str]) -> int:
    """Print the requested spec; return 0, or 2 for invalid arguments."""
    given = [word.partition("=") for word in words[2:]]
    if len(words) < 2 or not all(middle for _name, middle, _value in given):
        sys.stderr.write(f"{USAGE}\n")
        return 2
    try:
        spec = spec_of(words[0], words[1], {name: value for name, _middle, value in given})
    except SpecError as wrong:
        sys.stderr.writelines(f"{field}: {sentence}\n" for field, sentence in wrong.errors.items())
        return 2
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(spec)).decode() + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
