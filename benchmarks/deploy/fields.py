"""The fields of a job on the page: a request in the short form without JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.deploy.bases import ARCHITECTURES
from benchmarks.deploy.request import SCHEDULERS
from benchmarks.workloads.catalogue import CATALOGUE
from core.language import _, gettext_noop

SCHEDULER_LABELS: Final = {"slurm": "Slurm", "torque": "Torque", "bash": gettext_noop("bash, no queue")}


@dataclass(frozen=True, kw_only=True)
class JobField:
    """A field of a job; with `choices`, pairs of value and label, one of them."""

    name: str
    label: str
    help: str = ""
    value: str = ""
    error: str = ""
    choices: Sequence[tuple[str, str]] = ()
    is_basic: bool = True


# Name, label, help, and whether it is shown at once.
JOB_FIELDS: Final = (
    (
        "command",
        gettext_noop("Command"),
        gettext_noop(
            "{batch}, {precision}, {loader_workers} and {devices} in it are filled in. If empty, this site’s trainer "
            "runs the workload."
        ),
        True,
    ),
    ("scheduler", gettext_noop("Scheduler"), "", True),
    ("workload", gettext_noop("Workload"), gettext_noop("For predictions; guessed from the command if empty."), True),
    ("host", gettext_noop("Host"), gettext_noop("For predictions: with what is attached to it now."), True),
    ("gpus", "GPUs", gettext_noop("A node."), True),
    ("time", gettext_noop("Time limit"), gettext_noop("Such as 12:00:00."), True),
    ("name", gettext_noop("Name"), "", False),
    ("nodes", gettext_noop("Nodes"), "", False),
    ("cores", gettext_noop("Cores"), gettext_noop("A node."), False),
    ("memory", gettext_noop("Memory"), gettext_noop("A node, such as 64G."), False),
    ("queue", gettext_noop("Queue"), "", False),
    ("account", gettext_noop("Account"), "", False),
    ("output", gettext_noop("Output file"), "", False),
    ("data", gettext_noop("Data"), gettext_noop("A folder, mounted at the same path."), False),
    ("image", gettext_noop("Image"), gettext_noop("The container's base."), False),
    ("framework_version", gettext_noop("PyTorch version"), gettext_noop("Such as 2.4.0."), False),
    ("tuning", gettext_noop("Tuning"), gettext_noop("The id of the sweep whose best setting is taken."), False),
    ("architecture", gettext_noop("Architecture"), gettext_noop("Of the container."), False),
    ("driver", gettext_noop("NVIDIA driver"), gettext_noop("Of the host, such as 535.161.08."), False),
)


def job_fields(request: str, errors: Mapping[str, str], hosts: Iterable[str]) -> tuple[JobField, ...]:
    """Return the fields with the values of a request as JSON; without values where it is none in the short form."""
    try:
        plain = json.loads(request or "{}")
    except ValueError:
        plain = {}
    named = plain.items() if isinstance(plain, dict) else ()
    values = {name: str(value) for name, value in named if isinstance(value, str | int)}
    choices: dict[str, list[tuple[str, str]]] = {
        "scheduler": [(one, _(SCHEDULER_LABELS[one])) for one in SCHEDULERS],
        "workload": [("", _("guessed")), *((one.name, one.title) for one in CATALOGUE.values() if one.is_training)],
        "architecture": [("", _("as the host")), *((one, one) for one in ARCHITECTURES)],
        "host": [("", _("none")), *((name, name) for name in hosts)],
    }
    return tuple(
        JobField(
            name=name, label=_(label), help=_(help_) if help_ else "", value=values.get(name, ""),
            error=errors.get(f"/{name}", ""), choices=choices.get(name, ()), is_basic=is_basic,
        )
        for name, label, help_, is_basic in JOB_FIELDS
    )  # fmt: skip


def request_of_fields(given: Mapping[str, str]) -> str:
    """Return what was typed into the fields as a request in the short form."""
    return json.dumps({name: value for name, *_ in JOB_FIELDS if (value := given.get(name, "").strip())}, indent=2)
