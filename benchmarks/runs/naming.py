"""How parts of a run are called. Its host counts GPUs by PCI addresses, people count by slots.

A GPU of a chassis is known by its place, one of the host's own by its number. Which address a device had is noted when
the run begins: afterwards it is somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from benchmarks.model.shapes import LOCAL, Accelerator, Topology
from benchmarks.runs.models import Run
from benchmarks.runs.observing import topology_kept

GPU: Final = "gpu/"
OWN: Final = "local "  # and a number: what placing calls the host's own
ADDRESSES: Final = "addresses"  # of a run's source: the names of accelerators by PCI address


def strategy_words(name: str) -> str:
    """Return how devices work together: 'DDP', 'sharded', 'one device'."""
    return {"single": "one device", "sharded": "sharded"}.get(name, name.upper())


def accelerator_words(accelerator: Accelerator) -> str:
    """Return how an accelerator is called: 'own GPU 1', 'falcon-1 drawer 1 slot 3'."""
    name = accelerator.name
    if accelerator.place == LOCAL:
        return f"own GPU {name.removeprefix(OWN)}" if name.startswith(OWN) else name
    chassis, _, slot = name.rpartition("/")
    return f"{chassis} {slot[:1].lower()}{slot[1:]}" if chassis else name


def gpu_names(run: Run, keys: Iterable[str]) -> dict[str, str]:
    """Return how the GPUs in these series are called, by PCI address: 'falcon-1 drawer 1 slot 3 · V100'.

    One that nobody can tell apart any more is left out.
    """
    topology = topology_kept(run)
    addresses = sorted({key.split("/")[1] for key in keys if key.startswith(GPU) and key.count("/") > 1})
    if topology is None or not addresses:
        return {}
    noted = run.source.get(ADDRESSES)
    found = _of_chassis(topology, noted if isinstance(noted, Mapping) else {})
    others = [one for one in addresses if one not in found]
    unnoted = [one for one in topology.accelerators if one.name not in {known.name for known in found.values()}]
    if len(others) == len(unnoted) and all(one.place == LOCAL for one in unnoted):
        # A host takes its own in the order of their addresses.
        found |= dict(zip(others, unnoted, strict=True))
    return {address: _told(one) for address, one in found.items() if address in addresses}


def _of_chassis(topology: Topology, noted: Mapping[str, object]) -> dict[str, Accelerator]:
    named = {one.name: one for one in topology.accelerators}
    return {address: named[name] for address, name in noted.items() if isinstance(name, str) and name in named}


def _told(accelerator: Accelerator) -> str:
    words = accelerator_words(accelerator)
    return words if accelerator.place == LOCAL else f"{words} · {accelerator.model.partition('-')[0]}"
