"""`python -m falconweb.scheduler`: sends periodic tasks by the monotonic clock; of several, one is at work.

It is Celery's scheduler without its command line, Django's applications and the tasks, which it knows by their names.

    scheduler   '<name> <count>': the scheduler at work, and how often it has looked at its schedule: each TURN_SECONDS

The count is its heartbeat. Who sees the same value for STANDSTILL_SECONDS of its own monotonic clock knows that no
scheduler is at work, and another scheduler takes its place. Neither a time of day nor an expiry is in this, since
expiries in Valkey are times of day, too: a clock that is set, on any of the machines, changes nothing. A scheduler that
was suspended finds another name there before it sends anything.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import time
from typing import Any, Final

import redis
from celery import Celery
from celery.beat import Scheduler
from django.conf import settings
from django.utils.log import configure_logging

from hostwire.heartbeat import beat
from telemetry.instrumentation.publisher import ensure_publishing

logger = logging.getLogger(__name__)

TURN_KEY: Final = "scheduler"
TURN_SECONDS: Final = 1.0
STANDSTILL_SECONDS: Final = 10.0
# Daily and hourly tasks run soon after each start: a site that is restarted each day needs them, too.
FIRST_SECONDS: Final = 60.0
# Without a worker, messages do not fill the broker's memory: what is due then is skipped, not made up for.
MAX_QUEUED: Final = 100

# Sets the value where it is the expected one; returns the value afterwards, and the number of waiting messages.
TURN_SCRIPT: Final = """
local held = redis.pcall('GETRANGE', KEYS[1], 0, 199)
if type(held) == 'table' then
  redis.call('DEL', KEYS[1])
  held = ''
end
if held == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2])
  held = ARGV[2]
end
local queued = redis.pcall('LLEN', KEYS[2])
return {held, type(queued) == 'table' and 0 or queued}
"""


class SchedulerTurn:
    """Decides which scheduler is at work, by one value in Valkey."""

    def __init__(self, client: redis.Redis, name: str) -> None:
        self.name = name
        self.queued = 0  # messages that wait for a worker
        self._script: Any = client.register_script(TURN_SCRIPT)
        self._count = 0
        self._mine = b""  # the value that this scheduler has set, while it is at work
        self._seen, self._since = b"", time.monotonic()

    def take(self) -> bool:
        """Return whether this scheduler is at work for the next second or so; raises RedisError."""
        now = time.monotonic()
        is_free = self._seen == b"" or now - self._since >= STANDSTILL_SECONDS
        # A value has no line break: without a turn, nothing is replaced.
        expected = self._mine or (self._seen if is_free else b"\n")
        wanted = f"{self.name} {self._count + 1}".encode()
        held, self.queued = self._script(keys=[TURN_KEY, settings.CELERY_TASK_DEFAULT_QUEUE], args=[expected, wanted])
        if held == wanted:
            self._count, self._mine = self._count + 1, wanted
            return True
        self._mine = b""
        if held != self._seen:
            self._seen, self._since = held, now
        return False


class MonotonicScheduler(Scheduler):
    """Sends each periodic task while this process has the turn; its entries have a period in seconds."""

    max_interval: Any = TURN_SECONDS  # the stub says whole seconds

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._turn = SchedulerTurn(redis.Redis.from_url(settings.REDIS_URL, **settings.REDIS_TIMEOUTS), name)
        self._due: dict[str, float] = {}  # in monotonic seconds; empty without a turn
        super().__init__(*args, **kwargs)

    def tick(self, *_: Any, **__: Any) -> float:
        """Send what is due, if it is this scheduler's turn; returns the seconds until the next call."""
        beat("scheduler")
        try:
            has_turn = self._turn.take()
        except (redis.RedisError, OSError) as error:
            logger.warning("nothing is scheduled: %s", error)
            return TURN_SECONDS
        now = time.monotonic()
        if not has_turn:
            self._due = {}
            return TURN_SECONDS
        if not self._due:
            logger.warning("%s is the scheduler at work", self._turn.name)
            self._due = {name: now + min(self._period(name), FIRST_SECONDS) for name in self.schedule}
        for name, due in self._due.items():
            # It was suspended since it took the turn, which another one may have by now.
            if time.monotonic() - now > TURN_SECONDS:
                return 0.0
            if due <= now:
                self._due[name] = max(due + self._period(name), now)
                if self._turn.queued < MAX_QUEUED:
                    self.apply_entry(self.schedule[name], producer=self.producer)
        return max(0.0, min(now + TURN_SECONDS, *self._due.values()) - time.monotonic())

    def _period(self, name: str) -> float:
        period: Any = self.schedule[name].schedule
        return float(period.seconds)


def schedule(application: Celery) -> None:
    """Schedule until terminated."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ensure_publishing("scheduler")
    scheduler = MonotonicScheduler(app=application)
    while True:
        time.sleep(scheduler.tick())


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "falconweb.settings")
    # Fixups would load Django's applications.
    alone = Celery("falconweb", fixups=[], set_as_current=False)
    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
    alone.config_from_object("django.conf:settings", namespace="CELERY")
    schedule(alone)
