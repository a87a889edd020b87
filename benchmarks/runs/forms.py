"""The form of a run: it parses the values; `spec_of` and `run_create` validate them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from django.http import QueryDict

from benchmarks import model
from benchmarks.runs.choices import DeviceChoice, HostChoice
from benchmarks.runs.device_selection import MAX_DIGITS, OWN_DRIVE_CHOICE, HostFields, host_fields
from benchmarks.runs.models import EXERCISE_SUFFIX, Run
from benchmarks.runs.requests import CUSTOM_PRESET, EXECUTORS, RunRequest, shares_by_default, spec_for_composition
from benchmarks.runs.rules import Composition, HostShare
from benchmarks.runs.services import default_title
from benchmarks.runs.topology import composition_topology, recorded_topology
from benchmarks.workloads.catalogue import CATALOGUE, spec_of
from benchmarks.workloads.definitions import COMMON_PARAMETERS, Workload, WorkloadParameter
from benchmarks.workloads.validation import SpecError
from core.errors import FalconWebError, Invalid, RuleViolation
from core.language import _, joined
from core.text import parse_id
from fabric.inventory.models import Device

# Derived from the composition, so not in the form.
DERIVED_FIELDS: Final = ("devices", "hosts", "backend")
BASIC_FIELDS: Final = ("batch", "steps", "warmup", "precision", "strategy")
SECONDS_A_MINUTE: Final = 60.0
# The names under which errors of the device selection, and of the drive, are reported.
DEVICE_FIELDS: Final = ("devices", "cpu")
DRIVE_FIELDS: Final = ("storage", "own_drive")
MAX_VALUE_LENGTH: Final = 2000
TINY_PRESET: Final = "tiny"
# What a tiny training of the form takes: long enough to watch its loss and its links.
WATCHED_SECONDS: Final = 25.0
WATCHED_GPUS: Final = 2
WATCHED_CPU_STEPS: Final = 120  # of PyTorch on a CPU, of whose speed nothing is known: 0.1 to 0.3 s each


@dataclass(frozen=True, kw_only=True)
class RunFormField:
    parameter: WorkloadParameter
    value: str
    error: str = ""

    @property
    def id(self) -> str:
        """The element id that labels and errors refer to."""
        return f"f-{self.parameter.name}"

    @property
    def options(self) -> list[tuple[str, str, bool]]:
        """Its choices: value, label, whether it is selected."""
        labels = {True: _("yes"), False: _("no")}
        return [
            (
                _field_text(one),
                labels[one] if isinstance(one, bool) else str(one),
                _field_text(one) == self.value.lower(),
            )
            for one in self.parameter.choices
        ]


@dataclass(kw_only=True)
class RunForm:
    hosts: tuple[HostChoice, ...]
    given: Mapping[str, str]
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def workload(self) -> Workload:
        return CATALOGUE.get(self.given.get("workload", "")) or next(iter(CATALOGUE.values()))

    @property
    def preset(self) -> str:
        choice = self.given.get("preset", "")
        return choice if choice in self.workload.presets else TINY_PRESET

    @property
    def host(self) -> HostChoice | None:
        """The selected host, else the first that can run anything."""
        pk = parse_id(self.given.get("host", ""))
        found = next((one for one in self.hosts if one.id == pk), None)
        return found or next((one for one in self.hosts if not one.why_not), None) or next(iter(self.hosts), None)

    @property
    def is_host_gone(self) -> bool:
        """Whether the selected host is unavailable, so that another one is shown."""
        return self.host is not None and self.given.get("host", str(self.host.id)) != str(self.host.id)

    @property
    def on_cpu(self) -> bool:
        if (where := self.given.get("where", "")) in {"cpu", "gpu"}:
            return where == "cpu"
        return self.preset == TINY_PRESET

    @property
    def executor(self) -> str:
        """The selected executor, else the host's default."""
        if (choice := self.given.get("executor", "")) in EXECUTORS:
            return choice
        offered = self.host.executors if self.host is not None else ()
        if self.workload.family == "command":
            return "torch"  # a command cannot be simulated
        return "torch" if self.on_cpu and "torch" in offered else next(iter(offered[::-1]), "simulated")

    @cached_property
    def parts(self) -> tuple[HostFields, ...]:
        chosen = self.host
        return tuple(host_fields(one, self.given, chosen=one is chosen) for one in self.hosts)

    @property
    def part(self) -> HostFields | None:
        return next((one for one in self.parts if one.chosen), None)

    @property
    def may_share(self) -> bool:
        """Whether it may share its host: the form opens as is usual for its workload."""
        return self.given.get("may_share", "on" if shares_by_default(self.workload.name) else "") == "on"

    @property
    def others(self) -> tuple[HostFields, ...]:
        """The further hosts of a run over several."""
        return tuple(one for one in self.parts if one.is_other)

    @property
    def offers_others(self) -> bool:
        return self.workload.family != "command" and sum(one.offers_other for one in self.parts) > 1

    @property
    def basic_fields(self) -> tuple[RunFormField, ...]:
        common = [one for one in COMMON_PARAMETERS if one.name in BASIC_FIELDS]
        return tuple(self._field(one) for one in (*common, *self.workload.parameters))

    @property
    def other_fields(self) -> tuple[RunFormField, ...]:
        return tuple(self._field(one) for one in COMMON_PARAMETERS if one.name not in {*BASIC_FIELDS, *DERIVED_FIELDS})

    @property
    def processes(self) -> RunFormField:
        return self._field(next(one for one in COMMON_PARAMETERS if one.name == "devices"))

    @property
    def error_list(self) -> list[tuple[str, str]]:
        """The errors: the element id of the field ('' without one), and the sentence with the field's label."""
        of_page = self._places() | {
            one.parameter.name: (_(one.parameter.label), one.id)
            for one in (*self.basic_fields, *self.other_fields, *([self.processes] if self.on_cpu else []))
        }
        found = []
        for name, sentence in self.errors.items():
            label, place = of_page.get(name.removeprefix("options."), ("", ""))
            found.append(
                (
                    place,
                    sentence
                    if sentence.startswith(label)
                    else _("{field}: {sentence}", field=label, sentence=sentence),
                )
            )
        return found

    @property
    def devices_error(self) -> str:
        return "" if self.on_cpu else self._first_error(DEVICE_FIELDS)

    @property
    def drive_error(self) -> str:
        return self._first_error(DRIVE_FIELDS)

    def run_request(self) -> RunRequest:
        """Return the request; raises Invalid with a sentence for each wrong field."""
        host = self.part
        if host is None:
            raise Invalid(_("There is no host."), errors={"host": _("You cannot use any host for runs.")})
        # All errors are reported together.
        composition, wrong = self._composition(host)
        if self.is_host_gone:
            wrong["host"] = _("You cannot run anything on the selected host, or it was removed. Choose another one.")
        names = {one.name for one in (*COMMON_PARAMETERS, *self.workload.parameters)} - set(DERIVED_FIELDS)
        given: dict[str, Any] = {name: self.given[name] for name in names if self.given.get(name, "") != ""}
        if composition.cpu and self.given.get("devices"):
            given["devices"] = self.given["devices"]
        if self.workload.family == "command":
            given = {"command": self.given.get("command", "")}
        minutes, spec = 0.0, None
        try:
            minutes = float(self.given.get("limit", "60").strip().replace(",", "."))
        except ValueError:
            wrong["limit_seconds"] = _("Enter a number of minutes.")
        try:
            spec = spec_for_composition(self.workload.name, self.preset, given, composition)
        except Invalid as error:
            wrong |= error.details["errors"]
        if wrong or spec is None:
            raise Invalid(_("Some fields of the form are invalid."), errors=wrong)
        return RunRequest(
            spec=spec,
            composition=composition,
            executor=self.executor,
            preset=self.preset,
            title=self.given.get("title", ""),
            limit_seconds=minutes * SECONDS_A_MINUTE,
            keep_composed=self.given.get("keep_composed") == "on",
            may_share=self.may_share,
        )

    def add_errors(self, error: FalconWebError) -> None:
        found = error.details.get("errors", {}) if isinstance(error, Invalid) else {}
        if isinstance(error, RuleViolation):
            found = {DEVICE_FIELDS[0]: error.sentence}
        self.errors = {**found} or {"": error.sentence}

    def _composition(self, part: HostFields) -> tuple[Composition, dict[str, str]]:
        """Return the composition, and its errors by field."""
        drive = next((line for line in part.drives if line.chosen), None)
        wrong = {DRIVE_FIELDS[0]: part.lost_drive} if part.lost_drive else {}
        local, devices = self._host_gpus(part, wrong)
        if drive is not None:
            devices[drive.device.id] = drive.chosen
        others = []
        for other in self.others:
            own, attached = self._host_gpus(other, wrong)
            others.append(HostShare(host=other.host.id, local_gpus=own, devices=attached))
        place = Composition(
            host=part.host.id,
            local_gpus=local,
            devices=devices,
            others=tuple(others),
            storage=drive.device.id if drive is not None else None,
            own_drive=part.storage == OWN_DRIVE_CHOICE,
            cpu=self.on_cpu,
        )
        return place, wrong

    def _host_gpus(self, part: HostFields, wrong: dict[str, str]) -> tuple[int, dict[int, int]]:
        """Return the number of a host's own GPUs, and chassis GPUs with their host ports; add what is wrong."""
        if self.on_cpu:
            return 0, {}
        wrong |= part.wrong
        if part.lost:
            wrong[DEVICE_FIELDS[0]] = joined(part.lost)
        local = 0
        if part.local.isascii() and part.local.isdecimal() and len(part.local) <= MAX_DIGITS:
            local = int(part.local)
        else:
            wrong["local_gpus"] = _("Enter a whole number of GPUs.")
        return local, {line.device.id: line.chosen for line in part.gpus if line.chosen}

    def _places(self) -> dict[str, tuple[str, str]]:
        """Return the label and element id of the fields that are not parameters of a workload."""
        part = self.part
        host = part.host.id if part is not None else 0
        first = next((line.name for line in part.gpus if not line.device.why_not), "") if part is not None else ""
        where = "cpu" if self.on_cpu else "gpu"
        return {
            "limit_seconds": (_("Time limit"), "limit"),
            "command": (_("Command"), "command"),
            "host": (_("Host"), f"host-{host}"),
            "executor": (_("Executor"), f"executor-{self.executor}"),
            "backend": ("", f"where-{where}"),
            "local_gpus": (_("GPUs of its own"), f"local-{host}"),
            **dict.fromkeys(DEVICE_FIELDS, ("", first or f"where-{where}")),
            **dict.fromkeys(DRIVE_FIELDS, ("", f"storage-{host}")),
            "other_hosts": (_("Together with"), "together"),
            **{name: ("", name) for one in self.parts if one.chosen or one.is_other for name in one.wrong},
        }

    def _first_error(self, names: tuple[str, ...]) -> str:
        return next((self.errors[name] for name in names if name in self.errors), "")

    def _field(self, parameter: WorkloadParameter) -> RunFormField:
        name = parameter.name
        error = self.errors.get(name) or self.errors.get(f"options.{name}", "")
        return RunFormField(parameter=parameter, value=self.given.get(name, "") or self._usual(name), error=error)

    def _usual(self, name: str) -> str:
        """Return the value of the preset."""
        placeholder = {"command": "true"} if self.workload.family == "command" else {}
        try:
            spec = spec_of(self.workload.name, self.preset, placeholder)
        except SpecError:
            return ""
        value = spec.options[name] if name in spec.options else getattr(spec, name, "")
        return _field_text(value)


