"""A deployment request: its fields, how members are read, and the specification it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from benchmarks.deploy.quoting import UnsafeError, refuse_control_characters
from benchmarks.deploy.redaction import escape_pointer
from benchmarks.workloads.catalogue import CATALOGUE, spec_of, workload_of
from benchmarks.workloads.definitions import Preset, SpecError
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
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
MEMORY = re.compile(r"([0-9]{1,9})\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
PACKAGE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(?:\[[A-Za-z0-9,._-]{1,100}\])?(?:(?:==|>=|<=|~=)[A-Za-z0-9.*+!_-]{1,50})?"
)
# Fields of a specification that a request may ask for by name.
SPEC_FIELDS: Final = (
    "batch", "accumulation", "precision", "gradient", "strategy", "compile", "loader_workers", "options",
)  # fmt: skip
MAX_SECONDS: Final = 366 * 86400


@dataclass(frozen=True, kw_only=True)
class DeploymentTarget:
    """Where it shall run, as somebody names it: a host of the site by id or name, a composition, or a topology."""

    pointer: str
    host: str = ""
    composition: Mapping[str, Any] | None = None
    topology: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What the queue is asked for. Times in seconds; counts are a node, None where nothing was asked."""

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
    """A job with what it runs. `fixed` are the fields of the specification that somebody asked for by name."""

    job: JobOptions = JobOptions()
    command: tuple[str, ...] = ()
    command_pointer: str = ""
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


def parse_duration(text: str) -> int:
    """Return '12:00:00', '1-00:00:00', '90' (minutes, as Slurm has it) or 'PT1H30M' as seconds; raises UnsafeError."""
    plain = text.strip()
    if found := re.fullmatch(r"(?:([0-9]{1,3})-)?([0-9]{1,4}):([0-9]{1,2})(?::([0-9]{1,2}))?", plain):
        days, first, second, third = (int(one or 0) for one in found.groups())
        # Without days two parts are hours and minutes to people who write 12:00; Slurm would take minutes and seconds.
        seconds = days * 86400 + first * 3600 + second * 60 + third
    elif found := re.fullmatch(
        r"P(?:([0-9]{1,3})D)?(?:T(?:([0-9]{1,4})H)?(?:([0-9]{1,5})M)?(?:([0-9]{1,7})S)?)?", plain
    ):
        days, hours, minutes, rest = (int(one or 0) for one in found.groups())
        seconds = days * 86400 + hours * 3600 + minutes * 60 + rest
    elif re.fullmatch(r"[0-9]{1,6}", plain):
        seconds = int(plain) * 60
    else:
        raise UnsafeError("It is a time such as 12:00:00, 1-00:00:00 or PT12H.")
    if not 0 < seconds <= MAX_SECONDS:
        raise UnsafeError("It is more than nothing and at most a year.")
    return seconds


def format_wall_time(seconds: int) -> str:
    """Return seconds as queues read them: '36:00:00'."""
    return f"{seconds // 3600:02d}:{seconds % 3600 // 60:02d}:{seconds % 60:02d}"


def parse_memory(text: str) -> str:
    """Return an amount of memory as queues read it: '64G'; raises UnsafeError."""
    found = MEMORY.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise UnsafeError("It is an amount such as 64G or 512 MB.")
    return f"{int(found[1])}{(found[2] or 'M').upper()}"


def parse_mail_events(text: str) -> tuple[str, ...]:
    """Return of what somebody wants to hear: of Torque's letters or Slurm's words; raises UnsafeError."""
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
    raise UnsafeError("It is letters of a, b and e, or words of BEGIN, END and FAIL.")


