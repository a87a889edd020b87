"""Signal receivers that publish changes to browsers and to the pollers."""

from __future__ import annotations

import logging
from typing import Any, Final

import redis
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings
from django.contrib.auth.signals import user_logged_out
from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver

from accounts.models import Tenant, User
from accounts.sign_in.services import sessions_ended
from fabric.signals import (
    access_changed,
    inventory_changed,
    operation_changed,
    operation_progressed,
    plan_changed,
    sign_in_due,
)
from telemetry.live.frames import ACCESS_CHANNEL, REFRESH_CHANNEL

logger = logging.getLogger(__name__)
_client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1.0, socket_connect_timeout=1.0)


@receiver(inventory_changed)
def publish_chassis_changed(chassis_id: int, **kwargs: Any) -> None:
    """Notify browsers of a change of a chassis: their pages refresh themselves."""
    # Without Redis, browsers get the change with their next poll: it is in the database.
    _publish(f"changed:{chassis_id}", "", "browsers were not notified of a change")


def _publish(channel: str, text: str, failure: str) -> None:
    try:
        _client.publish(channel, text)
    except redis.RedisError as error:
        logger.warning("%s: %s", failure, error)


@receiver(operation_changed)
@receiver(operation_progressed)
def publish_operation_changed(operation: Any, **kwargs: Any) -> None:
    """Notify browsers of an operation's progress, and the poller of its end: the inventory may have changed."""
    publish_chassis_changed(operation.chassis_id)
    if not operation.is_open:
        _publish(REFRESH_CHANNEL, str(operation.chassis_id), "the poller was not notified of an operation")


@receiver(sign_in_due)
def publish_sign_in_due(chassis_id: int, **kwargs: Any) -> None:
    """Have the poller of a chassis that does not answer try again at once."""
    _publish(REFRESH_CHANNEL, str(chassis_id), "the poller was not told to try again")


@receiver(plan_changed)
def publish_plan_changed(plan: Any, **kwargs: Any) -> None:
    """Notify browsers that a plan progressed, stopped or ended, for each of its chassis."""
    for chassis in set(plan.operations.values_list("chassis", flat=True)):
        publish_chassis_changed(chassis)


@receiver(access_changed)
@receiver(sessions_ended)
@receiver(post_delete, sender=User)
@receiver(post_delete, sender=Tenant)
def publish_access_changed(sender: Any, **kwargs: Any) -> None:
    """Make open sockets recheck the access of their person."""
    _publish(ACCESS_CHANNEL, "", "sockets were not notified of a change of access")


NO_ACCESS: Final = {"last_login", "previous_login", "notices_seen_at", "tour_step", "language", "zone"}


@receiver(post_save, sender=User)
def publish_person_changed(sender: Any, update_fields: frozenset[str] | None = None, **kwargs: Any) -> None:
    """Make open sockets recheck access when a person changed, other than in what gives no access."""
    if not update_fields or not update_fields <= NO_ACCESS:
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
        # The sockets recheck their session regularly anyway.
        logger.warning("sockets were not notified of a sign-out: %s", error)
