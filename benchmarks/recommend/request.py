"""Requests to the recommender: a workload, its variable options, the objective, and constraints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, Literal

import msgspec

from benchmarks.recommend.model_names import is_known_model, matching_models, near_models, pool_models
from benchmarks.recommend.pool import RecommendationPool
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from benchmarks.workloads.validation import SpecError
from core.errors import Invalid
from core.language import _, gettext_noop, joined
from hostwire.training import Precision, Spec, Strategy

Objective = Literal["time", "gpu_hours", "energy", "devices"]
DeviceLocation = Literal["any", "local", "chassis"]
OBJECTIVE_LABELS: Final[dict[Objective, str]] = {
    "time": gettext_noop("least time"),
    "gpu_hours": gettext_noop("fewest GPU-hours"),
    "energy": gettext_noop("least energy"),
    "devices": gettext_noop("fewest devices"),
}
# The unit of each objective, and its factor from seconds, joules or devices.
OBJECTIVE_UNITS: Final[dict[Objective, tuple[str, float]]] = {
    "time": ("h", 1 / 3600),
    "gpu_hours": ("GPU-h", 1.0),
    "energy": ("kWh", 1 / 3.6e6),
    "devices": ("devices", 1.0),
}


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """Constraints; a member at its default does not constrain.

    `hosts` are ids, `models` names of GPU models, `most_seconds` and `most_joules` are of the whole job, `most_watts`
    of all GPUs together. `keep` are ids of devices that stay attached where they are. `storage` says where data lies,
    `gpus` where GPUs are. `same_mode`: no drawer changes its mode; `one_model`, `one_place`: no mixture.
    """

    least_devices: int | None = None
    most_devices: int | None = None
    hosts: frozenset[int] | None = None
    models: frozenset[str] | None = None
    most_seconds: float | None = None
    most_joules: float | None = None
    most_watts: float | None = None
    keep: frozenset[int] = frozenset()
    storage: DeviceLocation = "local"
    gpus: DeviceLocation = "any"
    same_mode: bool = False
    one_model: bool = False
    one_place: bool = False

    def given(self) -> Iterator[str]:
        """Yield the names of the effective constraints."""
        for one in fields(self):
            if getattr(self, one.name) != one.default:
                yield one.name

    def without(self, *names: str) -> Constraints:
        """Return a copy without some constraints."""
        defaults: dict[str, Any] = {one.name: one.default for one in fields(self)}
        return replace(self, **{name: defaults[name] for name in names})

    def only(self, *names: str) -> Constraints:
        """Return a copy with only some constraints."""
        return self.without(*(name for name in self.given() if name not in names))


@dataclass(frozen=True, kw_only=True)
class SoftwareChoices:
    """The software options that may vary, () each: as in the template. Batches are per device."""

    precisions: tuple[Precision, ...] = ()
    strategies: tuple[Strategy, ...] = ()
    batches: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RecommendationRequest:
    """A request. `spec` is the template; its `devices` are ignored, because their number is to be determined.

    `samples` is the number of samples of an epoch over all devices, independent of their number; an epoch ends with a
    whole step. With `global_batch`
    each device gets its share, and numbers of devices that do not divide it are left out.
    """

    spec: Spec
    samples: float
    objective: Objective = "time"
    freedom: SoftwareChoices = field(default_factory=SoftwareChoices)
    limits: Constraints = field(default_factory=Constraints)
    global_batch: int | None = None
    epochs: int = 1

    def steps(self, spec: Spec) -> int:
        """Return the number of whole steps of the job."""
        return self.epochs * math.ceil(self.samples / spec.global_batch)


MAX_SAMPLES: Final = 1e12
DEFAULT_SAMPLES: Final = 1e6
DeviceCount = Annotated[int, msgspec.Meta(ge=1, le=1024)]
BatchSize = Annotated[int, msgspec.Meta(ge=1, le=10**6)]
PositiveAmount = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
MAX_BATCHES: Final = 6
MAX_EPOCHS: Final = 10_000


class ConstraintsInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Constraints; what is left out is none. `keep_attached`: what is attached to a host stays there."""

    least_devices: DeviceCount | None = None
    most_devices: DeviceCount | None = None
    host_ids: tuple[int, ...] | None = None
    models: tuple[str, ...] | None = None
    most_hours: PositiveAmount | None = None
    most_kwh: PositiveAmount | None = None
    most_watts: PositiveAmount | None = None
    keep_attached: bool = False
    storage: DeviceLocation = "local"
    gpus: DeviceLocation = "any"
    same_mode: bool = False
    one_model: bool = False
    one_place: bool = False


class RecommendationInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An unparsed request. `spec` has the differences from the preset; its number of devices is ignored."""

    workload: str
    preset: str = "paper"
    spec: dict[str, Any] = {}
    samples: Annotated[float, msgspec.Meta(gt=0, le=MAX_SAMPLES)] = DEFAULT_SAMPLES
    objective: Objective = "time"
    precisions: tuple[Precision, ...] = ()
    strategies: tuple[Strategy, ...] = ()
    batches: Annotated[tuple[BatchSize, ...], msgspec.Meta(max_length=MAX_BATCHES)] = ()
    global_batch: BatchSize | None = None
    epochs: Annotated[int, msgspec.Meta(ge=1, le=MAX_EPOCHS)] = 1
    limits: ConstraintsInput = ConstraintsInput()


def parse_recommendation_request(plain: Mapping[str, Any], pool: RecommendationPool) -> RecommendationRequest:
    """Return the request; raises Invalid with a sentence for each field that is wrong."""
    try:
        given = msgspec.convert(dict(plain), RecommendationInput, strict=False)
    except msgspec.ValidationError as error:
        sentence, __, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$.") or "request"
        raise Invalid(f"{field}: {sentence}.", errors={field: f"{sentence}."}) from error
    workload = CATALOGUE.get(given.workload)
    if workload is None:
        raise Invalid(_("There is no such workload."), errors={"workload": _known_workloads()})
    if not workload.is_training or workload.costs is None:
        raise Invalid(
            _("{workload} trains nothing: there is no best place for it to predict.", workload=_(workload.title)),
            errors={"workload": _known_workloads()},
        )
    own = {name: value for name, value in given.spec.items() if name != "devices"}
    start = workload.presets.get("tiny" if given.preset == "tiny" else "paper", {})
    try:
        # A template for several devices: a single device follows from the number alone.
        spec = spec_of(given.workload, given.preset, {"backend": "cuda", **_device_template(start, own), **own})
    except SpecError as error:
        raise Invalid(str(error), errors={f"spec.{name}": words for name, words in error.errors.items()}) from error
    except KeyError as error:
        raise Invalid(str(error), errors={"preset": _("tiny, paper or custom.")}) from error
    if spec.hosts > 1:
        raise Invalid(
            _("Recommendations are for one host."), errors={"spec.hosts": _("Leave it out: one host is compared.")}
        )
    _refuse_contradictions(given)
    return RecommendationRequest(
        spec=spec,
        samples=given.samples,
        objective=given.objective,
        freedom=SoftwareChoices(precisions=given.precisions, strategies=given.strategies, batches=given.batches),
        limits=_constraints(given.limits, pool),
        global_batch=given.global_batch,
        epochs=given.epochs,
    )


def training_workloads() -> tuple[str, ...]:
    """Return the names of the workloads with recommendations."""
    return tuple(name for name, one in CATALOGUE.items() if one.is_predictable)


def _known_workloads() -> str:
    return _("One of {choices}.", choices=", ".join(training_workloads()))


def _device_template(start: Mapping[str, object], own: Mapping[str, Any]) -> dict[str, Any]:
    strategy = own.get("strategy", start.get("strategy", "ddp"))
    return {"devices": 1, "strategy": "single"} if strategy == "single" else {"devices": 8, "strategy": strategy}


def _refuse_contradictions(given: RecommendationInput) -> None:
    limits = given.limits
    if given.global_batch is not None and given.batches:
        raise Invalid(
            _("A global batch and batches of one device cannot both be given."),
            errors={"batches": _("Leave them out, or the global batch.")},
        )
    if limits.least_devices and limits.most_devices and limits.least_devices > limits.most_devices:
        raise Invalid(
            _(
                "At least {least} devices and at most {most} contradict each other.",
                least=limits.least_devices,
                most=limits.most_devices,
            ),
            errors={"limits.least_devices": _("More than the most.")},
        )


def _known_models(names: Sequence[str], pool: RecommendationPool) -> frozenset[str]:
    """Return the pool's names of GPU models; one that only a data sheet has stays. Raises Invalid for unknown ones."""
    models = pool_models(pool)
    found: set[str] = set()
    for name in names:
        matched = matching_models(name, models)
        if not matched and not is_known_model(name):
            sentence = _("There is no GPU model ‘{name}’ here.", name=name)
            raise Invalid(sentence, errors={"limits.models": joined([sentence, near_models(name, models)])})
        found |= matched or {name}
    return frozenset(found)


def _constraints(given: ConstraintsInput, pool: RecommendationPool) -> Constraints:
    if given.host_ids is not None and (unknown := sorted(set(given.host_ids) - set(pool.hosts))):
        raise Invalid(
            _("There is no host {host} that you may use.", host=unknown[0]),
            errors={"limits.host_ids": _("Ids of hosts that you see.")},
        )
    return Constraints(
        least_devices=given.least_devices,
        most_devices=given.most_devices,
        hosts=frozenset(given.host_ids) if given.host_ids is not None else None,
        models=_known_models(given.models, pool) if given.models is not None else None,
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
