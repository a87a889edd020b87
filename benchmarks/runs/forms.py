"""The form of a run: it reads what was typed; `spec_of` and `run_create` decide whether it may be."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from django.http import QueryDict

from benchmarks.runs.asking import CUSTOM, Asked, spec_checked_for
from benchmarks.runs.checks import EXECUTORS
from benchmarks.runs.choosing import MOST_DIGITS, OWN, HostPart, host_part
from benchmarks.runs.composition import Composition
from benchmarks.runs.models import EXERCISE, Run
from benchmarks.runs.offered import Offered
from benchmarks.runs.placing import HostChoice
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from benchmarks.workloads.parameters import COMMON
from benchmarks.workloads.shapes import Parameter, Workload
from benchmarks.workloads.specs import SpecError
from fabric.numbers import whole_number
from falconweb.errors import FalconWebError, Invalid, RuleViolation

# What follows from where it runs is not asked twice.
FROM_PLACE: Final = ("devices", "backend")
USUAL: Final = ("batch", "steps", "warmup", "precision", "strategy")
MINUTES: Final = 60.0
# What is said of the choice of devices, and of that of a drive, under whatever name it was refused.
DEVICES: Final = ("devices", "cpu")
DRIVES: Final = ("storage", "own_drive")
LONGEST: Final = 2000


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of the form with what is typed in it and what is wrong with that."""

    parameter: Parameter
    value: str
    error: str = ""

    @property
    def id(self) -> str:
        """What labels and errors point at."""
        return f"f-{self.parameter.name}"

    @property
    def options(self) -> list[tuple[str, str, bool]]:
        """Its choices: value, words, whether it is chosen."""
        return [
            (str(one).lower(), {True: "yes", False: "no"}.get(one, str(one)) if isinstance(one, bool) else str(one),
             str(one).lower() == self.value.lower())
            for one in self.parameter.choices
        ]  # fmt: skip


