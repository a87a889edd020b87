"""Tells browsers that alerts changed: pages of the chassis bring themselves up to date, and so does the header."""

from __future__ import annotations

import logging
from typing import Any

import redis
from django.conf import settings
from django.dispatch import receiver

from telemetry.alerts.signals import alerts_changed

logger = logging.getLogger(__name__)
_client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1.0, socket_connect_timeout=1.0)


@receiver(alerts_changed)
def tell_alerts(chassis_id: int, **kwargs: Any) -> None:
    """Tell open pages of a chassis; others ask by themselves every few seconds."""
    try:
        _client.publish(f"changed:{chassis_id}", b"")
    except (redis.RedisError, OSError) as error:
        logger.warning("browsers were not told of an alert: %s", error)
