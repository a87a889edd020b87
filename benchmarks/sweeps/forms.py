"""The form of a new sweep: a grid from form fields or query parameters, and the axes of the form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.http import QueryDict

from benchmarks.sweeps.grid import AXIS_LABELS, EARLY_OBJECTIVES, SweepGrid
from benchmarks.sweeps.placement import (
    CPU_PLACEMENT,
    DRAWER_PREFIX,
    HOST_STORAGE,
    HYBRID_PLACEMENT,
    LOCAL_PLACEMENT,
    NVME_PREFIX,
    OWN_DRIVE_STORAGE,
    SPREAD_PLACEMENT,
    SweepPool,
    placement_label,
)
from benchmarks.workloads.catalogue import CATALOGUE
from core.errors import Invalid
from core.language import _, gettext_noop, join_words, joined

MAX_LIST_LENGTH: Final = 400
NUMERIC_AXES: Final = ("count", "batch", "threads", "loader_workers", "cores", "accumulation")
TEXT_AXES: Final = ("framework", "workload", "placement", "accelerator", "storage", "precision", "gradient", "strategy")
USUAL_VALUES: Final = {
    "count": (1, 2, 4, 8, 16, 32), "batch": (32, 64, 128, 256, 512), "threads": (2, 4, 8, 16, 32, 64),
    "loader_workers": (0, 2, 4, 8), "cores": (1, 2, 4, 8, 16, 32), "accumulation": (1, 2, 4),
    "precision": ("fp32", "fp16", "bf16"),
    "gradient": ("fp32", "fp16", "bf16"), "strategy": ("single", "dp", "ddp", "sharded"),
}  # fmt: skip
AXIS_HELP: Final = {
    "batch": gettext_noop("None chosen: the preset’s."),
    "count": gettext_noop("Accelerators of a run."),
    "threads": gettext_noop("Of each process. None chosen: the library’s own choice."),
    "cores": gettext_noop("Of all processes and loaders of a run together. None chosen: all."),
    "strategy": gettext_noop("None chosen: single on one device, ddp on more."),
    "accelerator": gettext_noop("None chosen: any."),
}
MORE_SUFFIX: Final = "_more"


@dataclass(frozen=True, kw_only=True)
class AxisChoice:
    """A value of an axis, as a checkbox."""

    value: str
    words: str
    chosen: bool
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class FormAxis:
    """An axis of the form: its values, the text of further ones, and its error."""

    name: str
    words: str
    choices: tuple[AxisChoice, ...]
    more: str | None = None  # None: there is no field for further values
    help: str = ""
    error: str = ""


def grid_from_form(given: QueryDict) -> SweepGrid:
    """Return the grid of a form or query parameters; raises Invalid with a sentence for each wrong field."""
    errors: dict[str, str] = {}
    plain: dict[str, Any] = {}
    for axis in (*NUMERIC_AXES, "host"):
        plain[axis] = _parse_numbers(given, axis, errors)
    for axis in TEXT_AXES:
        plain[axis] = given.getlist(axis)
    plain["compile"] = [one == "yes" for one in given.getlist("compile")]
    for name in ("batch_of", "preset", "executor"):
        if given.get(name):
            plain[name] = given[name]
    for name in ("repeats", "at_once"):
        if given.get(name):
            plain[name] = _parse_number(str(given[name]), name, errors)
    if given.get("limit_minutes"):
        plain["limit_seconds"] = 60.0 * _parse_number(str(given["limit_minutes"]), "limit_minutes", errors)
    plain["same"] = {
        name: _parse_number(str(given[name]), name, errors) for name in ("steps", "warmup", "seed") if given.get(name)
    }
    if given.get("early"):
        plain["early"] = {
            "objectives": given.getlist("objectives") or ["time"], "predicted": bool(given.get("early_predicted")),
        }  # fmt: skip
    if errors:
        raise Invalid(joined(errors.values()), errors=errors)
    return SweepGrid.from_json({name: value for name, value in plain.items() if value not in ([], None)})


def initial_form_data(pool: SweepPool) -> QueryDict:
    """Return the initial values: one workload over devices and batches, simulated, on the first host."""
    given = QueryDict(mutable=True)
    given["workload"] = "resnet50"
    given.setlist("count", ["1", "2", "4"])
    given.setlist("batch", ["32", "64", "128"])
    given["framework"] = "pytorch"
    ready = [host for host in pool.hosts if host.executors] or list(pool.hosts)
    if ready:
        given["host"] = str(ready[0].id)
        given["executor"] = "simulated" if "simulated" in ready[0].executors else "torch"
        given["placement"] = (
            SPREAD_PLACEMENT
            if pool.drawers_of(ready[0].id)
            else LOCAL_PLACEMENT
            if ready[0].local_gpus
            else CPU_PLACEMENT
        )
    return given


def form_axes(given: QueryDict, pool: SweepPool, errors: Mapping[str, str]) -> list[FormAxis]:
    """Return the axes of the form with their selected values."""

    def usual(axis: str) -> list[tuple[str, str, str]]:
        return [(str(value), str(value), "") for value in USUAL_VALUES[axis]]

    # In the order of the form: value, label and explanation of each choice.
    choices: dict[str, Sequence[tuple[str, str, str]]] = {
        "workload": [(one.name, _(one.title), "") for one in CATALOGUE.values() if one.family != "command"],
        "host": [
            (str(one.id), one.name, join_words(list(one.executors)) if one.executors else _("no agent"))
            for one in pool.hosts
        ],
        "placement": [
            (one, placement_label(pool, one), "")
            for one in (LOCAL_PLACEMENT, SPREAD_PLACEMENT, HYBRID_PLACEMENT, CPU_PLACEMENT)
        ]
        + [(f"{DRAWER_PREFIX}{pk}", name, "") for pk, name in sorted(pool.drawers.items(), key=lambda item: item[1])],
        "count": usual("count"),
        "batch": usual("batch"),
        "accelerator": [(one, one, "") for one in pool.models],
        "storage": [(HOST_STORAGE, _("the host’s storage"), ""), *_own_drive_choices(pool)]
        + [(f"{NVME_PREFIX}{one.id}", one.name, one.where) for one in pool.devices if one.is_storage],
        "strategy": usual("strategy"),
        "precision": usual("precision"),
        "gradient": usual("gradient"),
        "compile": [("no", _("no"), ""), ("yes", _("yes"), "")],
        "accumulation": usual("accumulation"),
        "threads": usual("threads"),
        "loader_workers": usual("loader_workers"),
        "cores": usual("cores"),
    }
    return [_form_axis(axis, values, given, errors) for axis, values in choices.items()]


def objective_choices(given: QueryDict) -> list[AxisChoice]:
    """Return the objectives of early stopping with the selected ones."""
    chosen = given.getlist("objectives") or ["time", "devices"]
    return [AxisChoice(value=name, words=_(words), chosen=name in chosen) for name, words in EARLY_OBJECTIVES.items()]


def _form_axis(
    axis: str, values: Sequence[tuple[str, str, str]], given: QueryDict, errors: Mapping[str, str]
) -> FormAxis:
    ticked = given.getlist(axis) or ([HOST_STORAGE] if axis == "storage" else [])
    more = None
    if axis in NUMERIC_AXES:
        usual = {value for value, *_rest in values}
        typed = [one for one in ticked if one not in usual] + given.getlist(axis + MORE_SUFFIX)[-1:]
        more = ", ".join(filter(None, typed))[:MAX_LIST_LENGTH]
    return FormAxis(
        name=axis,
        words=_(AXIS_LABELS[axis]),
        choices=tuple(
            AxisChoice(value=value, words=words, chosen=value in ticked, about=about) for value, words, about in values
        ),
        more=more,
        help=_(AXIS_HELP.get(axis, "")),
        error=errors.get(axis, ""),
    )


def _own_drive_choices(pool: SweepPool) -> list[tuple[str, str, str]]:
    """Return the choice of a host's own drive, with the models, if any host has one."""
    models = sorted({one.own_drive for one in pool.hosts} - {""})
    return [(OWN_DRIVE_STORAGE, _("the host’s own NVMe drive"), ", ".join(models))] if models else []


def _parse_numbers(given: QueryDict, axis: str, errors: dict[str, str]) -> list[int]:
    typed = re.split(r"[\s,;]+", given.get(axis + MORE_SUFFIX, "")[:MAX_LIST_LENGTH].strip())
    found = [_parse_number(text, axis, errors) for text in (*given.getlist(axis), *typed) if text]
    return sorted(set(found)) if axis != "host" else list(dict.fromkeys(found))


def _parse_number(text: str, name: str, errors: dict[str, str]) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        errors[name] = _("{axis}: '{text}' is no whole number.", axis=_(AXIS_LABELS.get(name, name)), text=text[:20])
        return 0
    return int(text)