@dataclass(kw_only=True)
class RunForm:
    """What somebody typed, or what the form begins with."""

    offered: Offered
    given: Mapping[str, str]
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def hosts(self) -> tuple[HostChoice, ...]:
        """The hosts to choose among."""
        return self.offered.hosts

    @property
    def workload(self) -> Workload:
        """The workload that is chosen; the first of the catalogue where it is none."""
        return CATALOGUE.get(self.given.get("workload", "")) or next(iter(CATALOGUE.values()))

    @property
    def preset(self) -> str:
        """The preset that is chosen, among those that the workload has."""
        asked = self.given.get("preset", "")
        presets = [*self.workload.presets]
        return asked if asked in presets else "tiny" if "tiny" in presets else CUSTOM

    @property
    def host(self) -> HostChoice | None:
        """The host that is chosen, else the first that can run anything."""
        pk = whole_number(self.given.get("host", ""))
        found = next((one for one in self.hosts if one.id == pk), None)
        return found or next((one for one in self.hosts if not one.why_not), None) or next(iter(self.hosts), None)

    @property
    def is_host_gone(self) -> bool:
        """Whether a host was chosen that there is not: another one is shown then."""
        return self.host is not None and self.given.get("host", str(self.host.id)) != str(self.host.id)

    @property
    def on_cpu(self) -> bool:
        """Whether it runs on the host's CPU."""
        if (where := self.given.get("where", "")) in {"cpu", "gpu"}:
            return where == "cpu"
        return self.preset == "tiny"

    @property
    def executor(self) -> str:
        """The executor that is chosen, else what the host offers first."""
        if (asked := self.given.get("executor", "")) in EXECUTORS:
            return asked
        offered = self.host.executors if self.host is not None else ()
        if self.workload.family == "command":
            return "torch"  # nobody knows what a command would do
        return "torch" if self.on_cpu and "torch" in offered else next(iter(offered[::-1]), "simulated")

    @cached_property
    def parts(self) -> tuple[HostPart, ...]:
        """The hosts with their devices."""
        chosen = self.host
        return tuple(host_part(one, self.offered, self.given, chosen=one is chosen) for one in self.hosts)

    @property
    def part(self) -> HostPart | None:
        """The host that is chosen, with its devices."""
        return next((one for one in self.parts if one.chosen), None)

    @property
    def usual(self) -> tuple[Field, ...]:
        """The fields that are mostly wanted, and the workload's own sizes."""
        common = [one for one in COMMON if one.name in USUAL]
        return tuple(self._field(one) for one in (*common, *self.workload.parameters))

    @property
    def more(self) -> tuple[Field, ...]:
        """The other fields."""
        return tuple(self._field(one) for one in COMMON if one.name not in {*USUAL, *FROM_PLACE})

    @property
    def processes(self) -> Field:
        """How many processes a run on the CPU has."""
        return self._field(next(one for one in COMMON if one.name == "devices"))

    @property
    def told(self) -> list[tuple[str, str]]:
        """What is wrong, with the field's name: its id in the page ('' where it has none), and the sentence."""
        of_page = self._places() | {
            one.parameter.name: (one.parameter.label, one.id)
            for one in (*self.usual, *self.more, *([self.processes] if self.on_cpu else []))
        }
        found = []
        for name, sentence in self.errors.items():
            label, place = of_page.get(name.removeprefix("options."), ("", ""))
            found.append((place, sentence if sentence.startswith(label) else f"{label}: {sentence}"))
        return found

    @property
    def devices_error(self) -> str:
        """What is wrong with the GPUs that are chosen."""
        return "" if self.on_cpu else self._first_error(DEVICES)

    @property
    def drive_error(self) -> str:
        """What is wrong with the drive that is chosen."""
        return self._first_error(DRIVES)

    def text(self, name: str, usual: str = "") -> str:
        """Return what is typed in a field of its own."""
        return self.given.get(name, usual)

    def asked(self) -> Asked:
        """Return what is asked for; raises Invalid, and keeps what is wrong with each field."""
        host = self.part
        if host is None:
            raise Invalid("There is no host.", errors={"host": "There is no host that you may run anything on."})
        # All that is wrong with what was typed is told at once.
        composition, wrong = self._composition(host)
        if self.is_host_gone:
            wrong["host"] = "The host that was chosen is not yours to run anything on, or is gone. Choose another one."
        names = {one.name for one in (*COMMON, *self.workload.parameters)} - set(FROM_PLACE)
        given: dict[str, Any] = {name: self.given[name] for name in names if self.given.get(name, "") != ""}
        if composition.cpu and self.given.get("devices"):
            given["devices"] = self.given["devices"]
        if self.workload.family == "command":
            given = {"command": self.given.get("command", "")}
        minutes, spec = 0.0, None
        try:
            minutes = self._minutes()
        except Invalid as error:
            wrong |= error.details["errors"]
        try:
            spec = spec_checked_for(self.workload.name, self.preset, given, composition)
        except Invalid as error:
            wrong |= error.details["errors"]
        if wrong or spec is None:
            raise Invalid("The form is not filled in rightly.", errors=wrong)
        return Asked(
            spec=spec,
            composition=composition,
            executor=self.executor,
            preset=self.preset,
            title=self.text("title")[:LONGEST],
            limit_seconds=minutes * MINUTES,
            keep_composed=self.given.get("keep_composed") == "on",
            exercise={},
        )

    def refused(self, error: FalconWebError) -> None:
        """Keep what is wrong."""
        found = error.details.get("errors", {}) if isinstance(error, Invalid) else {}
        if isinstance(error, RuleViolation):
            found = {DEVICES[0]: error.sentence}
        self.errors = {**found} or {"": error.sentence}

    def _composition(self, part: HostPart) -> tuple[Composition, dict[str, str]]:
        """Return where it shall run, and what is wrong with that by field."""
        drive = next((line for line in part.drives if line.chosen), None)
        devices = {line.device.id: line.chosen for line in ([] if self.on_cpu else part.gpus) if line.chosen}
        if drive is not None:
            devices[drive.device.id] = drive.chosen
        wrong = {DRIVES[0]: part.lost_drive} if part.lost_drive else {}
        local = 0
        if not self.on_cpu:
            wrong |= part.wrong
            if part.lost:
                wrong[DEVICES[0]] = " ".join(part.lost)
            if part.local.isascii() and part.local.isdecimal() and len(part.local) <= MOST_DIGITS:
                local = int(part.local)
            else:
                wrong["local_gpus"] = "Give a whole number of GPUs."
        place = Composition(
            host=part.host.id,
            local_gpus=local,
            devices=devices,
            storage=drive.device.id if drive is not None else None,
            own_drive=part.storage == OWN,
            cpu=self.on_cpu,
        )
        return place, wrong

    def _places(self) -> dict[str, tuple[str, str]]:
        """Return of fields that are no parameter of a workload how they are called, and where they are in the page."""
        part = self.part
        host = part.host.id if part is not None else 0
        first = next((line.name for line in part.gpus if not line.standing.why_not), "") if part is not None else ""
        where = "cpu" if self.on_cpu else "gpu"
        return {
            "limit_seconds": ("Time limit", "limit"),
            "command": ("Command", "command"),
            "host": ("Host", f"host-{host}"),
            "executor": ("Executor", f"executor-{self.executor}"),
            "backend": ("", f"where-{where}"),
            "local_gpus": ("GPUs of its own", f"local-{host}"),
            **dict.fromkeys(DEVICES, ("", first or f"where-{where}")),
            **dict.fromkeys(DRIVES, ("", f"storage-{host}")),
            **{name: ("", name) for name in (part.wrong if part is not None else {})},
        }

    def _first_error(self, names: tuple[str, ...]) -> str:
        return next((self.errors[name] for name in names if name in self.errors), "")

    def _minutes(self) -> float:
        text = self.text("limit", "60").strip().replace(",", ".")
        try:
            return float(text)
        except ValueError as error:
            raise Invalid("That is no time.", errors={"limit_seconds": "Give minutes."}) from error

    def _field(self, parameter: Parameter) -> Field:
        name = parameter.name
        error = self.errors.get(name) or self.errors.get(f"options.{name}", "")
        return Field(parameter=parameter, value=self.given.get(name, "") or self._usual(name), error=error)

    def _usual(self, name: str) -> str:
        """Return what the preset has."""
        try:
            spec = spec_of(self.workload.name, self.preset, _harmless(self.workload))
        except SpecError:
            return ""
        value = getattr(spec, name, None) if name not in spec.options else spec.options[name]
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def form_of(offered: Offered, query: QueryDict | Mapping[str, str]) -> RunForm:
    """Return a form with what an address or a request gives."""
    return RunForm(offered=offered, given={name: str(value)[:LONGEST] for name, value in dict(query.items()).items()})


