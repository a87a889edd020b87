"""Signal receivers that publish changes to browsers and to the pollers."""

from __future__ import annotations

import logging
from typing import Any

import redis
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings
from django.contrib.auth.signals import user_logged_out
from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver

from accounts.models import Tenant, User
from fabric.signals import access_changed, inventory_changed, operation_changed, plan_changed
from telemetry.live.frames import ACCESS_CHANNEL, REFRESH_CHANNEL

logger = logging.getLogger(__name__)
_client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1.0, socket_connect_timeout=1.0)


def publish_chassis_changed(chassis_id: int) -> None:
    """Tell browsers that something about a chassis changed: their pages bring themselves up to date."""
    try:
        _client.publish(f"changed:{chassis_id}", b"")
    except redis.RedisError as error:
        # The change itself stands in the database; browsers see it at their next look.
        logger.warning("browsers were not told of a change: %s", error)


@receiver(inventory_changed)
def publish_inventory_changed(chassis_id: int, **kwargs: Any) -> None:
    """Tell browsers that a chassis' hardware changed."""
    publish_chassis_changed(chassis_id)


@receiver(operation_changed)
def publish_operation_changed(operation: Any, **kwargs: Any) -> None:
    """Tell browsers that an operation moved on, and the poller when it ended: much of the chassis may be new."""
    publish_chassis_changed(operation.chassis_id)
    if not operation.is_open:
        try:
            _client.publish(REFRESH_CHANNEL, str(operation.chassis_id))
        except redis.RedisError as error:
            logger.warning("the poller was not told of an operation: %s", error)


@receiver(plan_changed)
def publish_plan_changed(plan: Any, **kwargs: Any) -> None:
    """Tell browsers that a plan went on, stopped or ended, on each chassis that it is about."""
    for chassis in set(plan.operations.values_list("chassis", flat=True)):
        publish_chassis_changed(chassis)


@receiver(access_changed)
@receiver(post_delete, sender=User)
@receiver(post_delete, sender=Tenant)
def publish_access_changed(sender: Any, **kwargs: Any) -> None:
    """Let open sockets look again at what their person may see."""
    try:
        _client.publish(ACCESS_CHANNEL, b"")
    except redis.RedisError as error:
        logger.warning("sockets were not told of a change of access: %s", error)


@receiver(post_save, sender=User)
def publish_person_changed(sender: Any, update_fields: frozenset[str] | None = None, **kwargs: Any) -> None:
    """Let open sockets look again when a person changed, other than by signing in."""
    if not update_fields or not update_fields <= {"last_login", "previous_login"}:
        transaction.on_commit(lambda: publish_access_changed(sender))


@receiver(user_logged_out)
def close_sockets(request: Any, user: Any, **kwargs: Any) -> None:
    """Close the live sockets of the session that signs out."""
    layer = get_channel_layer()
    if user is None or layer is None:
        return
    message = {"type": "signed.out", "session": getattr(request.session, "session_key", None)}
    try:
        async_to_sync(layer.group_send)(f"person-{user.pk}", message)
    except (redis.RedisError, OSError) as error:
        # The sockets look at their session every few seconds anyway.
        logger.warning("sockets were not told of a sign-out: %s", error)
