"""What an agent sends when it ends."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from threading import Thread
from typing import Any

import redis
from celery import Celery
from django.conf import settings

from agent.journal import Journal
from agent.outbox import AgentOutbox
from hostwire.signing import ANSWER_TASK, REPORT_TASK

QUEUE = "outbox-of-a-test"


class EndedMeanwhile(Celery):
    """An application whose agent answers a command, and is ended, while it sends a report."""

    outbox: AgentOutbox

    def send_task(self, name: str, **options: Any) -> None:  # type: ignore[override]
        """Send it, and let that happen."""
        super().send_task(name, **options)
        if name == REPORT_TASK:
            self.outbox.answer("nonce", "interrupted")
            ending = Thread(target=self.outbox.end, args=(0.0,))
            ending.start()
            ending.join()


def test_an_answer_that_came_while_a_report_was_sent_is_sent_before_the_end(tmp_path: Path) -> None:
    application = EndedMeanwhile("agent", broker=settings.REDIS_URL, set_as_current=False)
    application.outbox = outbox = AgentOutbox(application, QUEUE, Journal(tmp_path))
    outbox.start()
    outbox.report("the report")
    outbox._thread.join(30)
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        messages = [json.loads(one) for one in reversed(client.lrange(QUEUE, 0, -1))]
    assert [one["headers"]["task"] for one in messages] == [REPORT_TASK, ANSWER_TASK]
    assert json.loads(b64decode(messages[1]["body"]))[0] == ["interrupted"]
