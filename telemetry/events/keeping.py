"""How long events are kept."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from telemetry.events.models import Event

logger = logging.getLogger(__name__)

ROWS_AT_ONCE = 500
PAUSE = 0.05  # s, in which others write


def events_forget(*, most: int = 200_000) -> int:
    """Delete events that are older than FALCONWEB_KEEP_EVENTS, in small parts, so many at most; return how many.

    Nobody waits long: each part is a transaction of its own, with a pause after it.
    """
    before = timezone.now() - timedelta(seconds=settings.KEEP_EVENTS_SECONDS)
    deleted = 0
    while deleted < most:
        old = list(Event.objects.filter(at__lt=before).order_by("at", "pk").values_list("pk", flat=True)[:ROWS_AT_ONCE])
        if not old:
            break
        deleted += Event.objects.filter(pk__in=old).delete()[0]
        time.sleep(PAUSE)
    if deleted:
        logger.info("%s events of before %s were deleted", deleted, before.date())
    return deleted
