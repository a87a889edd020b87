"""What somebody asks for, as a form or a file says it: a specification and where it runs, or what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from benchmarks.runs.composition import Composition
from benchmarks.runs.models import Run
from benchmarks.strict import BrokenError, loads
from benchmarks.workloads.catalogue import spec_of
from benchmarks.workloads.specs import SpecError
from fabric.models import Device
from falconweb.errors import Invalid
from hostwire.training import Spec

LARGEST_FILE: Final = 256 * 1024  # characters
CUSTOM: Final = "custom"
Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]  # of a row: a database refuses others


class DevicePlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device, and the host port that it shall be attached to."""

    device_id: Id
    host_port_id: Id


class PlaceAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a run shall run, as files and the API say it; see benchmarks.runs.composition.Composition."""

    host_id: Id
    local_gpus: int = 0
    devices: tuple[DevicePlace, ...] = ()
    storage_device_id: Id | None = None
    own_drive: bool = False
    cpu: bool = False

    def composition(self) -> Composition:
        """Return it as a composition; raises Invalid for a device that is named twice."""
        if len({one.device_id for one in self.devices}) < len(self.devices):
            raise Invalid("A device is named twice.", errors={"composition.devices": "Name each device once."})
        if not 0 <= self.local_gpus <= 64:
            raise Invalid("Those are no GPUs.", errors={"composition.local_gpus": "A number from 0 to 64."})
        return Composition(
            host=self.host_id,
            local_gpus=self.local_gpus,
            devices={one.device_id: one.host_port_id for one in self.devices},
            storage=self.storage_device_id,
            own_drive=self.own_drive,
            cpu=self.cpu,
        )


class Exercise(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a simulated run shall end badly, to exercise what follows: after so many steps."""

    fails: str
    after: int = 0


class RunFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run as files and the API ask for it."""

    workload: str
    composition: PlaceAsked
    executor: str
    preset: str = CUSTOM
    spec: dict[str, Any] = {}
    title: str = ""
    limit_seconds: float = 3600.0
    keep_composed: bool = False
    exercise: Exercise | None = None


@dataclass(frozen=True)
class Asked:
    """A run that somebody asks for, ready for `run_create`."""

    spec: Spec
    composition: Composition
    executor: str
    preset: str
    title: str
    limit_seconds: float
    keep_composed: bool
    exercise: Mapping[str, Any]


def asked_of_text(text: str) -> Asked:
    """Read a file; raises Invalid, which names the field, or the line and character where it is no JSON."""
    if len(text) > LARGEST_FILE:
        raise Invalid("The file is too long.", errors={"file": f"At most {LARGEST_FILE // 1024} KiB."})
    try:
        plain = loads(text)
    except BrokenError as error:
        raise Invalid(error.sentence, errors={error.where or "file": error.sentence}) from error
    return asked_of(plain)


def asked_of(plain: Any) -> Asked:
    """Read what a file or the API asks for; raises Invalid with a sentence for the field that is wrong."""
    try:
        given = msgspec.convert(plain, RunFile)
    except msgspec.ValidationError as error:
        raise _invalid(error) from error
    composition = given.composition.composition()
    spec = spec_checked_for(given.workload, given.preset, given.spec, composition)
    exercise: Mapping[str, Any] = {}
    if given.exercise is not None:
        exercise = _exercise_checked(given.exercise, given.executor)
    return Asked(
        spec=spec,
        composition=composition,
        executor=given.executor,
        preset=given.preset,
        title=given.title,
        limit_seconds=given.limit_seconds,
        keep_composed=given.keep_composed,
        exercise=exercise,
    )


def spec_checked_for(workload: str, preset: str, given: Mapping[str, Any], composition: Composition) -> Spec:
    """Return the spec of a preset with what is given in its place, for as many devices as a composition has.

    Raises Invalid with a sentence for each field that is wrong.
    """
    filled = dict(given)
    filled.setdefault("backend", "cpu" if composition.cpu else "cuda")
    if not composition.cpu and "devices" not in filled:
        filled["devices"] = max(1, composition.local_gpus + _gpus(composition))
    try:
        return spec_of(workload, preset, filled)
    except SpecError as error:
        raise Invalid(next(iter(error.errors.values())), errors=error.errors) from error


def file_of(run: Run) -> str:
    """Return a run as a file that asks for it once more, JSON."""
    composition = Composition.from_json(run.composition)
    spec = {name: value for name, value in run.spec.items() if name not in {"workload", "framework"}}
    if not spec.get("command"):
        spec.pop("command", None)
    plain = {
        "workload": run.workload,
        "preset": run.preset or CUSTOM,
        "spec": spec,
        "composition": {
            "host_id": composition.host,
            "local_gpus": composition.local_gpus,
            "devices": [{"device_id": pk, "host_port_id": port} for pk, port in composition.devices.items()],
            "storage_device_id": composition.storage,
            "own_drive": composition.own_drive,
            "cpu": composition.cpu,
        },
        "executor": run.executor,
        "title": run.title,
        "limit_seconds": run.limit_seconds,
        "keep_composed": run.keeps_devices,
        **({"exercise": run.exercise} if run.exercise else {}),
    }
    return json.dumps(plain, indent=2)


def _gpus(composition: Composition) -> int:
    """Return how many devices of a composition compute; of one that nobody knows, that is told later."""
    others = Device.objects.filter(pk__in=composition.devices).exclude(kind=Device.Kind.GPU).count()
    return len(composition.devices) - others


def _exercise_checked(exercise: Exercise, executor: str) -> Mapping[str, Any]:
    kinds = ("out_of_memory", "crash", "hang")
    if exercise.fails not in kinds:
        sentence = f"One of {', '.join(kinds)}."
        raise Invalid("There is no such exercise.", errors={"exercise.fails": sentence})
    if executor != "simulated":
        sentence = "Only a simulated run ends badly on demand."
        raise Invalid(sentence, errors={"exercise": sentence})
    if not 0 <= exercise.after <= 10**6:
        raise Invalid("That is no step.", errors={"exercise.after": "A number from 0 to 1,000,000."})
    return {"fails": exercise.fails, "after": exercise.after}


def _invalid(error: msgspec.ValidationError) -> Invalid:
    """Return an error of the shape as a sentence for its field: 'Expected `int`, got `str` - at `$.a.b`'."""
    words, _, where = str(error).partition(" - at ")
    field = where.strip("`").removeprefix("$").lstrip(".")
    sentence = f"{words[:1].upper()}{words[1:]}.".replace("`", "'")
    return Invalid(f"{field or 'The file'}: {sentence}", errors={field or "file": sentence})
