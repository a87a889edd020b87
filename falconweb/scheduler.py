"""The scheduler of periodic tasks, with a heartbeat."""

from __future__ import annotations

from typing import Any

from celery.beat import PersistentScheduler

from telemetry.instrumentation.publisher import heartbeat


class Scheduler(PersistentScheduler):
    """Celery's own; each tick is a heartbeat."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Enqueue the task that is due; returns the seconds until the next one."""
        heartbeat("scheduler")
        return float(super().tick(*args, **kwargs))
