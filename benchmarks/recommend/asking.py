"""From what somebody asks for, as plain values, to a request: the same for the page, the API and the command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from benchmarks.recommend.pool import Pool
from benchmarks.recommend.request import Asked, Freedom, Limits, Objective, Where
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from benchmarks.workloads.specs import SpecError
from falconweb.errors import Invalid
from hostwire.training import Precision, Strategy

MOST_SAMPLES: Final = 1e12
USUAL_SAMPLES: Final = 1e6
Devices = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Batch = Annotated[int, msgspec.Meta(ge=1, le=10**6)]
Amount = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
MOST_BATCHES: Final = 6


class LimitsAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Constraints; what is left out is none. `keep_attached`: what is attached to a host stays there."""

    least_devices: Devices | None = None
    most_devices: Devices | None = None
    host_ids: tuple[int, ...] | None = None
    models: tuple[str, ...] | None = None
    most_hours: Amount | None = None
    most_kwh: Amount | None = None
    most_watts: Amount | None = None
    keep_attached: bool = False
    storage: Where = "local"
    gpus: Where = "any"
    same_mode: bool = False
    one_model: bool = False
    one_place: bool = False


class RecommendationAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request as it comes. `spec` has what differs from the preset; its number of devices is not read."""

    workload: str
    preset: str = "paper"
    spec: dict[str, Any] = {}
    samples: Annotated[float, msgspec.Meta(gt=0, le=MOST_SAMPLES)] = USUAL_SAMPLES
    objective: Objective = "time"
    precisions: tuple[Precision, ...] = ()
    strategies: tuple[Strategy, ...] = ()
    batches: Annotated[tuple[Batch, ...], msgspec.Meta(max_length=MOST_BATCHES)] = ()
    global_batch: Batch | None = None
    limits: LimitsAsked = LimitsAsked()


def asked_of(plain: Mapping[str, Any], pool: Pool) -> Asked:
    """Return the request; raises Invalid with a sentence for each field that is wrong."""
    try:
        given = msgspec.convert(dict(plain), RecommendationAsked, strict=False)
    except msgspec.ValidationError as error:
        sentence, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$.") or "request"
        raise Invalid(f"{field}: {sentence}.", errors={field: f"{sentence}."}) from error
    workload = CATALOGUE.get(given.workload)
    if workload is None:
        raise Invalid("There is no such workload.", errors={"workload": f"One of {', '.join(trainings())}."})
    if not workload.is_training or workload.costs is None:
        raise Invalid(
            f"{workload.title} trains nothing: there is no best place for it to predict.",
            errors={"workload": f"One of {', '.join(trainings())}."},
        )
    own = {name: value for name, value in given.spec.items() if name != "devices"}
    start = workload.presets.get("tiny" if given.preset == "tiny" else "paper", {})
    try:
        # A template for several devices: a single one is told by its number alone.
        spec = spec_of(given.workload, given.preset, {"backend": "cuda", **_several(start, own), **own})
    except SpecError as error:
        raise Invalid(str(error), errors={f"spec.{name}": words for name, words in error.errors.items()}) from error
    except KeyError as error:
        raise Invalid(str(error), errors={"preset": "tiny, paper or custom."}) from error
    _refuse_contrary(given)
    return Asked(
        spec=spec,
        samples=given.samples,
        objective=given.objective,
        freedom=Freedom(precisions=given.precisions, strategies=given.strategies, batches=given.batches),
        limits=_limits(given.limits, pool),
        global_batch=given.global_batch,
    )


def trainings() -> tuple[str, ...]:
    """Return the names of the workloads that something can be recommended for."""
    return tuple(name for name, one in CATALOGUE.items() if one.is_training and one.costs is not None)


def _several(start: Mapping[str, object], own: Mapping[str, Any]) -> dict[str, Any]:
    strategy = own.get("strategy", start.get("strategy", "ddp"))
    return {"devices": 1, "strategy": "single"} if strategy == "single" else {"devices": 8, "strategy": strategy}


def _refuse_contrary(given: RecommendationAsked) -> None:
    limits = given.limits
    if given.global_batch is not None and given.batches:
        raise Invalid(
            "A global batch and batches of one device cannot both be given.",
            errors={"batches": "Leave them out, or the global batch."},
        )
    if limits.least_devices and limits.most_devices and limits.least_devices > limits.most_devices:
        raise Invalid(
            f"At least {limits.least_devices} devices and at most {limits.most_devices} contradict each other.",
            errors={"limits.least_devices": "More than the most."},
        )


def _limits(given: LimitsAsked, pool: Pool) -> Limits:
    if given.host_ids is not None and (unknown := sorted(set(given.host_ids) - set(pool.hosts))):
        raise Invalid(
            f"There is no host {unknown[0]} that you may use.", errors={"limits.host_ids": "Ids of hosts that you see."}
        )
    return Limits(
        least_devices=given.least_devices,
        most_devices=given.most_devices,
        hosts=frozenset(given.host_ids) if given.host_ids is not None else None,
        models=frozenset(given.models) if given.models is not None else None,
        most_seconds=given.most_hours * 3600 if given.most_hours is not None else None,
        most_joules=given.most_kwh * 3.6e6 if given.most_kwh is not None else None,
        most_watts=given.most_watts,
        keep=frozenset(
            device.id
            for drawer in pool.drawers
            for device in drawer.devices
            if device.attached is not None and device.id in pool.devices
        )
        if given.keep_attached
        else frozenset(),
        storage=given.storage,
        gpus=given.gpus,
        same_mode=given.same_mode,
        one_model=given.one_model,
        one_place=given.one_place,
    )
