"""Celery's queue in Redis, which others may write to: what is no message is logged and dropped, and ends no worker."""

from __future__ import annotations

import logging
from queue import Empty
from typing import Any

from kombu.transport import redis as redis_transport
from redis import exceptions

from core.redis_keys import delete_other_types

logger = logging.getLogger(__name__)
library: Any = redis_transport  # its stub knows little


class QueueChannel(library.Channel):  # type: ignore[misc]
    """A channel that goes on behind a malformed message, and replaces keys of another type."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except (Empty, OSError, exceptions.ConnectionError, exceptions.TimeoutError):
            raise
        except exceptions.ResponseError as error:
            logger.warning("the queue cannot be read: %s", error)
            queues = [self._q_for_pri(queue, step) for queue in self.active_queues for step in self.priority_steps]
            with self.conn_or_acquire() as client:
                delete_other_types(client, "list", *queues)
        except Exception:
            logger.exception("a message of the queue is refused")
        return None

    def _queue_bind(self, exchange: str, *args: Any) -> None:
        with self.conn_or_acquire() as client:
            prefixes = (self.keyprefix_queue, self.keyprefix_binding_permanent)
            delete_other_types(client, "set", *(prefix % (exchange,) for prefix in prefixes))
        super()._queue_bind(exchange, *args)


class QueueTransport(library.Transport):  # type: ignore[misc]
    """The transport of the site's workers and of who enqueues tasks."""

    Channel = QueueChannel