def run_form(hosts: tuple[HostChoice, ...], query: QueryDict) -> RunForm:
    return RunForm(hosts=hosts, given={name: str(value)[:MAX_VALUE_LENGTH] for name, value in query.items()})


def run_form_new(hosts: tuple[HostChoice, ...], query: QueryDict) -> RunForm:
    """Return the form as it opens: a tiny training takes some WATCHED_SECONDS, simulated on GPUs of a chassis.

    So its links can be watched. What the query has is left as it is.
    """
    form = run_form(hosts, query)
    if form.preset != TINY_PRESET or not form.workload.is_training or form.part is None:
        return form
    if form.executor == "simulated" and "where" not in query:
        attached = {host.id: _attached_gpus(host) for host in hosts}
        gpus = {f"device-{host}-{one.id}": str(one.attached) for host, some in attached.items() for one in some}
        where = {"where": "gpu"} if attached[form.part.host.id] else {}
        form = RunForm(hosts=hosts, given={**gpus, **where, **form.given})
    return RunForm(hosts=hosts, given={"steps": _watched_steps(form), **form.given})


def _attached_gpus(host: HostChoice) -> list[DeviceChoice]:
    usable = (one for one in host.devices if one.kind == Device.Kind.GPU and one.here)
    return [one for one in usable if not one.used_by and not one.why_not][:WATCHED_GPUS]


