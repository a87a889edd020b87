"""Deployment requests: their fields, the parsing of members, and their specification."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from benchmarks.deploy.bases import Architecture
from benchmarks.deploy.quoting import UnsafeError, refuse_control_characters
from benchmarks.deploy.redaction import escape_pointer
from benchmarks.workloads.catalogue import CATALOGUE, spec_of, workload_of
from benchmarks.workloads.validation import SpecError
from core.language import _
from hostwire.training import Spec

Scheduler = Literal["slurm", "torque", "bash"]
SCHEDULERS: Final[tuple[Scheduler, ...]] = ("slurm", "torque", "bash")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
PATH = re.compile(r"[A-Za-z0-9._/%+=@:,~-]{1,400}")
FOLDER = re.compile(r"/[A-Za-z0-9._/+=@-]{0,399}")
NODES = re.compile(r"[A-Za-z0-9][A-Za-z0-9.,_\[\]-]{0,399}")
EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9][A-Za-z0-9.-]{0,250}")
IMAGE = re.compile(
    r"(?:docker://|library://)?[a-z0-9][A-Za-z0-9._:/-]{0,250}(?:@sha256:[0-9a-f]{64})?|[A-Za-z0-9._/-]{1,250}\.sif"
)
VERSION = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,4}){0,3}(?:[a-z0-9+.-]{0,20})")
SWEEP_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
MEMORY = re.compile(r"([0-9]{1,9})\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
PACKAGE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(?:\[[A-Za-z0-9,._-]{1,100}\])?(?:(?:==|>=|<=|~=)[A-Za-z0-9.*+!_-]{1,50})?"
)
# Fields of a specification that a request may set.
SPEC_FIELDS: Final = (
    "batch", "accumulation", "precision", "gradient", "strategy", "compile", "loader_workers", "options",
)  # fmt: skip
MAX_SECONDS: Final = 366 * 86400


@dataclass(frozen=True, kw_only=True)
class DeploymentTarget:
    """The target of a deployment: a host of the site by id or name, a composition, or a topology."""

    pointer: str
    host: str = ""
    composition: Mapping[str, Any] | None = None
    topology: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options for the queue. Times in seconds; counts are per node, None if not requested."""

    name: str = "job"
    scheduler: Scheduler = "bash"
    seconds: int | None = None
    nodes: int = 1
    gpus: int | None = None
    processes: int | None = None
    cores: int | None = None
    memory: str = ""
    queue: str = ""
    account: str = ""
    nodes_named: str = ""
    exclusive: bool = False
    output: str = ""
    error: str = ""
    notify: tuple[str, ...] = ()  # of begin, end, fail
    email: str = ""
    copy_environment: bool = False


@dataclass(frozen=True, kw_only=True)
class DeploymentRequest:
    """A job with its command and image. `fixed` are the fields of the specification that were set explicitly."""

    job: JobOptions = JobOptions()
    command: tuple[str, ...] = ()
    is_mpi: bool = False
    ranks: int = 1
    threads: int | None = None
    image: str = ""
    framework: str = "pytorch"
    framework_version: str = ""
    build_source: str = ""
    build_command: str = ""
    packages: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    data: str = ""
    spec: Spec | None = None
    fixed: frozenset[str] = frozenset()
    place: DeploymentTarget | None = None
    is_trainer: bool = False  # this site's trainer runs the workload: the request has no command
    architecture: Architecture | None = None
    driver: str = ""
    tuning: str = ""  # the sweep (id) whose best setting is taken


def parse_duration(text: str) -> int:
    """Return '12:00:00', '1-00:00:00', '90' (minutes, as Slurm has it) or 'PT1H30M' as seconds; raises UnsafeError."""
    plain = text.strip()
    # Without days two parts are hours and minutes, as in 12:00; Slurm would read minutes and seconds.
    clock = re.fullmatch(r"(?:([0-9]{1,3})-)?([0-9]{1,4}):([0-9]{1,2})(?::([0-9]{1,2}))?", plain)
    iso = re.fullmatch(r"P(?:([0-9]{1,3})D)?(?:T(?:([0-9]{1,4})H)?(?:([0-9]{1,5})M)?(?:([0-9]{1,7})S)?)?", plain)
    if found := clock or iso:
        days, hours, minutes, rest = (int(one or 0) for one in found.groups())
        seconds = days * 86400 + hours * 3600 + minutes * 60 + rest
    elif re.fullmatch(r"[0-9]{1,6}", plain):
        seconds = int(plain) * 60
    else:
        raise UnsafeError(_("It must be a time such as 12:00:00, 1-00:00:00 or PT12H."))
    if not 0 < seconds <= MAX_SECONDS:
        raise UnsafeError(_("It must be more than zero and at most a year."))
    return seconds


def format_wall_time(seconds: int) -> str:
    """Return seconds in the format of queues: '36:00:00'."""
    return f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"


