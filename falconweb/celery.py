"""The Celery application: workers poll BMCs and carry operations out."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "falconweb.settings")

application = Celery("falconweb")
application.set_default()
application.config_from_object("django.conf:settings", namespace="CELERY")
application.autodiscover_tasks()
