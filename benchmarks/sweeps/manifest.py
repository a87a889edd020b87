"""FfDL manifests: each field becomes a part of a grid, is kept, is ignored with a reason, or is refused. Pure.

Values in `data_stores` are never echoed: not in explanations, not in problems, not in the stored manifest.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from benchmarks.sweeps.grid import SweepGrid
from benchmarks.workloads.catalogue import CATALOGUE
from core.documents import (
    DocumentNode,
    DocumentProblem,
    DocumentProblems,
    DocumentSyntaxError,
    TooManyProblemsError,
    member_path,
    read_yaml,
    unknown_name_sentence,
)
from core.errors import Invalid
from core.language import _, gettext_noop, joined

MAX_MANIFEST_LENGTH: Final = 100_000  # characters
REDACTED_PROBLEM: Final = gettext_noop(
    "The value is invalid. It is not shown, since it may contain credentials of a data store."
)
MAX_TEXT_LENGTH: Final = 4096
MIN_SECRET_LENGTH: Final = 4  # characters; shorter values occur elsewhere by chance
FieldTreatment = Literal["used", "kept", "ignored"]
MEMORY_PATTERN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*+(?:[KMGT]i?)?[Bb]?\s*")
FRAMEWORK_FIELDS: Final = ("name", "version", "command", "image_tag")
# Members of `grid` that the manifest has its own fields for.
MANIFEST_ONLY_FIELDS: Final = ("framework", "workload", "threads", "count", "accelerator", "command")
SCALAR_FIELDS: Final = ("batch_of", "repeats", "preset", "same", "executor", "limit_seconds", "at_once", "early")
# Members of a data store that are not secret; all other members of a connection are.
PUBLIC_MEMBERS: Final = ("type", "name", "path", "region")
SECRET_NAMES = re.compile(r"pass|secret|token|key|cred|user|auth", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class FieldExplanation:
    """The treatment of a field: 'used' as a part of the grid, 'kept' with the sweep, or 'ignored', with the reason."""

    field: str
    line: int
    fate: FieldTreatment
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A parsed manifest: members of a grid, a title, the treatment of each field, and the problems.

    `kept` is the manifest that may be stored and shown, without credentials of data stores.
    """

    grid: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    explained: tuple[FieldExplanation, ...] = ()
    problems: tuple[DocumentProblem, ...] = ()
    kept: str = ""

    def grid_with(self, chosen: Mapping[str, Any]) -> SweepGrid:
        """Return the grid, with `chosen` values for members that the manifest does not set. Raises Invalid."""
        if self.problems:
            raise manifest_error(self)
        return SweepGrid.from_json({**chosen, **self.grid})


def manifest_error(manifest: Manifest) -> Invalid:
    """Return the error of a manifest with problems: the first as its sentence, all by field."""
    first = manifest.problems[0]
    errors: dict[str, str] = {}
    for one in manifest.problems:
        errors.setdefault(one.place.path or "manifest", one.sentence)
    return Invalid(
        _(
            "The manifest cannot be used. Line {line}, column {column}: {sentence}",
            line=first.place.line,
            column=first.place.column,
            sentence=first.sentence,
        )
        if first.place.line
        else _("The manifest cannot be used. {sentence}", sentence=first.sentence),
        errors=errors,
        problems=[one.as_json() for one in manifest.problems],
    )


def read_manifest(text: str) -> Manifest:
    """Parse a manifest, YAML or JSON; problems have line and column."""
    text = text.removeprefix("\ufeff")
    problems = DocumentProblems(text)
    if len(text) > MAX_MANIFEST_LENGTH:
        problems.add(
            _(
                "A manifest has at most {most:,} characters; this one has {count:,}.",
                most=MAX_MANIFEST_LENGTH,
                count=len(text),
            ),
            "",
            0,
        )
        return Manifest(problems=problems.in_order())
    fields = ManifestReader(problems)
    try:
        root = read_yaml(text, problems)
        fields.read(root)
    except DocumentSyntaxError as error:
        problems.add_last(error.sentence, error.offset)
    except TooManyProblemsError:
        problems.add_last(_("There are more problems than are listed here."), 0)
    shown = _redact_secrets(problems.in_order(), fields.secrets)
    if shown:
        return Manifest(problems=shown, explained=tuple(fields.explained))
    return Manifest(
        grid=fields.grid, title=fields.title, explained=tuple(fields.explained), kept="\n".join(fields.kept) + "\n"
    )