def parse_memory(text: str) -> str:
    """Return an amount of memory in the format of queues: '64G'; raises UnsafeError."""
    found = MEMORY.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise UnsafeError(_("It must be an amount such as 64G or 512 MB."))
    return f"{int(found[1])}{(found[2] or 'M').upper()}"


def parse_mail_events(text: str) -> tuple[str, ...]:
    """Parse mail events, as Torque's letters or Slurm's words; raises UnsafeError."""
    words = {one.strip().lower() for one in re.split(r"[,\s]+", text) if one.strip()}
    if words & {"none", "n"}:
        return ()
    if "all" in words:
        return ("begin", "end", "fail")
    known = {"begin": "begin", "end": "end", "fail": "fail", "time_limit": "fail"}
    if words <= set(known):
        return tuple(one for one in ("begin", "end", "fail") if one in {known[word] for word in words})
    letters = {"b": "begin", "e": "end", "a": "fail", "f": "fail"}
    if len(words) == 1 and set(next(iter(words))) <= set(letters):
        found = {letters[one] for one in next(iter(words))}
        return tuple(one for one in ("begin", "end", "fail") if one in found)
    raise UnsafeError(_("It must be letters of a, b and e, or words of BEGIN, END and FAIL."))


def parse_job_name(text: str) -> str:
    """Return a name that every queue accepts; raises UnsafeError if it would be empty."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", refuse_control_characters(text.strip())).strip("-.+")[:64]
    if not name:
        raise UnsafeError(_("It has no letter or digit."))
    return name


NoteTreatment = Literal["used", "ignored", "refused"]
Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=str)
MAX_NOTES: Final = 200
MISSING: Final = object()


@dataclass(frozen=True)
class FieldNote:
    """The treatment of a field of a request; `why` is its use, or the reason against it."""

    pointer: str
    treatment: NoteTreatment
    why: str


@dataclass
class FieldNotes:
    all: list[FieldNote] = field(default_factory=list)

    def note(self, pointer: str, treatment: NoteTreatment, why: str) -> None:
        if len(self.all) < MAX_NOTES:
            self.all.append(FieldNote(pointer or "/", treatment, why))

    @property
    def errors(self) -> dict[str, str]:
        """Sentences by pointer, for refused fields."""
        return {one.pointer: one.why for one in self.all if one.treatment == "refused"}


class ObjectMembers:
    """The members of an object of a request. On `close`, members that were not read are unknown, and refused."""

    def __init__(self, plain: Mapping[str, Any], pointer: str, notes: FieldNotes) -> None:
        self.plain, self.pointer, self.notes = plain, pointer, notes
        self.seen: set[str] = set()

    def at(self, name: str) -> str:
        return f"{self.pointer}/{escape_pointer(name)}"

    def raw(self, name: str) -> Any:
        """Return the value of a member; MISSING if it is absent, null or ''."""
        self.seen.add(name)
        value = self.plain.get(name, MISSING)
        return MISSING if value is None or value == "" else value

    def used(self, name: str, why: str) -> None:
        self.notes.note(self.at(name), "used", why)

    def refuse(self, name: str, why: str) -> None:
        self.seen.add(name)
        self.notes.note(self.at(name), "refused", why)

    def ignore(self, name: str, why: str) -> None:
        """Record that a member is ignored, if present."""
        if self.raw(name) is not MISSING:
            self.notes.note(self.at(name), "ignored", why)

    def checked(self, name: str, how: str, value: Value, fits: bool, wrong: str) -> Value | None:
        """Record the use of a member, or the refusal; return its value, None if it is absent or refused.

        Without `how` the caller records the use.
        """
        if value is MISSING:
            return None
        if not fits:
            self.refuse(name, wrong)
            return None
        if how:
            self.used(name, how)
        return value

    def parsed(self, name: str, how: str, read: Callable[[Any], Value]) -> Value | None:
        """Return a member as `read` returns it, which may raise UnsafeError; None if it is absent or refused."""
        value = self.raw(name)
        try:
            return None if value is MISSING else self.checked(name, how, read(value), True, "")
        except UnsafeError as error:
            self.refuse(name, error.sentence)
            return None

    def parsed_text(self, name: str, how: str, read: Callable[[str], Value]) -> Value | None:
        return self.parsed(name, how, lambda value: read(_as_text(value)))

    def text(self, name: str, how: str, pattern: re.Pattern[str] | None = None, shape: str = "") -> str:
        """Return a text, '' if absent; `shape` describes the pattern in errors."""

        def read(value: str) -> str:
            text = refuse_control_characters(value.strip())
            if pattern is not None and text and not pattern.fullmatch(text):
                raise UnsafeError(_("It must be {shape}.", shape=shape))
            return text

        return self.parsed_text(name, how, read) or ""

    def whole(self, name: str, how: str, *, most: int) -> int | None:
        """Return a whole number from 1 on."""
        value = self.raw(name)
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal() and len(value) < 12:
            value = int(value)
        fits = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
        return self.checked(name, how, value, fits, _("A whole number from 1 to {most} is expected.", most=most))

    def flag(self, name: str, how: str) -> bool | None:
        value = self.raw(name)
        return self.checked(name, how, value, isinstance(value, bool), _("true or false is expected."))

    def choice(self, name: str, how: str, choices: Sequence[Choice]) -> Choice | None:
        value = self.raw(name)
        word: Any = value.strip().lower() if isinstance(value, str) else value
        return self.checked(
            name, how, word, word in choices, _("It must be one of {choices}.", choices=", ".join(choices))
        )

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        value = self.raw(name)
        return self.checked(name, "", value, isinstance(value, Mapping), _("An object is expected."))

    def inner(self, name: str, *, needed: bool = False) -> ObjectMembers | None:
        if needed and self.raw(name) is MISSING:
            self.refuse(name, _("It is missing."))
        value = self.mapping(name)
        return None if value is None else ObjectMembers(value, self.at(name), self.notes)

    def spec_members(self, *more: str) -> dict[str, Any]:
        """Return the members that are fields of a specification, its preset, and those of these names."""
        given = {name: value for name in (*more, "preset", *SPEC_FIELDS) if (value := self.raw(name)) is not MISSING}
        for name in given:
            self.used(name, _("The workload of the predictions.") if name == "workload" else _("Used as requested."))
        return given

    def target(self, name: str) -> DeploymentTarget | None:
        """Return the target that 'host', 'composition' or 'topology' names."""
        if name != "host":
            given: Any = self.mapping(name)
            return None if given is None else DeploymentTarget(pointer=self.at(name), **{name: given})
        value = self.raw(name)
        fits = isinstance(value, str | int) and not isinstance(value, bool)
        host = self.checked(name, "", value, fits, _("It must be a name or id."))
        return None if host is None else DeploymentTarget(pointer=self.at(name), host=str(host)[:200])

    def close(self) -> None:
        """Refuse unknown members: silently dropped, they would change the meaning of the request."""
        for name in self.plain:
            if name not in self.seen:
                self.notes.note(self.at(str(name)[:80]), "refused", _("The field is unknown: remove it."))


def _as_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnsafeError(_("A text is expected."))
    return str(value)


# Words in names of programs and tags, the longer ones first, with their workloads.
WORKLOAD_HINTS: Final = (
    ("mobilenetv2", "mobilenet_v2"), ("mobilenet", "mobilenet_v2"), ("resnet50", "resnet50"), ("resnet", "resnet50"),
    ("inceptionv3", "inception_v3"), ("inception", "inception_v3"),
    ("yolov5", "yolov5l"), ("bertlarge", "bert_large"), ("bertbase", "bert_base"), ("bert", "bert_large"),
    ("alexnet", "alexnet"), ("vgg16", "vgg16"), ("vgg", "vgg16"), ("mnist", "mnist_cnn"),
)  # fmt: skip


def guess_workload(texts: Iterable[str]) -> str:
    plain = re.sub(r"[^a-z0-9]+", "", " ".join(texts).lower())
    return next((workload for word, workload in WORKLOAD_HINTS if word in plain), "")


def request_spec(
    name: str, given: Mapping[str, Any], request: DeploymentRequest, notes: FieldNotes, pointer: str
) -> Spec | None:
    """Return the specification of a workload with the given values; None after an error.

    Without a preset the published batch applies. Errors are recorded below `pointer`.
    """
    values = dict(given)
    try:
        workload = workload_of(name)
    except KeyError:
        known = ", ".join(one.name for one in CATALOGUE.values() if one.is_training)
        notes.note(f"{pointer}/workload", "refused", _("It must be one of {choices}.", choices=known))
        return None
    if not workload.is_training:
        notes.note(
            f"{pointer}/workload",
            "refused",
            _("{title} is not a training: there is nothing to deploy.", title=workload.title),
        )
        return None
    preset = values.pop("preset", "paper" if "paper" in workload.presets else "custom")
    if not isinstance(preset, str) or preset not in workload.presets:
        notes.note(
            f"{pointer}/preset", "refused", _("It must be one of {choices}.", choices=", ".join(workload.presets))
        )
        return None
    gpus = (request.job.gpus or 0) * request.job.nodes
    if gpus:
        values.setdefault("devices", gpus)
    if gpus == 1:
        values.setdefault("strategy", "single")
    if request.threads:
        values.setdefault("threads", min(request.threads, 256))
    # The evaluation starts from single precision whatever the preset has, unless the request sets another one.
    values.setdefault("precision", "fp32")
    values.setdefault("gradient", "fp32")
    try:
        return spec_of(name, preset, values)
    except SpecError as error:
        for where, sentence in error.errors.items():
            notes.note("/".join((pointer, *map(escape_pointer, where.split(".")))), "refused", sentence)
        return None
