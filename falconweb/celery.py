"""The Celery application: workers poll BMCs and carry operations out."""

from __future__ import annotations

import os
import threading
from typing import Any

from celery import Celery, bootsteps
from celery.signals import worker_init, worker_ready

from falconweb.launch.processes import return_memory
from hostwire.heartbeat import BEAT_SECONDS, beat, pause

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "falconweb.settings")
# `manage.py prepare` runs Django's checks before each start. They touch every model and address, whose memory each
# process would have for itself then.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

RETURN_SECONDS = 30.0

application = Celery("falconweb")
application.set_default()
application.config_from_object("django.conf:settings", namespace="CELERY")
application.autodiscover_tasks()
application.autodiscover_tasks(["telemetry.polling"])  # a feature that is not a Django application


class TaskLoopHeartbeat(bootsteps.StartStopStep):
    """Beats with the loop that takes tasks; pauses while the broker is away. Tasks run in other threads."""

    requires = ("celery.worker.consumer.tasks:Tasks",)
    _timers: tuple[Any, ...] = ()

    def start(self, consumer: Any) -> None:
        """Begin, at each connection to the broker; walks of chassis leave much that is given back now and then."""
        self._timers = (
            consumer.timer.call_repeatedly(BEAT_SECONDS, beat, ("tasks",)),
            consumer.timer.call_repeatedly(RETURN_SECONDS, return_memory),
        )

    def stop(self, consumer: Any) -> None:
        """Pause."""
        for timer in self._timers:
            timer.cancel()
        pause("tasks")


application.steps["consumer"].add(TaskLoopHeartbeat)


@worker_init.connect(weak=False)
def _prepare(**_: Any) -> None:
    """Prepare the structs while there is only one thread; all tasks and their imports are loaded by now."""
    from falconweb.structs import prepare_all_structs

    prepare_all_structs()


@worker_ready.connect(weak=False)
def _watch_claims(**_: Any) -> None:
    """Release the claims of other workers when they die."""
    from core.claims import ClaimWatcher

    threading.Thread(target=ClaimWatcher().run, name="claims", daemon=True).start()