def _redact_secrets(problems: Sequence[DocumentProblem], secrets: Collection[str]) -> tuple[DocumentProblem, ...]:
    """Return problems; those that would reveal a value of a data store have only their place."""
    shown = []
    for one in problems:
        in_stores = one.place.path.startswith("data_stores")
        if in_stores or any(secret in one.sentence or secret in one.place.path for secret in secrets):
            place = replace(one.place, path="data_stores" if in_stores else "")
            shown.append(DocumentProblem(sentence=_(REDACTED_PROBLEM), place=place))
        else:
            shown.append(one)
    return tuple(shown)


class ManifestReader:
    """Parser of a manifest, field by field."""

    def __init__(self, problems: DocumentProblems) -> None:
        self.problems = problems
        self.grid: dict[str, Any] = {}
        self.title = ""
        self.explained: list[FieldExplanation] = []
        self.kept: list[str] = []
        self.secrets: set[str] = set()
        self.gpus: list[int] = [1]
        self.learners: list[int] = [1]
        self.words: list[str] = []

    def read(self, root: DocumentNode) -> None:
        if not isinstance(root.value, dict):
            self.problems.add(
                _("A manifest is an object with members such as name, gpus and framework."), "", root.offset
            )
            return
        members = root.value
        if "data_stores" in members:
            self.secrets = secret_values(plain_value(members["data_stores"]))
        readers: dict[str, Callable[[DocumentNode], None]] = {
            "name": self._name, "description": self._description, "version": self._version, "gpus": self._gpus,
            "cpus": self._cpus, "memory": self._memory, "learners": self._learners, "gpu_type": self._gpu_type,
            "data_stores": self._data_stores, "framework": self._framework, "evaluation_metrics": self._metrics,
            "workload": self._workload, "grid": self._grid,
        }  # fmt: skip
        for name, node in members.items():
            if name in readers:
                readers[name](node)
            else:
                self.problems.add(unknown_name_sentence(name, readers), member_path("", name), root.keys[name])
        self._count()
        if "framework" not in members:
            self.problems.add(_("The manifest has no 'framework'."), "framework", root.offset)
        self._finish_workload(root)

    def _finish_workload(self, root: DocumentNode) -> None:
        """Determine the workload: definitions of the catalogue, or else the command."""
        place = _node_at(root, "framework", "command")
        if "workload" not in self.grid and self.words:
            self.grid |= {"workload": ["command"], "command": self.words}
            self._explain(
                "framework.command", place, "used", _("The workload 'command': it runs unchanged on its host.")
            )
        elif "command" in self.grid.get("workload", []):
            self.grid["command"] = self.words
        elif self.words:
            self._explain("framework.command", place, "ignored", _("Replaced by the definitions of 'workload'."))
        elif "workload" not in self.grid and not self.problems.found:
            self.problems.add(
                _("Add 'workload' (a name of the catalogue), or 'command' in 'framework'."), "workload", 0
            )

    def _explain(self, path: str, node: DocumentNode, fate: FieldTreatment, sentence: str) -> None:
        line = self.problems.place(path, node.offset).line
        self.explained.append(FieldExplanation(field=path, line=line, fate=fate, sentence=sentence))

    def _accept(self, path: str, node: DocumentNode, kept: str, fate: FieldTreatment, sentence: str) -> None:
        """Keep a line of the manifest, and explain the treatment of its field."""
        self._keep(kept)
        self._explain(path, node, fate, sentence)

    def _keep(self, line: str) -> None:
        if any(secret in line for secret in self.secrets):
            self.problems.add(_("A value of 'data_stores' occurs elsewhere in the manifest: remove it there."), "", 0)
        self.kept.append(line)

    def _name(self, node: DocumentNode) -> None:
        if (text := self._text(node, "name")) is not None:
            self.title = text[:200]
            self._accept("name", node, f"name: {_inline(text)}", "used", _("The title of the sweep."))

    def _description(self, node: DocumentNode) -> None:
        if (text := self._text(node, "description")) is not None:
            kept = f"description: {_inline(text)}"
            self._accept("description", node, kept, "kept", _("Shown with the sweep's manifest."))

    def _version(self, node: DocumentNode) -> None:
        if not isinstance(node.value, str | int | float) or isinstance(node.value, bool):
            self.problems.add(_("'version' is a text or a number."), "version", node.offset)
            return
        kept = f"version: {_inline(str(node.value))}"
        self._accept("version", node, kept, "kept", _("Your version of the manifest; it has no effect."))

    def _gpus(self, node: DocumentNode) -> None:
        if values := self._numbers(node, "gpus", least=0, most=64):
            self.gpus = values
            sentence = _("Devices of a learner: with 'learners' it makes the axis 'count'.")
            if 0 in values:
                sentence = joined([sentence, _("0 is a run on the CPU alone.")])
            self._accept("gpus", node, f"gpus: {values}", "used", sentence)

    def _learners(self, node: DocumentNode) -> None:
        if values := self._numbers(node, "learners", least=1, most=64):
            self.learners = values
            sentence = _(
                "All learners run on one host here, a process a device: they multiply 'gpus' to the axis 'count'."
            )
            self._accept("learners", node, f"learners: {values}", "used", sentence)

    def _count(self) -> None:
        counts = sorted({gpus * learners for gpus in self.gpus for learners in self.learners if gpus})
        cpu = sorted(set(self.learners)) if 0 in self.gpus else []
        if cpu and counts:
            self.problems.add(
                _("0 and more GPUs cannot be one grid: runs on the CPU are a sweep of their own."), "gpus", 0
            )
        self.grid["count"] = counts or cpu
        if cpu:
            self.grid["placement"] = ["cpu"]
        if too_many := [one for one in self.grid["count"] if one > 64]:
            self.problems.add(
                _("'gpus' times 'learners' is {count}: a run has at most 64 devices.", count=too_many[-1]), "gpus", 0
            )

    def _cpus(self, node: DocumentNode) -> None:
        if values := self._numbers(node, "cpus", least=0, most=1024, fractions=True):
            self.grid["threads"] = sorted({max(1, int(one)) for one in values})
            threads = _comma_separated(self.grid["threads"])
            sentence = _(
                "The axis 'threads', CPU threads of a process: {threads}. No core is reserved.", threads=threads
            )
            self._accept("cpus", node, f"cpus: {values}", "used", sentence)

    def _memory(self, node: DocumentNode) -> None:
        value = node.value
        if (
            isinstance(value, bool)
            or not isinstance(value, str | int | float)
            or not MEMORY_PATTERN.fullmatch(str(value))
        ):
            self.problems.add(_("'memory' is a size such as 8Gb or 512MiB."), "memory", node.offset)
            return
        sentence = _("A run has the whole host: no share of its memory is reserved.")
        self._accept("memory", node, f"memory: {_inline(str(value))}", "ignored", sentence)

    def _gpu_type(self, node: DocumentNode) -> None:
        if values := self._texts_of(node, "gpu_type"):
            self.grid["accelerator"] = values
            kept = f"gpu_type: [{', '.join(map(_inline, values))}]"
            sentence = _("The axis 'accelerator': only devices of these models are taken.")
            self._accept("gpu_type", node, kept, "used", sentence)

    def _data_stores(self, node: DocumentNode) -> None:
        if not isinstance(node.value, list):
            self.problems.add(_("'data_stores' is a list."), "data_stores", node.offset)
            return
        kept = f"data_stores: []  # {len(node.value)} given; their credentials are not kept"
        sentence = _(
            "{count} of them. Runs generate their own data, of published sizes: no store is accessed, and "
            "neither names nor passwords are kept.",
            count=len(node.value),
        )
        self._accept("data_stores", node, kept, "ignored", sentence)

    def _framework(self, node: DocumentNode) -> None:
        if not isinstance(node.value, dict):
            self.problems.add(_("'framework' is an object with name, version and command."), "framework", node.offset)
            return
        for name in node.value:
            if name not in FRAMEWORK_FIELDS:
                self.problems.add(
                    unknown_name_sentence(name, FRAMEWORK_FIELDS), member_path("framework", name), node.keys[name]
                )
        self._keep("framework:")
        if "name" not in node.value:
            self.problems.add(_("'framework' has no 'name'."), "framework.name", node.offset)
        elif names := self._texts_of(node.value["name"], "framework.name"):
            self._framework_names(node.value["name"], names)
        for name in ("version", "image_tag"):
            if name in node.value:
                self._of_image(node.value[name], name)
        if "command" in node.value:
            self._command(node.value["command"])

    def _framework_names(self, node: DocumentNode, names: list[str]) -> None:
        self.grid["framework"] = [one.lower() for one in names]
        self._keep(f"  name: [{', '.join(map(_inline, names))}]")
        others = [one for one in names if one.lower() != "pytorch"]
        if len(others) == len(names):
            self.problems.add(
                _(
                    "{framework} does not run here: hosts run PyTorch alone. Change it to pytorch.",
                    framework=_comma_separated(others),
                ),
                "framework.name",
                node.offset,
            )
            return
        sentence = _("The axis 'framework'.")
        if others:
            left = _("{framework} does not run here: those points are left out.", framework=_comma_separated(others))
            sentence = joined([sentence, left])
        self._explain("framework.name", node, "used", sentence)

    def _of_image(self, node: DocumentNode, name: str) -> None:
        if isinstance(node.value, dict | list) or node.value is None:
            self.problems.add(_("'{path}' is a text.", path=name), f"framework.{name}", node.offset)
            return
        kept = f"  {name}: {_inline(str(node.value))}"
        sentence = _("A run has the framework that is installed on its host; each run records which.")
        self._accept(f"framework.{name}", node, kept, "ignored", sentence)

    def _command(self, node: DocumentNode) -> None:
        text = self._text(node, "framework.command")
        if text is None:
            return
        try:
            words = shlex.split(text)
        except ValueError:
            self.problems.add(
                _("The command has a quotation mark without its other half."), "framework.command", node.offset
            )
            return
        if any(secret in text for secret in self.secrets):
            # It would be stored with each run, and be visible in the process list of the host.
            self.problems.add(
                _("The command contains a value of 'data_stores', which others would see. Remove it."),
                "framework.command",
                node.offset,
            )
            return
        self.words = words
        self._keep(f"  command: {_inline(text)}")

    def _metrics(self, node: DocumentNode) -> None:
        if not isinstance(node.value, dict):
            self.problems.add(_("'evaluation_metrics' is an object."), "evaluation_metrics", node.offset)
            return
        sentence = _("Step times, loss and telemetry are recorded of each run by themselves, with units and sources.")
        self._accept("evaluation_metrics", node, "evaluation_metrics: {}  # not kept", "ignored", sentence)

    def _workload(self, node: DocumentNode) -> None:
        values = self._texts_of(node, "workload")
        if not values:
            return
        if unknown := [one for one in values if one not in CATALOGUE]:
            self.problems.add(unknown_name_sentence(unknown[0], list(CATALOGUE)), "workload", node.offset)
            return
        self.grid["workload"] = values
        kept = f"workload: [{', '.join(values)}]"
        self._accept("workload", node, kept, "used", _("The axis 'workload': a definition of the catalogue."))

    def _grid(self, node: DocumentNode) -> None:
        plain = plain_value(node)
        if not isinstance(plain, dict):
            self.problems.add(_("'grid' is an object: axes and their lists of values."), "grid", node.offset)
            return
        known = [name for name in SweepGrid.__struct_fields__ if name not in {*MANIFEST_ONLY_FIELDS, "parts"}]
        self._keep("grid:")
        for name, value in plain.items():
            at = node.value[name] if isinstance(node.value, dict) else node
            if name in MANIFEST_ONLY_FIELDS:
                self.problems.add(
                    _("'{name}' has a field of its own in a manifest.", name=name), member_path("grid", name), at.offset
                )
            elif name not in known:
                self.problems.add(unknown_name_sentence(name, known), member_path("grid", name), at.offset)
            else:
                self._grid_member(name, value, at)

    def _grid_member(self, name: str, value: Any, node: DocumentNode) -> None:
        several = name not in SCALAR_FIELDS
        value = value if isinstance(value, list) or not several else [value]
        try:
            SweepGrid.from_json({name: value})
        except Invalid as error:
            self.problems.add(next(iter(error.details["errors"].values())), member_path("grid", name), node.offset)
            return
        self.grid[name] = value
        kept = f"  {name}: {_inline(value)}"
        self._accept(member_path("grid", name), node, kept, "used", _("As in the form of a sweep."))

    def _text(self, node: DocumentNode, path: str) -> str | None:
        if not isinstance(node.value, str) or not node.value.strip():
            self.problems.add(_("'{path}' is a text.", path=path), path, node.offset)
            return None
        if len(node.value) > MAX_TEXT_LENGTH:
            self.problems.add(_("'{path}' has more than 4,096 characters.", path=path), path, node.offset)
            return None
        return node.value

    def _texts_of(self, node: DocumentNode, path: str) -> list[str]:
        items = node.value if isinstance(node.value, list) else [node]
        texts = [text for one in items if (text := self._text(one, path)) is not None]
        if not items:
            self.problems.add(_("'{path}' has no value.", path=path), path, node.offset)
        return list(dict.fromkeys(texts)) if len(texts) == len(items) else []

    def _numbers(self, node: DocumentNode, path: str, *, least: int, most: int, fractions: bool = False) -> list[Any]:
        items = node.value if isinstance(node.value, list) else [node]
        found: list[Any] = []
        for one in items:
            value = one.value
            wrong = isinstance(value, bool) or not isinstance(value, int | float)
            if wrong or (not fractions and not isinstance(value, int)) or not least <= value <= most:  # type: ignore[operator]
                named = {"path": path, "least": least, "most": most}
                sentence = (
                    _("'{path}' is a number from {least} to {most}, or a list of them.", **named)
                    if fractions
                    else _("'{path}' is a whole number from {least} to {most}, or a list of them.", **named)
                )
                self.problems.add(sentence, path, one.offset)
                return []
            found.append(value)
        if not found:
            self.problems.add(_("'{path}' has no value.", path=path), path, node.offset)
        return list(dict.fromkeys(found))


