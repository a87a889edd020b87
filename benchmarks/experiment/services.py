"""Playing the published experiment: one sweep of its cells and software variants on one host."""

from __future__ import annotations

from accounts.access import require_composer
from accounts.models import User
from benchmarks.experiment.plays import plan_play
from benchmarks.experiment.published import PLAY_TITLES
from benchmarks.sweeps.expansion import sweep_pool
from benchmarks.sweeps.models import Sweep
from benchmarks.sweeps.services import sweep_create
from core.errors import Conflict
from hostwire.training import Executor


def experiment_play(*, person: User, executor: Executor, idempotency_key: str = "") -> Sweep:
    """Create the sweep that plays the experiment; the same person and key return the same sweep.

    Raises Forbidden for read-only users, and Conflict if no host can.
    """
    require_composer(person, "run anything")
    play = plan_play(sweep_pool(person), executor)
    if play.grid is None:
        raise Conflict(play.why_not)
    return sweep_create(
        person=person, grid=play.grid, title=PLAY_TITLES[executor], idempotency_key=idempotency_key, pool=play.pool
    )
