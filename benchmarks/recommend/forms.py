"""The form of a request: it is in the query string, so that an answer can be shared; empty fields do not constrain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.http import QueryDict

from benchmarks.recommend.model_names import pool_models
from benchmarks.recommend.pool import RecommendationPool
from benchmarks.recommend.request import DEFAULT_SAMPLES, MAX_BATCHES, OBJECTIVE_LABELS, training_workloads
from benchmarks.workloads.catalogue import CATALOGUE
from core.errors import Invalid
from core.language import _, gettext_noop

# Names of the form fields, with their places in a request and their parsers.
NUMBER_FIELDS: Final = {
    "samples": ("samples",), "epochs": ("epochs",), "global_batch": ("global_batch",),
    "least": ("limits", "least_devices"), "most": ("limits", "most_devices"), "hours": ("limits", "most_hours"),
    "kwh": ("limits", "most_kwh"), "watts": ("limits", "most_watts"),
}  # fmt: skip
INTEGER_FIELDS: Final = ("epochs", "global_batch", "least", "most")
CHECKBOX_FIELDS: Final = ("keep_attached", "same_mode", "one_model", "one_place")
CHOICE_FIELDS: Final = {
    "precision": ("precisions", (("fp32", "FP32"), ("fp16", "FP16"), ("bf16", "BF16"))),
    "strategy": ("strategies", (("dp", "DP"), ("ddp", "DDP"), ("sharded", gettext_noop("Sharded")))),
}
GPU_LOCATION_CHOICES: Final = (
    ("any", gettext_noop("any that are available")),
    ("local", gettext_noop("only the host's own")),
    ("chassis", gettext_noop("only those of chassis")),
)
STORAGE_CHOICES: Final = (
    ("local", gettext_noop("the host's own drive")),
    ("any", gettext_noop("any drive, also of a chassis")),
    ("chassis", gettext_noop("a drive of a chassis")),
)
MAX_VALUE_LENGTH: Final = 100
# Labels of fields in the list of errors, where they differ from the label beside the field.
FIELD_LABELS: Final = {
    "workload": gettext_noop("Workload"),
    "preset": gettext_noop("Preset"),
    "objective": gettext_noop("For the"),
    "samples": gettext_noop("Work"),
    "epochs": gettext_noop("Epochs"),
    "precision": gettext_noop("Precision"),
    "strategy": gettext_noop("Strategy"),
    "batch": gettext_noop("Batches"),
    "global_batch": gettext_noop("One batch over all GPUs"),
    "least": gettext_noop("At least GPUs"),
    "most": gettext_noop("At most GPUs"),
    "hours": gettext_noop("At most hours"),
    "kwh": gettext_noop("At most kWh"),
    "watts": gettext_noop("At most W"),
    "gpus": "GPUs",
    "storage": gettext_noop("Data on"),
    "host": gettext_noop("Only hosts"),
    "model": gettext_noop("Only models"),
}


@dataclass
class RecommendationForm:
    """The submitted values, and their errors by field name."""

    given: QueryDict
    pool: RecommendationPool
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def is_submitted(self) -> bool:
        return "workload" in self.given

    def text(self, name: str, usual: str = "") -> str:
        return self.given.get(name, usual).strip()[:MAX_VALUE_LENGTH]

    def plain(self) -> dict[str, Any]:
        """Return the input of `parse_recommendation_request`; raises Invalid for a malformed number."""
        plain: dict[str, Any] = {
            "workload": self.text("workload"), "preset": self.text("preset", "paper") or "paper",
            "objective": self.text("objective", "time") or "time",
            "limits": {"storage": self.text("storage", "local"), "gpus": self.text("gpus", "any"),
                       **{name: True for name in CHECKBOX_FIELDS if self.given.get(name)}},
        }  # fmt: skip
        for name, where in NUMBER_FIELDS.items():
            if typed := self.text(name):
                place = plain["limits"] if where[0] == "limits" else plain
                place[where[-1]] = self._number(name, typed)
        for name, (member, __) in CHOICE_FIELDS.items():
            plain[member] = self.given.getlist(name)[:8]
        plain["batches"] = [
            self._number("batch", one, whole=True) for one in self.text("batch").replace(",", " ").split()
        ]
        if len(plain["batches"]) > MAX_BATCHES:
            self.errors["batch"] = _("At most {count} batches are compared at once.", count=MAX_BATCHES)
        if hosts := self.given.getlist("host"):
            plain["limits"]["host_ids"] = [self._number("host", one, whole=True) for one in hosts[:50]]
        if models := self.given.getlist("model"):
            plain["limits"]["models"] = [one[:MAX_VALUE_LENGTH] for one in models[:50]]
        if self.errors:
            raise Invalid(_("Some fields of the form are invalid."), errors=self.errors)
        return plain

    def _number(self, name: str, typed: str, *, whole: bool = False) -> float | int:
        try:
            value = float(typed)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or ((whole or name in INTEGER_FIELDS) and value != int(value)):
            self.errors[name] = (
                _("‘{value}’ is not a whole number.", value=typed[:20])
                if whole or name in INTEGER_FIELDS
                else _("‘{value}’ is not a number.", value=typed[:20])
            )
            return 0
        return int(value) if whole or name in INTEGER_FIELDS else value

    def add_errors(self, error: Invalid | Any) -> None:
        """Store errors by the names of the form."""
        found: Mapping[str, str] = error.details.get("errors") or {}
        names = {"/".join(where): name for name, where in NUMBER_FIELDS.items()}
        names |= {member: name for name, (member, __) in CHOICE_FIELDS.items()} | {
            "batches": "batch",
            "limits/host_ids": "host",
            "limits/models": "model",
        }
        for where, words in found.items():
            bare = where.replace(".", "/").split("[", maxsplit=1)[0]
            self.errors.setdefault(names.get(bare, bare), words)
        if not found:
            self.errors.setdefault("", error.sentence)

    def context(self) -> dict[str, Any]:
        workload = self.text("workload")
        chosen = CATALOGUE.get(workload)
        numbers = [name for name, where in NUMBER_FIELDS.items() if where[0] == "limits"]
        constraints = (*CHECKBOX_FIELDS, *numbers, "host", "model")
        return {
            "form": self,
            "wrong": [
                (name, _(FIELD_LABELS[name]) if name in FIELD_LABELS else "", words)
                for name, words in self.errors.items()
            ],
            "workloads": [(name, _(CATALOGUE[name].title), name == workload) for name in training_workloads()],
            "presets": [(one, one == self.text("preset", "paper")) for one in ("paper", "custom", "tiny")],
            "objectives": [
                (name, _(words), name == self.text("objective", "time")) for name, words in OBJECTIVE_LABELS.items()
            ],
            "values": {
                **{name: self.text(name) for name in NUMBER_FIELDS},
                "batch": self.text("batch"),
                "samples": self.text("samples") or f"{DEFAULT_SAMPLES:.0f}",
            },
            "unit": _(chosen.samples) if chosen is not None else _("samples"),
            "precisions": self._ticks("precision"),
            "strategies": self._ticks("strategy"),
            "checks": [
                (name, words, bool(self.given.get(name)))
                for name, words in (
                    ("keep_attached", _("What is attached stays where it is")),
                    ("same_mode", _("No drawer changes its mode")),
                    ("one_model", _("GPUs of one model")),
                    ("one_place", _("All GPUs at one place")),
                )
            ],
            "hosts": [
                (one.id, one.name, str(one.id) in self.given.getlist("host")) for one in self.pool.hosts.values()
            ],
            "models": [(one, one in self.given.getlist("model")) for one in pool_models(self.pool)],
            "places": [(name, _(words), name == self.text("gpus", "any")) for name, words in GPU_LOCATION_CHOICES],
            "storages": [(name, _(words), name == self.text("storage", "local")) for name, words in STORAGE_CHOICES],
            "has_constraints": any(self.given.get(name) for name in constraints),
        }

    def _ticks(self, name: str) -> list[tuple[str, str, bool]]:
        return [(value, _(words), value in self.given.getlist(name)) for value, words in CHOICE_FIELDS[name][1]]
