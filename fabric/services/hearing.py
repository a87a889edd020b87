"""What the agents of hosts say, read by a thread of each worker from a list of each host's own.

They are no tasks of the site's workers: a broken message ends the worker that takes it, and a whole one may name any
task. Whoever is root on a host may write whatever they like, as fast as they like, and keeps nobody else from being
heard.
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

from fabric.models import HostAgent
from fabric.services.agents import answer_keep, report_keep
from fabric.services.turn import DATABASE_AWAY
from hostwire.messages import ANSWER_TASK, MAX_BYTES, REPORT_TASK, WireError, said_name

logger = logging.getLogger(__name__)

TAKERS: Final[dict[str, Callable[[object], None]]] = {REPORT_TASK: report_keep, ANSWER_TASK: answer_keep}
LARGEST: Final = 2 * MAX_BYTES  # of a message as it lies in the list, its envelope and base64 included
LOOK_SECONDS: Final = 2.0  # between two looks which hosts have an agent
ROUND_SECONDS: Final = 0.1  # between two messages of one host
MOST_WAITING: Final = 200  # messages of one host: older ones go
AWAY_SECONDS: Final = 1.0  # until broker or database are asked again
STOP_SECONDS: Final = 3.0

_ended = threading.Event()
_thread: threading.Thread | None = None


def begin_hearing() -> None:
    """Let a thread of this process hear the agents of all hosts until `end_hearing`."""
    global _thread  # noqa: PLW0603 - one thread a process is the point
    if _thread is None or not _thread.is_alive():
        _ended.clear()
        _thread = threading.Thread(target=lambda: Ear().listen(_ended), name="hearing", daemon=True)
        _thread.start()


def end_hearing() -> None:
    """End this process's thread; what it has not taken is taken by another worker's."""
    _ended.set()
    if _thread is not None:
        _thread.join(STOP_SECONDS)


def heard(raw: bytes) -> tuple[str, str]:
    """Return what a message is (REPORT_TASK or ANSWER_TASK) and its sealed text; raises WireError for anything else."""
    if len(raw) > LARGEST:
        raise WireError(f"The message has {len(raw)} bytes; {LARGEST} are allowed.")
    try:
        message: Any = json.loads(raw)
        task, text = message["headers"]["task"], json.loads(base64.b64decode(message["body"], validate=True))[0][0]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise WireError("It is no message of an agent.") from error
    if not isinstance(task, str) or task not in TAKERS or not isinstance(text, str):
        raise WireError("It is no message of an agent.")
    return task, text


class Ear:
    """Takes the messages of hosts in rounds: of each one at most."""

    def __init__(self) -> None:
        self._client = redis.Redis.from_url(settings.REDIS_URL, **settings.REDIS_TIMEOUTS)
        self._names: list[str] = []
        self._looked_at = -LOOK_SECONDS

    def listen(self, ended: threading.Event) -> None:
        """Hear until `ended`; a broker or a database that is away is waited for."""
        while not ended.wait(ROUND_SECONDS):
            try:
                if self._is_to_look():
                    close_old_connections()
                self.round()
            except (redis.RedisError, OSError, *DATABASE_AWAY) as error:
                logger.warning("hosts are not heard for a moment: %s", error)
                close_old_connections()
                ended.wait(AWAY_SECONDS)
            except Exception:
                logger.exception("hosts are not heard for a moment")
                ended.wait(AWAY_SECONDS)
        close_old_connections()

    def round(self) -> None:
        """Take the oldest message of each host."""
        if self._is_to_look():
            agents = HostAgent.objects.values_list("host__identity", flat=True)
            self._names, self._looked_at = [said_name(one) for one in agents], time.monotonic()
        # Each for itself: what one has made of its list is nobody else's trouble.
        with self._client.pipeline(transaction=False) as pipe:
            for name in self._names:
                pipe.ltrim(name, 0, MOST_WAITING - 1)
                pipe.rpop(name)
            found = pipe.execute(raise_on_error=False)[1::2]
        for name, raw in zip(self._names, found, strict=True):
            if isinstance(raw, redis.ResponseError):
                self._client.delete(name)  # it is no list
            elif isinstance(raw, Exception):
                raise raw
            elif raw is not None:
                self._take(name, raw)

    def _is_to_look(self) -> bool:
        return time.monotonic() >= self._looked_at + LOOK_SECONDS

    def _take(self, name: str, raw: bytes) -> None:
        try:
            task, text = heard(raw)
            TAKERS[task](text)
        except WireError as error:
            logger.warning("%s: a host's message was not believed: %s", name, error)
        except DATABASE_AWAY:
            # It is heard once the database is back, unless newer ones have taken its place.
            self._client.rpush(name, raw)
            raise
        except Exception:
            # Whatever a host says, the others are heard.
            logger.exception("%s: a host's message", name)
