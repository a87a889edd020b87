"""The Celery application: workers poll BMCs and carry operations out."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "falconweb.settings")

application = Celery("falconweb")
application.set_default()
application.config_from_object("django.conf:settings", namespace="CELERY")
application.autodiscover_tasks()
application.autodiscover_tasks(["telemetry.polling"])  # a feature that is no Django application


@worker_init.connect(weak=False)
def _prepare(**_: Any) -> None:
    """Look at shapes while there is one thread; the rooms' tasks, and all that they read, are imported by now."""
    from falconweb.structs import prepare_all_structs

    prepare_all_structs()
