"""From the words of a request to the specification that predictions are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from benchmarks.deploy.members import Book
from benchmarks.deploy.secrets import pointed
from benchmarks.deploy.wanted import Wanted
from benchmarks.workloads.catalogue import CATALOGUE, spec_of, workload_of
from benchmarks.workloads.shapes import Preset
from benchmarks.workloads.specs import SpecError
from hostwire.training import Spec

# Words in names of programs and tags, the longer ones first, with the workload that they are taken for.
NAMED: Final = (
    ("mobilenetv2", "mobilenet_v2"), ("mobilenet", "mobilenet_v2"), ("resnet50", "resnet50"), ("resnet", "resnet50"),
    ("yolov5", "yolov5l"), ("bertlarge", "bert_large"), ("bertbase", "bert_base"), ("bert", "bert_large"),
    ("alexnet", "alexnet"), ("vgg16", "vgg16"), ("vgg", "vgg16"), ("mnist", "mnist_cnn"),
)  # fmt: skip


def guessed_workload(texts: Iterable[str]) -> str:
    """Return the workload that names tell of, '' where they tell of none."""
    plain = re.sub(r"[^a-z0-9]+", "", " ".join(texts).lower())
    return next((workload for word, workload in NAMED if word in plain), "")


def spec_from(name: str, given: Mapping[str, Any], wanted: Wanted, book: Book, pointer: str) -> Spec | None:
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
            book.note("/".join((pointer, *map(pointed, where.split(".")))), "refused", sentence)
        return None
