"""Messages of the agents of hosts, read by a thread of each worker from one list per host.

They are not Celery tasks: a broken message would end the worker that takes it, and a valid one could name any task.
Root of a host may send anything, at any rate, and cannot delay the messages of other hosts.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import redis
from django.conf import settings
from django.db import close_old_connections

from core.database import DATABASE_UNAVAILABLE
from fabric.agents.models import HostAgent
from fabric.agents.services import answer_store, report_store
from hostwire.signing import ANSWER_TASK, MAX_BYTES, REPORT_TASK, WireError, reply_queue_name

logger = logging.getLogger(__name__)

MESSAGE_HANDLERS: Final[dict[str, Callable[[object], None]]] = {REPORT_TASK: report_store, ANSWER_TASK: answer_store}
MAX_MESSAGE_BYTES: Final = 2 * MAX_BYTES  # of a message as it lies in the list, its envelope and base64 included
AGENT_LIST_SECONDS: Final = 2.0  # between two queries of the hosts with an agent
POLL_SECONDS: Final = 0.1  # between two rounds
WAIT_SECONDS: Final = 1.0  # for a message, where no host has one
MAX_QUEUED: Final = 200  # messages of one host: older ones are dropped
RECONNECT_SECONDS: Final = 1.0  # between attempts to reach the broker or database
STOP_SECONDS: Final = 3.0

_stopped = threading.Event()
_thread: threading.Thread | None = None


def start_inbox() -> None:
    """Start the thread of this process that reads the messages of all hosts until `stop_inbox`."""
    global _thread  # noqa: PLW0603 - one thread a process is the point
    if _thread is None or not _thread.is_alive():
        _stopped.clear()
        _thread = threading.Thread(target=lambda: AgentInbox().listen(_stopped), name="agent-inbox", daemon=True)
        _thread.start()


def stop_inbox() -> None:
    """Stop this process's thread; messages that it has not taken are taken by another worker's."""
    _stopped.set()
    if _thread is not None:
        _thread.join(STOP_SECONDS)


def parse_message(raw: bytes) -> tuple[str, str]:
    """Return the type of a message (REPORT_TASK or ANSWER_TASK) and its sealed text; raises WireError if invalid."""
    if len(raw) > MAX_MESSAGE_BYTES:
        raise WireError(f"The message has {len(raw)} bytes; {MAX_MESSAGE_BYTES} are allowed.")
    try:
        message: Any = json.loads(raw)
        task, text = message["headers"]["task"], json.loads(base64.b64decode(message["body"], validate=True))[0][0]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise WireError("It is not a message of an agent.") from error
    if not isinstance(task, str) or task not in MESSAGE_HANDLERS or not isinstance(text, str):
        raise WireError("It is not a message of an agent.")
    return task, text


class AgentInbox:
    """Takes the messages of hosts in rounds, at most one per host."""

    def __init__(self) -> None:
        self._client = redis.Redis.from_url(settings.REDIS_URL, **settings.REDIS_TIMEOUTS)
        self._names: list[str] = []
        self._looked_at = -AGENT_LIST_SECONDS

    def listen(self, ended: threading.Event) -> None:
        """Read messages until `ended`; retries an unreachable broker or database."""
        while not ended.wait(POLL_SECONDS):
            try:
                if self._is_agent_list_stale():
                    close_old_connections()
                if not self.round():
                    self._wait()
            except (redis.RedisError, OSError, *DATABASE_UNAVAILABLE) as error:
                logger.warning("messages of hosts cannot be read for now: %s", error)
                close_old_connections()
                ended.wait(RECONNECT_SECONDS)
            except Exception:
                logger.exception("messages of hosts cannot be read for now")
                ended.wait(RECONNECT_SECONDS)
        close_old_connections()

    def round(self) -> int:
        """Take the oldest message of each host; returns how many hosts had one."""
        if self._is_agent_list_stale():
            agents = HostAgent.objects.values_list("host__identity", flat=True)
            self._names, self._looked_at = [reply_queue_name(one) for one in agents], time.monotonic()
        # Separately for each host: a host that replaced its list by another type must not affect others.
        with self._client.pipeline(transaction=False) as pipe:
            for name in self._names:
                pipe.ltrim(name, 0, MAX_QUEUED - 1)
                pipe.rpop(name)
            found = pipe.execute(raise_on_error=False)[1::2]
        taken = 0
        for name, raw in zip(self._names, found, strict=True):
            if isinstance(raw, redis.ResponseError):
                self._client.delete(name)  # it is no list
            elif isinstance(raw, Exception):
                raise raw
            elif raw is not None:
                taken += 1
                self._take(name, raw)
        return taken

    def _wait(self) -> None:
        """Wait for the next message of any host, and take it; for WAIT_SECONDS at most."""
        if not self._names:
            time.sleep(WAIT_SECONDS)
            return
        try:
            found: Any = self._client.brpop(self._names, timeout=WAIT_SECONDS)
        except redis.ResponseError:
            return  # one is no list, as the next round finds
        if found is not None:
            self._take(found[0].decode(), found[1])

    def _is_agent_list_stale(self) -> bool:
        return time.monotonic() >= self._looked_at + AGENT_LIST_SECONDS

    def _take(self, name: str, raw: bytes) -> None:
        try:
            task, text = parse_message(raw)
            MESSAGE_HANDLERS[task](text)
        except WireError as error:
            logger.warning("%s: a host's message was rejected: %s", name, error)
        except DATABASE_UNAVAILABLE:
            # It is read once the database is back, unless newer ones have displaced it.
            self._client.rpush(name, raw)
            raise
        except Exception:
            # A message of one host must not stop those of others.
            logger.exception("%s: a host's message", name)
