"""The form of a run: it reads what was typed; `spec_of` and `run_create` decide whether it may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.http import QueryDict

from benchmarks.runs.asking import CUSTOM, Asked, spec_checked_for
from benchmarks.runs.checks import EXECUTORS
from benchmarks.runs.composition import Composition
from benchmarks.runs.models import EXERCISE, Run
from benchmarks.runs.placing import DeviceChoice, HostChoice
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from benchmarks.workloads.parameters import COMMON
from benchmarks.workloads.shapes import Parameter, Workload
from benchmarks.workloads.specs import SpecError
from fabric.numbers import whole_number
from falconweb.errors import FalconWebError, Invalid

# What follows from where it runs is not asked twice.
FROM_PLACE: Final = ("devices", "backend")
USUAL: Final = ("batch", "steps", "warmup", "precision", "strategy")
USED: Final = ("gpu", "nvme")  # other devices neither compute nor hold data
MINUTES: Final = 60.0
# Fields of the page that are no parameter of a workload: how they are called, and their ids.
PLACES: Final = {
    "limit_seconds": ("Time limit", "limit"),
    "command": ("Command", "command"),
    "storage": ("Storage", ""),
    "host": ("Host", ""),
}
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


@dataclass(frozen=True, kw_only=True)
class DeviceLine:
    """A device in the form, with the host port that is chosen for it (0: it is not used)."""

    device: DeviceChoice
    chosen: int


@dataclass(frozen=True, kw_only=True)
class HostPart:
    """What the form shows of a host."""

    host: HostChoice
    devices: tuple[DeviceLine, ...]
    chosen: bool
    local: str


@dataclass(kw_only=True)
class RunForm:
    """What somebody typed, or what the form begins with."""

    hosts: tuple[HostChoice, ...]
    given: Mapping[str, str]
    errors: dict[str, str] = field(default_factory=dict)

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
        return "torch" if self.on_cpu and "torch" in offered else next(iter(offered[::-1]), "simulated")

    @property
    def parts(self) -> tuple[HostPart, ...]:
        """The hosts with their devices."""
        return tuple(
            HostPart(
                host=host,
                devices=tuple(
                    DeviceLine(device=one, chosen=whole_number(self.given.get(f"device-{host.id}-{one.id}", "")))
                    for one in host.devices
                    if one.kind in USED
                ),
                chosen=self.host is not None and host.id == self.host.id,
                local=self.given.get(f"local-{host.id}", "") or "0",
            )
            for host in self.hosts
        )

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
        of_page = {**PLACES, "local_gpus": ("GPUs of its own", f"local-{self.host.id}" if self.host else "")}
        shown = (*self.usual, *self.more, *([self.processes] if self.on_cpu else []))
        of_page |= {one.parameter.name: (one.parameter.label, one.id) for one in shown}
        found = []
        for name, sentence in self.errors.items():
            label, place = of_page.get(name.removeprefix("options."), ("", ""))
            found.append((place, sentence if sentence.startswith(label) else f"{label}: {sentence}"))
        return found

    def text(self, name: str, usual: str = "") -> str:
        """Return what is typed in a field of its own."""
        return self.given.get(name, usual)

    def asked(self) -> Asked:
        """Return what is asked for; raises Invalid, and keeps what is wrong with each field."""
        composition = self._composition()
        names = {one.name for one in (*COMMON, *self.workload.parameters)} - set(FROM_PLACE)
        given: dict[str, Any] = {name: self.given[name] for name in names if self.given.get(name, "") != ""}
        if composition.cpu and self.given.get("devices"):
            given["devices"] = self.given["devices"]
        if self.workload.family == "command":
            given = {"command": self.given.get("command", "")}
        # All that is wrong with what was typed is told at once.
        wrong: dict[str, str] = {}
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
        self.errors = {**found} or {"": error.sentence}

    def _composition(self) -> Composition:
        host = self.host
        if host is None:
            raise Invalid("There is no host.", errors={"host": "There is no host that you may run anything on."})
        if self.on_cpu:
            return Composition(host=host.id, cpu=True)
        part = next(one for one in self.parts if one.host.id == host.id)
        text = part.local
        if not (text.isascii() and text.isdecimal() and len(text) < 3):
            raise Invalid("That is no number of GPUs.", errors={"local_gpus": "Give a whole number of GPUs."})
        chosen = {line.device.id: line.chosen for line in part.devices if line.chosen}
        drives = [line.device.id for line in part.devices if line.chosen and line.device.kind == "nvme"]
        if len(drives) > 1:
            raise Invalid("Data is read from one drive.", errors={"storage": "Choose one NVMe drive, or none."})
        return Composition(host=host.id, local_gpus=int(text), devices=chosen, storage=drives[0] if drives else None)

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


def form_of(hosts: tuple[HostChoice, ...], query: QueryDict | Mapping[str, str]) -> RunForm:
    """Return a form with what an address or a request gives."""
    return RunForm(hosts=hosts, given={name: str(value)[:LONGEST] for name, value in dict(query.items()).items()})


def form_again(hosts: tuple[HostChoice, ...], run: Run) -> RunForm:
    """Return a form that begins with what a run had."""
    composition = Composition.from_json(run.composition)
    given = {
        "workload": run.workload, "preset": run.preset or CUSTOM,
        "title": run.title.removesuffix(EXERCISE), "executor": run.executor,
        "host": str(composition.host), "where": "cpu" if composition.cpu else "gpu",
        f"local-{composition.host}": str(composition.local_gpus), "limit": f"{run.limit_seconds / MINUTES:g}",
        **{f"device-{composition.host}-{pk}": str(port) for pk, port in composition.devices.items()},
        **{name: _text(value) for name, value in run.spec.items() if name not in {"options", "command", "workload"}},
        **{name: _text(value) for name, value in run.spec.get("options", {}).items()},
        "command": " ".join(run.spec.get("command", [])),
    }  # fmt: skip
    if run.keep_composed:
        given["keep_composed"] = "on"
    return RunForm(hosts=hosts, given=given)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _harmless(workload: Workload) -> dict[str, Any]:
    return {"command": "true"} if workload.family == "command" else {}
