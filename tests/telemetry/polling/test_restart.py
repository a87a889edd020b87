"""The polling thread of a worker whose loop fails."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis

from telemetry.polling import poller
from tests.waiting import wait_for


@pytest.mark.django_db(transaction=True)
def test_polling_that_failed_begins_again(
    settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(poller, "_ended", threading.Event())  # it stays set where it was
    monkeypatch.setattr(poller, "RESTART_SECONDS", 0.02)
    address, settings.REDIS_URL = settings.REDIS_URL, "nowhere://"
    poller.start_polling()
    wait_for(lambda: [record for record in caplog.records if record.exc_info and "begins again" in record.message])
    settings.REDIS_URL = address
    with redis.Redis.from_url(address) as client:
        wait_for(lambda: client.exists("polling:workers"))
        poller.stop_polling()
        assert not client.exists("polling:workers")
