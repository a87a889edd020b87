"""Sends answers and reports to the site: answers until the broker accepts them, of reports only the newest."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Any, NamedTuple

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from agent.journal import Journal, JournalError
from hostwire.signing import ANSWER_TASK, REPORT_TASK

logger = logging.getLogger(__name__)
MAX_WAIT_SECONDS = 10.0
# An answer that could not be sent for this long is useless: the site has read the state itself by then.
ANSWER_SECONDS = 3600.0
REPORT_EXPIRES_SECONDS = 30
# Expired reports do not fill the broker's memory while no worker of the site runs.
MAX_QUEUED = 2000


class _PendingAnswer(NamedTuple):
    nonce: str
    text: str
    since: float


class AgentOutbox:
    """A queue with its own sending thread; callers never wait for the broker."""

    def __init__(self, application: Celery, queue: str, journal: Journal) -> None:
        self._application = application
        self._queue = queue
        self._journal = journal
        self._answers: deque[_PendingAnswer] = deque()
        self._report = ""
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    def start(self) -> None:
        """Start the sending thread."""
        self._thread.start()

    def end(self, seconds: float) -> None:
        """Send the remaining messages, for at most some seconds."""
        self._ended.set()
        self._wake.set()
        self._thread.join(seconds)

    def answer(self, nonce: str, text: str) -> None:
        """Send an answer, with retries."""
        self._answers.append(_PendingAnswer(nonce, text, time.monotonic()))
        self._wake.set()

    def report(self, text: str) -> None:
        """Send a report, unless a newer one replaces it before the broker is reachable."""
        self._report = text
        self._wake.set()

    def _run(self) -> None:
        wait = 0.0
        while True:
            self._wake.wait()
            self._wake.clear()
            try:
                self._send_all()
                wait = 0.0
            except (OperationalError, OSError, redis.RedisError) as error:
                if wait == 0.0:
                    logger.warning("The broker is unreachable: %s", error)
                wait = min(max(0.5, wait * 2), MAX_WAIT_SECONDS)
                self._wake.set()
            except Exception:
                logger.exception("A message could not be sent")
                wait = MAX_WAIT_SECONDS
                self._wake.set()
            # What came while the rest was sent goes, too; not where the broker is away.
            if self._ended.is_set() and (wait or not self._wake.is_set()):
                return
            time.sleep(wait)

    def _send_all(self) -> None:
        while self._answers:
            answer = self._answers[0]
            if time.monotonic() - answer.since < ANSWER_SECONDS:
                self._send(ANSWER_TASK, answer.text, expires=None)
            self._answers.popleft()
            try:
                self._journal.record_sent(answer.nonce)
            except JournalError as error:
                logger.warning("%s", error)
        if report := self._report:
            if self._room():
                self._send(REPORT_TASK, report, expires=REPORT_EXPIRES_SECONDS)
            if self._report == report:
                self._report = ""

    def _send(self, task: str, text: str, *, expires: int | None) -> None:
        # The site declares the queue: an agent may only add to it.
        self._application.send_task(
            task, args=[text], queue=self._queue, declare=[], expires=expires, ignore_result=True, retry=False
        )

    def _room(self) -> bool:
        with self._application.connection_for_write() as connection:
            channel: Any = connection.default_channel
            return int(channel.client.llen(self._queue)) < MAX_QUEUED
