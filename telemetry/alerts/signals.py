"""Signals of alerts, sent after the transaction is committed."""

from __future__ import annotations

import logging
from typing import Any

import redis
from django.conf import settings
from django.dispatch import Signal, receiver

alerts_changed = Signal()  # chassis_id: int

logger = logging.getLogger(__name__)
_client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1.0, socket_connect_timeout=1.0)


@receiver(alerts_changed)
def publish_alerts_changed(chassis_id: int, **kwargs: Any) -> None:
    """Notify open pages of a chassis; other pages poll every few seconds."""
    try:
        _client.publish(f"changed:{chassis_id}", b"")
    except (redis.RedisError, OSError) as error:
        logger.warning("browsers were not notified of an alert: %s", error)
