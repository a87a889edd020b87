"""The Celery application: workers poll BMCs and carry operations out."""

from __future__ import annotations

import os
import threading
from typing import Any

from celery import Celery
from celery.signals import worker_init, worker_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "falconweb.settings")

application = Celery("falconweb")
application.set_default()
application.config_from_object("django.conf:settings", namespace="CELERY")
application.autodiscover_tasks()
application.autodiscover_tasks(["telemetry.polling"])  # a feature that is not a Django application


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
