"""Where the end of a run lets its sweep go on at once; beat would see it a little later."""

from __future__ import annotations

from typing import Any

from benchmarks.runs.models import Run
from benchmarks.runs.signals import run_changed
from core.enqueue import enqueue


def go_on(sender: Any, run: Run, **_: Any) -> None:
    """Have the sweep of a run that has ended looked at."""
    if run.sweep_id is None or run.is_open:
        return
    # A broker that is away loses nothing: beat asks again.
    enqueue("sweeps.advance", str(run.sweep_id))


run_changed.connect(go_on, dispatch_uid="benchmarks.sweeps")
