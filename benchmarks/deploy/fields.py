"""The fields of a job on the page: a request in the short form without JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.deploy.request import SCHEDULERS
from benchmarks.workloads.catalogue import CATALOGUE

SCHEDULER_LABELS: Final = {"slurm": "Slurm", "torque": "Torque", "bash": "bash, no queue"}


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
    ("command", "Command", "{batch}, {precision}, {loader_workers} and {devices} in it are filled in.", True),
    ("scheduler", "Scheduler", "", True),
    ("workload", "Workload", "For predictions; guessed from the command if empty.", True),
    ("host", "Host", "For predictions: with what is attached to it now.", True),
    ("gpus", "GPUs", "A node.", True),
    ("time", "Time limit", "Such as 12:00:00.", True),
    ("name", "Name", "", False),
    ("nodes", "Nodes", "", False),
    ("cores", "Cores", "A node.", False),
    ("memory", "Memory", "A node, such as 64G.", False),
    ("queue", "Queue", "", False),
    ("account", "Account", "", False),
    ("output", "Output file", "", False),
    ("data", "Data", "A folder, mounted at the same path.", False),
    ("image", "Image", "The container's base.", False),
    ("framework_version", "PyTorch version", "Such as 2.4.0.", False),
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
        "scheduler": [(one, SCHEDULER_LABELS[one]) for one in SCHEDULERS],
        "workload": [("", "guessed"), *((one.name, one.title) for one in CATALOGUE.values() if one.is_training)],
        "host": [("", "none"), *((name, name) for name in hosts)],
    }
    return tuple(
        JobField(
            name=name, label=label, help=help_, value=values.get(name, ""), error=errors.get(f"/{name}", ""),
            choices=choices.get(name, ()), is_basic=is_basic,
        )
        for name, label, help_, is_basic in JOB_FIELDS
    )  # fmt: skip


def request_of_fields(given: Mapping[str, str]) -> str:
    """Return what was typed into the fields as a request in the short form."""
    return json.dumps({name: value for name, *_ in JOB_FIELDS if (value := given.get(name, "").strip())}, indent=2)