def _watched_steps(form: RunForm) -> str:
    """Return a round number of steps that take about WATCHED_SECONDS; '' where that is not known."""
    if form.part is None or form.executor != "simulated":
        return str(WATCHED_CPU_STEPS)
    composition, _errors = form._composition(form.part)  # noqa: SLF001 - of this module
    try:
        spec = spec_for_composition(form.workload.name, form.preset, {}, composition)
        step = model.predict(spec, composition_topology(composition)).step_seconds
    except (FalconWebError, model.ModelError):
        return ""
    return f"{float(f'{WATCHED_SECONDS / step:.1e}'):.0f}"


def _own_title(run: Run) -> str:
    """Return the title that a person gave to a run; '' for the one that says what it is: a changed run has another."""
    title, topology = run.title.removesuffix(EXERCISE_SUFFIX), recorded_topology(run)
    workload = CATALOGUE.get(run.workload)
    is_default = (
        run.executor
        and workload
        and topology
        and title == default_title(workload, run.specification(), topology, run.host_names)
    )
    return "" if is_default else title


def run_form_from(hosts: tuple[HostChoice, ...], run: Run) -> RunForm:
    composition = Composition.from_json(run.composition)
    given = {
        "workload": run.workload,
        "preset": run.preset or CUSTOM_PRESET,
        "title": _own_title(run),
        "executor": run.executor,
        "host": str(composition.host),
        "where": "cpu" if composition.cpu else "gpu",
        "limit": f"{run.limit_seconds / SECONDS_A_MINUTE:g}",
        **_device_values(composition),
        **{
            name: _field_text(value)
            for name, value in {**run.spec, **run.spec.get("options", {})}.items()
            if name not in {"options", "command", "workload"}
        },
        "command": shlex.join(run.spec.get("command", [])),
    }
    if run.keeps_devices:
        given["keep_composed"] = "on"
    given["may_share"] = "on" if run.may_share else "off"
    return RunForm(hosts=hosts, given=given)


def _device_values(composition: Composition) -> dict[str, str]:
    host, storage = composition.host, composition.storage
    fields = {f"with-{one.host}": "on" for one in composition.others}
    for share in composition.shares:
        fields[f"local-{share.host}"] = str(share.local_gpus)
        fields |= {f"device-{share.host}-{pk}": str(port) for pk, port in share.devices.items() if pk != storage}
    if storage is not None:
        fields |= {f"storage-{host}": str(storage), f"port-{host}-{storage}": str(composition.devices[storage])}
    elif composition.own_drive:
        fields[f"storage-{host}"] = OWN_DRIVE_CHOICE
    return fields


def _field_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
