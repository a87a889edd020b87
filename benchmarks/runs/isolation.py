"""What else used the host, the uplinks and the switches of a run while it was on its host."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from benchmarks.runs.models import Run
from core.language import _, gettext_noop, join_words

MIN_SECONDS: Final = 1.0  # less is within the accuracy of the times
SharedResource = Literal["host", "uplink", "switch"]
RESOURCE_LABELS: Final[dict[str, str]] = {
    "host": gettext_noop("the same host"),
    "uplink": gettext_noop("the same uplink"),
    "switch": gettext_noop("the same switch"),
}


class Overlap(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What used resources of a run for some seconds: another run, or programs that are no run.

    `run` is the id of a run, '' in an imported record. Of programs there are the traffic of other devices below its
    uplinks, and the work of GPUs of its host.
    """

    by: Literal["run", "traffic", "gpus"] = "run"
    shared: Annotated[tuple[SharedResource, ...], msgspec.Meta(max_length=3)]
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    run: Annotated[str, msgspec.Meta(max_length=36)] = ""


class ShownOverlap(msgspec.Struct, frozen=True, kw_only=True):
    """An overlap as a person may see it; `run` and `title` are None and '' for runs of others, which are one."""

    by: Literal["run", "traffic", "gpus"]
    shared: tuple[SharedResource, ...]
    seconds: float
    run: str | None = None
    title: str = ""

    @property
    def shared_words(self) -> str:
        return join_words([_(RESOURCE_LABELS[one]) for one in self.shared])


def run_overlaps(run: Run) -> list[Overlap]:
    """Return the runs that used a resource of a run while it was on its host, longest first."""
    if run.started_at is None:
        return []
    until = run.ended_at or timezone.now()
    others = Run.objects.exclude(pk=run.pk).filter(started_at__lt=until).exclude(executor="")
    others = others.filter(Q(ended_at__gt=run.started_at) | Q(state__in=Run.ON_HOST, ended_at=None))
    found = []
    for other in others.only("started_at", "ended_at", "composition", "topology"):
        begun = [one.started_at for one in (run, other) if one.started_at is not None]
        seconds = (min(until, other.ended_at or until) - max(begun)).total_seconds()
        shared = _shared_resources(run, other)
        if shared and seconds >= MIN_SECONDS:
            found.append(Overlap(shared=shared, seconds=round(seconds, 1), run=str(other.pk)))
    return sorted(found, key=lambda one: -one.seconds)


def _shared_resources(run: Run, other: Run) -> tuple[SharedResource, ...]:
    """Return what both use: their hosts by their ids, uplinks and switches as their topologies recorded them."""
    uplinks, theirs = (set(one.topology.get("uplinks", ())) for one in (run, other))
    switches, their_switches = ({name.rpartition("/")[0] for name in names} for names in (uplinks, theirs))
    is_shared: dict[SharedResource, bool] = {
        "host": bool(_hosts(run) & _hosts(other)),
        "uplink": bool(uplinks & theirs),
        "switch": bool(switches & their_switches),
    }
    return tuple(name for name, shared in is_shared.items() if shared)


def _hosts(run: Run) -> set[int]:
    return {one["host"] for one in (run.composition, *run.composition.get("others", ())) if "host" in one}


def anonymous_overlaps(stored: Any) -> list[dict[str, Any]]:
    """Return overlaps without the ids of the other runs, as in a record, which others may read."""
    overlaps = msgspec.convert(stored, list[Overlap])
    plain: list[dict[str, Any]] = msgspec.to_builtins([msgspec.structs.replace(one, run="") for one in overlaps])
    return plain


def shown_overlaps(person: User, run: Run) -> list[ShownOverlap]:
    """Return the overlaps of a run, so far while it is on its host, longest first.

    The runs that the person may not see are one without a name.
    """
    overlaps = run_overlaps(run) if run.state in Run.ON_HOST else msgspec.convert(run.overlaps, list[Overlap])
    visible = Run.objects.visible_to(person).filter(pk__in=[one.run for one in overlaps if one.run])
    titles = {str(pk): title for pk, title in visible.values_list("pk", "title")}
    found = [
        ShownOverlap(
            by=one.by, shared=one.shared, seconds=one.seconds, run=one.run or None, title=titles.get(one.run, "")
        )
        for one in overlaps
        if one.run in titles or one.by != "run"
    ]
    hidden = [one for one in overlaps if one.run not in titles and one.by == "run"]
    if hidden:
        shared = {name for one in hidden for name in one.shared}
        found.append(
            ShownOverlap(
                by="run",
                shared=tuple(name for name in RESOURCE_LABELS if name in shared),
                seconds=max(one.seconds for one in hidden),
            )
        )
    return sorted(found, key=lambda one: -one.seconds)
