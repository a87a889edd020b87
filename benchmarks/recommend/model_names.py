"""Names of GPU models as BMCs, agents and vendors write them: 'NVIDIA A100 80GB PCIe' is 'A100-PCIE-80GB'. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

from benchmarks.model.reference_data import DEVICE_DATASHEETS, STAND_IN, UNKNOWN_DEVICE, device_datasheet
from benchmarks.recommend.pool import RecommendationPool
from core.language import _, joined

MAX_NEAR: Final = 4
MAKERS: Final = frozenset({"NVIDIA", "TESLA", "AMD", "INTEL", "CORPORATION", "GPU"})


def pool_models(pool: RecommendationPool) -> list[str]:
    """Return the names of the GPU models of a pool, sorted."""
    own = {host.local.model for host in pool.hosts.values() if host.local_gpus}
    return sorted(own | {one.kind.model for one in pool.devices.values() if not one.is_storage})


def matching_models(name: str, models: Iterable[str]) -> frozenset[str]:
    """Return the models that a name means: all parts of it are in theirs, else all of theirs are in it."""
    known = {one: _parts(one) for one in models}
    wanted = _parts(name)
    if not wanted:
        return frozenset()
    exact = frozenset(one for one, parts in known.items() if all(_is_in(part, parts) for part in wanted))
    return exact or frozenset(one for one, parts in known.items() if parts and parts <= wanted)


def is_known_model(name: str) -> bool:
    """Return whether there is a data sheet of a model."""
    return device_datasheet(name) is not UNKNOWN_DEVICE


def near_models(name: str, models: Iterable[str]) -> str:
    """Return a sentence on the models whose names are nearest, of these and those with a data sheet."""
    every = {" ".join(sorted(_parts(one))): one for one in [*DEVICE_DATASHEETS, *models] if one != UNKNOWN_DEVICE.name}
    near = difflib.get_close_matches(" ".join(sorted(_parts(name))), list(every), n=MAX_NEAR, cutoff=0.3)
    names = [every[one] for one in near] or list(every.values())[-MAX_NEAR:]
    return _("Near it are: {names}.", names=", ".join(names))


def unknown_model_sentences(pool: RecommendationPool) -> tuple[str, ...]:
    """Return a sentence for each GPU model of a pool that no data sheet is known of."""
    return tuple(
        joined(
            [
                _(
                    "There is no data sheet of ‘{model}’: it counts as {other}, with a wide interval.",
                    model=one,
                    other=STAND_IN.name,
                ),
                near_models(one, ()),
            ]
        )
        for one in pool_models(pool)
        if not is_known_model(one)
    )


def _parts(name: str) -> frozenset[str]:
    """Return the parts of a name without the maker: {'A100', '80GB', 'PCIE'}."""
    plain = re.sub(r"(\d) +(?=GB\b)", r"\1", name.upper())
    return frozenset(re.findall(r"[A-Z0-9]+", plain)) - MAKERS


def _is_in(part: str, parts: frozenset[str]) -> bool:
    """Return whether a part is one of these, or begins one: 'SXM' is in 'SXM2', 'A10' is not in 'A100'."""
    return part in parts or (part.isalpha() and any(one.startswith(part) for one in parts))