def form_again(offered: Offered, run: Run) -> RunForm:
    """Return a form that begins with what a run had."""
    composition = Composition.from_json(run.composition)
    given = {
        "workload": run.workload, "preset": run.preset or CUSTOM,
        "title": run.title.removesuffix(EXERCISE), "executor": run.executor,
        "host": str(composition.host), "where": "cpu" if composition.cpu else "gpu",
        f"local-{composition.host}": str(composition.local_gpus), "limit": f"{run.limit_seconds / MINUTES:g}",
        **_devices_again(composition),
        **{name: _text(value) for name, value in run.spec.items() if name not in {"options", "command", "workload"}},
        **{name: _text(value) for name, value in run.spec.get("options", {}).items()},
        "command": shlex.join(run.spec.get("command", [])),
    }  # fmt: skip
    if run.keeps_devices:
        given["keep_composed"] = "on"
    return RunForm(offered=offered, given=given)


def _devices_again(composition: Composition) -> dict[str, str]:
    """Return the fields of the GPUs that a composition has, and of the drive that data is read from."""
    host, storage = composition.host, composition.storage
    fields = {f"device-{host}-{pk}": str(port) for pk, port in composition.devices.items() if pk != storage}
    if storage is not None:
        fields |= {f"storage-{host}": str(storage), f"port-{host}-{storage}": str(composition.devices[storage])}
    elif composition.own_drive:
        fields[f"storage-{host}"] = OWN
    return fields


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _harmless(workload: Workload) -> dict[str, Any]:
    return {"command": "true"} if workload.family == "command" else {}