def secret_values(plain: Any, *, is_connection: bool = False) -> set[str]:
    """Return the values of data stores that may be secret, if they are long enough to be distinctive."""
    if isinstance(plain, list):
        return set[str]().union(*(secret_values(one, is_connection=is_connection) for one in plain))
    found: set[str] = set()
    for name, value in plain.items() if isinstance(plain, dict) else ():
        if isinstance(value, dict | list):
            found |= secret_values(value, is_connection=is_connection or name == "connection")
        elif (is_connection and name not in PUBLIC_MEMBERS) or SECRET_NAMES.search(name):
            found.add("" if value is None else str(value))
    return {one for one in found if len(one) >= MIN_SECRET_LENGTH}


def plain_value(node: DocumentNode) -> Any:
    """Return a value without its places."""
    if isinstance(node.value, dict):
        return {name: plain_value(one) for name, one in node.value.items()}
    if isinstance(node.value, list):
        return [plain_value(one) for one in node.value]
    return node.value


def _node_at(root: DocumentNode, *path: str) -> DocumentNode:
    """Return the node at a path, or its nearest existing ancestor."""
    node = root
    for name in path:
        if not isinstance(node.value, dict) or name not in node.value:
            return node
        node = node.value[name]
    return node


def _inline(value: Any) -> str:
    """Return a value in one line, as YAML and JSON both read it."""
    return json.dumps(value, ensure_ascii=False)


def _comma_separated(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
