"""Reasons from the parts of time and energy: composing, the counted power, and what more GPUs would save.

The amounts are medians over draws, by their names in `job_parts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from benchmarks.recommend.candidates import Array, JobJoules, JobSeconds, RunCandidate, StepSeconds
from benchmarks.recommend.explanation import format_duration, format_energy, format_share, format_short
from benchmarks.recommend.request import RecommendationRequest
from benchmarks.recommend.times import UsualTime
from benchmarks.runs.topology import strategy_label
from core.language import _, _n, gettext_noop, joined
from fabric.plans.rules import StepKind
from hostwire.training import Spec

TIME_PARTS: Final = {
    "compose": gettext_noop("compose"),
    "start": gettext_noop("start"),
    "train": gettext_noop("train"),
    "give_back": gettext_noop("give back"),
}
ENERGY_PARTS: Final = {"gpus": "GPUs", "host": gettext_noop("host"), "chassis": gettext_noop("chassis")}
STEP_LABELS: Final[Mapping[StepKind, str]] = {
    "attach": gettext_noop("Attaching a device"),
    "detach": gettext_noop("Detaching a device"),
    "move": gettext_noop("Moving a device"),
    "mode": gettext_noop("Changing a mode"),
}
MIN_SAVING: Final = 0.01  # of the time to the answer; what saves less is not compared in words


def variant_label(spec: Spec) -> str:
    """Return the software options of a specification as text: 'FP16, DDP, batch 64 a GPU, 4 loaders'."""
    parts = [spec.precision.upper()]
    if spec.devices > 1:
        parts.append(_(strategy_label(spec.strategy)))
    parts.append(_("batch {size} a GPU", size=spec.batch))
    if spec.accumulation > 1:
        parts.append(_("{count} batches a step", count=spec.accumulation))
    if spec.compile:
        parts.append(_("compiled"))
    parts.append(
        _n("{count} loader", "{count} loaders", spec.loader_workers) if spec.loader_workers else _("no loaders")
    )
    if spec.cores:
        parts.append(_n("{count} core", "{count} cores", spec.cores))
    return joined(parts, ", ")


def job_parts(
    candidates: Sequence[RunCandidate], request: RecommendationRequest, seconds: StepSeconds
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the parts of time, s, and of energy, J, by draw and candidate."""
    spent, joules = JobSeconds.of(candidates, request, seconds), JobJoules.of(candidates, request, seconds)
    return (
        {name: getattr(spent, name) for name in TIME_PARTS},
        {name: getattr(joules, name) for name in ENERGY_PARTS},
    )


def cost_reasons(
    candidate: RunCandidate, request: RecommendationRequest, seconds: Mapping[str, float], joules: Mapping[str, float]
) -> tuple[str, str]:
    """Return the sentences on the parts of the time and of the energy."""
    count = request.steps(candidate.spec)
    steps = _n(
        "{count:,} whole step {time}", "{count:,} whole steps {time}", count, time=format_duration(seconds["train"])
    )
    start, times = format_duration(seconds["start"]), candidate.times
    if not times.compose:
        spent = _("Nothing is moved; starting takes {start}, {steps}.", start=start, steps=steps)
    else:
        spent = _(
            "Composing takes {compose}, starting {start}, {steps}, giving back {give_back}.",
            compose=format_duration(seconds["compose"]),
            start=start,
            steps=steps,
            give_back=format_duration(seconds["give_back"]),
        )
    drawers = sum(bool(option.steps) for __, option in candidate.layout.choices)
    if drawers > 1:
        spent = joined([spent, _("{count} drawers are composed at the same time.", count=drawers)])
    sources = [
        *(_source_sentence(_(STEP_LABELS[kind]), one) for kind, one in times.used.items() if kind in STEP_LABELS),
        _source_sentence(_("A start"), times.start),
    ]
    return joined([spent, *sources]), _energy_sentence(candidate, joules)


def _source_sentence(what: str, usual: UsualTime) -> str:
    time = format_duration(usual.seconds)
    if not usual.count:
        return _("{what} takes {time}: assumed, as there is no history here.", what=what, time=time)
    # No count: it would tell what others did.
    return _(
        "{what} takes {time} here (90 %: {low} to {high}).",
        what=what, time=time, low=format_duration(usual.low), high=format_duration(usual.high),
    )  # fmt: skip


def _energy_sentence(candidate: RunCandidate, joules: Mapping[str, float]) -> str:
    power, total = candidate.power, sum(joules.values())
    host = _(
        "the host {share} ({idle} W at rest and {load} W more while it trains, assumed)",
        share=format_share(joules["host"] / total),
        idle=format_short(power.host_idle),
        load=format_short(power.host_load),
    )
    gpus = format_share(joules["gpus"] / total)
    if not power.slots:
        return _(
            "Of {total} the GPUs take {gpus} (by data sheets), {host}.",
            total=format_energy(total), gpus=gpus, host=host,
        )  # fmt: skip
    source = _("measured") if power.is_measured else _("assumed")
    chassis = _n(
        "the share of {count} slot in the chassis’ own power, {watts} W, {share} ({source})",
        "the share of {count} slots in the chassis’ own power, {watts} W, {share} ({source})",
        power.slots,
        watts=format_short(power.chassis),
        share=format_share(joules["chassis"] / total),
        source=source,
    )
    return _(
        "Of {total} the GPUs take {gpus} (by data sheets), {host}, {chassis}.",
        total=format_energy(total), gpus=gpus, host=host, chassis=chassis,
    )  # fmt: skip


def saving_sentence(
    candidates: Sequence[RunCandidate], request: RecommendationRequest, seconds: StepSeconds, best: int
) -> str:
    """Return why the candidate that trains fastest is not the first one, '' unless moving its devices is the reason."""
    spent = JobSeconds.of(candidates, request, seconds)
    train, around, total = (np.median(one, axis=0) for one in (spent.train, spent.around, spent.total))
    other = int(np.argmin(train))
    moved = candidates[other].layout.changes[1] - candidates[best].layout.changes[1]
    saved = float(train[best] - train[other])
    if moved <= 0 or total[other] <= total[best] or saved < MIN_SAVING * total[best]:
        return ""
    return _n(
        "With {gpus} GPUs it would train {saved} faster, but {count} more operation takes {taken}.",
        "With {gpus} GPUs it would train {saved} faster, but {count} more operations take {taken}.",
        moved,
        gpus=candidates[other].layout.count,
        saved=format_duration(saved),
        taken=format_duration(float(around[other] - around[best])),
    )