def parse_job_name(text: str) -> str:
    """Return a name that every queue takes; raises UnsafeError where nothing of it is left."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", refuse_control_characters(text.strip())).strip("-.+")[:64]
    if not name:
        raise UnsafeError("It has no letter or digit.")
    return name


NoteTreatment = Literal["used", "ignored", "refused"]
Value = TypeVar("Value")
MAX_NOTES: Final = 200
MISSING: Final = object()


@dataclass(frozen=True)
class FieldNote:
    """What became of a field of a request: `why` says how it is used, or why not."""

    pointer: str
    treatment: NoteTreatment
    why: str


@dataclass
class FieldNotes:
    """What became of all fields so far."""

    told: list[FieldNote] = field(default_factory=list)

    def note(self, pointer: str, treatment: NoteTreatment, why: str) -> None:
        """Keep what became of one."""
        if len(self.told) < MAX_NOTES:
            self.told.append(FieldNote(pointer or "/", treatment, why))

    @property
    def errors(self) -> dict[str, str]:
        """Sentences by pointer, of those that were refused."""
        return {one.pointer: one.why for one in self.told if one.treatment == "refused"}


class ObjectMembers:
    """The members of an object of a request. What was not asked for when it is left is unknown, and refused."""

    def __init__(self, plain: Mapping[str, Any], pointer: str, book: FieldNotes) -> None:
        self.plain, self.pointer, self.book = plain, pointer, book
        self.seen: set[str] = set()

    def at(self, name: str) -> str:
        """Return the pointer of a member."""
        return f"{self.pointer}/{escape_pointer(name)}"

    def raw(self, name: str) -> Any:
        """Return a member as it is, MISSING where there is none; null and '' count as none."""
        self.seen.add(name)
        value = self.plain.get(name, MISSING)
        return MISSING if value is None or value == "" else value

    def used(self, name: str, why: str) -> None:
        """Note that a member is used."""
        self.book.note(self.at(name), "used", why)

    def refuse(self, name: str, why: str) -> None:
        """Note that a member cannot be."""
        self.seen.add(name)
        self.book.note(self.at(name), "refused", why)

    def ignore(self, name: str, why: str) -> None:
        """Leave a member aside where it is given."""
        if self.raw(name) is not MISSING:
            self.book.note(self.at(name), "ignored", why)

    def text(self, name: str, how: str, pattern: re.Pattern[str] | None = None, shape: str = "") -> str:
        """Return a text, '' without one; `shape` says what the pattern wants."""
        value = self.raw(name)
        if value is MISSING:
            return ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            self.refuse(name, "A text is expected.")
            return ""
        value = value.strip()
        try:
            refuse_control_characters(value)
        except UnsafeError as error:
            self.refuse(name, error.sentence)
            return ""
        if pattern is not None and value and not pattern.fullmatch(value):
            self.refuse(name, f"It is {shape}.")
            return ""
        self.used(name, how)
        return value

    def parsed(self, name: str, how: str, read: Callable[[str], Value]) -> Value | None:
        """Return a text as what `read` makes of it, which may raise UnsafeError; None without one."""
        value = self.raw(name)
        if value is MISSING:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.refuse(name, "A text is expected.")
            return None
        try:
            made = read(str(value))
        except UnsafeError as error:
            self.refuse(name, error.sentence)
            return None
        self.used(name, how)
        return made

    def whole(self, name: str, how: str, *, least: int = 1, most: int = 100_000) -> int | None:
        """Return a whole number, None without one."""
        value = self.raw(name)
        if value is MISSING:
            return None
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal() and len(value) < 12:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.refuse(name, f"A whole number from {least} to {most} is expected.")
            return None
        self.used(name, how)
        return value

    def flag(self, name: str, how: str = "") -> bool | None:
        """Return true or false, None without either; a use without `how` is noted by the caller."""
        value = self.raw(name)
        if value is MISSING:
            return None
        if not isinstance(value, bool):
            self.refuse(name, "true or false is expected.")
            return None
        if how:
            self.used(name, how)
        return value

    def choice(self, name: str, how: str, choices: Collection[str]) -> str:
        """Return one of some words, '' without one."""
        value = self.raw(name)
        if value is MISSING:
            return ""
        if not isinstance(value, str) or value.strip().lower() not in choices:
            self.refuse(name, f"It is one of {', '.join(choices)}.")
            return ""
        if how:
            self.used(name, how)
        return value.strip().lower()

    def inner(self, name: str, *, needed: bool = False) -> ObjectMembers | None:
        """Return the members of an object within, None without one."""
        value = self.raw(name)
        if value is MISSING:
            if needed:
                self.refuse(name, "It is missing.")
            return None
        if not isinstance(value, Mapping):
            self.refuse(name, "An object is expected.")
            return None
        return ObjectMembers(value, self.at(name), self.book)

    def close(self) -> None:
        """Refuse what nobody asked for: left out unsaid, it would change what the request means."""
        for name in self.plain:
            if name not in self.seen:
                self.book.note(self.at(str(name)[:80]), "refused", "Nothing here has this name: leave it out.")


# Words in names of programs and tags, the longer ones first, with the workload that they are taken for.
WORKLOAD_HINTS: Final = (
    ("mobilenetv2", "mobilenet_v2"), ("mobilenet", "mobilenet_v2"), ("resnet50", "resnet50"), ("resnet", "resnet50"),
    ("yolov5", "yolov5l"), ("bertlarge", "bert_large"), ("bertbase", "bert_base"), ("bert", "bert_large"),
    ("alexnet", "alexnet"), ("vgg16", "vgg16"), ("vgg", "vgg16"), ("mnist", "mnist_cnn"),
)  # fmt: skip


def guess_workload(texts: Iterable[str]) -> str:
    """Return the workload that names tell of, '' where they tell of none."""
    plain = re.sub(r"[^a-z0-9]+", "", " ".join(texts).lower())
    return next((workload for word, workload in WORKLOAD_HINTS if word in plain), "")


def request_spec(
    name: str, given: Mapping[str, Any], wanted: DeploymentRequest, book: FieldNotes, pointer: str
) -> Spec | None:
    """Return the specification of a workload with what was asked for; None where something of it is wrong.

    Without a preset the published batch counts. What is wrong is noted below `pointer`.
    """
    asked = dict(given)
    try:
        workload = workload_of(name)
    except KeyError:
        known = ", ".join(one.name for one in CATALOGUE.values() if one.is_training)
        book.note(f"{pointer}/workload", "refused", f"It is one of {known}.")
        return None
    if not workload.is_training:
        book.note(f"{pointer}/workload", "refused", f"{workload.title} trains nothing: there is nothing to deploy.")
        return None
    wish = asked.pop("preset", "paper" if "paper" in workload.presets else "custom")
    preset: Preset | None = next((one for one in workload.presets if one == wish), None)
    if preset is None:
        book.note(f"{pointer}/preset", "refused", f"It is one of {', '.join(workload.presets)}.")
        return None
    gpus = (wanted.job.gpus or 0) * wanted.job.nodes
    if gpus:
        asked.setdefault("devices", gpus)
    if gpus == 1:
        asked.setdefault("strategy", "single")
    if wanted.threads:
        asked.setdefault("threads", min(wanted.threads, 256))
    # Single precision is where weighing begins, whatever the preset has, unless somebody asked for another one.
    asked.setdefault("precision", "fp32")
    asked.setdefault("gradient", "fp32")
    try:
        return spec_of(name, preset, asked)
    except SpecError as error:
        for where, sentence in error.errors.items():
            book.note("/".join((pointer, *map(escape_pointer, where.split(".")))), "refused", sentence)
        return None
