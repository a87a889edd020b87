"""Whether what a header says fits together: its specification and hash, its snapshots, and its results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

from benchmarks.model.shapes import Topology
from benchmarks.records.shapes import RunLine
from benchmarks.runs.summary import Summary
from benchmarks.strict import BrokenError, shaped
from hostwire.training import Provenance, Software, Spec

# How often it went from site to site: more is no chain of anything.
LONGEST_CHAIN: Final = 20
FIRST_YEAR, LAST_YEAR = 1970, 9998
PROVENANCES: Final[tuple[str, ...]] = get_args(Provenance)
SHAPES: Final[dict[str, Any]] = {"topology": Topology, "software": Software, "results": Summary}


def header_problems(header: RunLine) -> Iterator[BrokenError]:
    """Yield what does not fit together in a header, each with its field."""
    yield from _spec_problems(header)
    for name, shape in SHAPES.items():
        plain = getattr(header, name)
        if not plain:
            continue
        try:
            shaped(plain, shape, name)
        except BrokenError as error:
            yield error
    for name in ("started_at", "ended_at"):
        moment = getattr(header, name)
        if moment is not None and not FIRST_YEAR <= moment.year <= LAST_YEAR:
            yield BrokenError(f"It is a time from {FIRST_YEAR} to {LAST_YEAR}.", name)
    if header.started_at and header.ended_at and header.ended_at < header.started_at:
        yield BrokenError("It ends before it begins.", "ended_at")
    if header.source.get("provenance", "measured") not in PROVENANCES:
        yield BrokenError(f"It is one of {', '.join(PROVENANCES)}.", "source.provenance")
    chain = header.source.get("chain", [])
    if not isinstance(chain, list) or len(chain) > LONGEST_CHAIN or not all(isinstance(one, dict) for one in chain):
        yield BrokenError(f"This is a list of up to {LONGEST_CHAIN} objects.", "source.chain")


def _spec_problems(header: RunLine) -> Iterator[BrokenError]:
    """Yield what is wrong with a specification, and with its hash."""
    if not header.spec:
        if header.spec_hash:
            yield BrokenError("There is a hash, but no specification.", "spec_hash")
        return
    try:
        spec: Spec = shaped(header.spec, Spec, "spec")
    except BrokenError as error:
        yield error
        return
    if spec.workload != header.workload:
        yield BrokenError(f"The specification is of '{spec.workload}', the run of another workload.", "workload")
    if not header.spec_hash:
        yield BrokenError("The hash of the specification is missing.", "spec_hash")
    elif spec.hash != header.spec_hash:
        sentence = f"This is not the hash of the specification, {spec.hash[:12]}…: one of the two was changed."
        yield BrokenError(sentence, "spec_hash")
