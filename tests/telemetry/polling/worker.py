"""The polling thread of a worker, in the process of a test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from telemetry.polling import claims
from telemetry.polling.poller import Poller, run_poller
from telemetry.store.writer import process_writer

WRITING_SECONDS = 20.0


@contextmanager
def polling(name: str = "") -> Iterator[Poller]:
    """Poll the chassis that there are until the block ends, and wait for its end; it waits for no other worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "LULL_SECONDS", 0.0)
        poller = Poller(name)
        thread = threading.Thread(target=run_poller, args=(poller,))
        thread.start()
        try:
            yield poller
        finally:
            poller.stop()
            thread.join(60)
            assert not thread.is_alive()
            # What was handed over last is written in a thread of its own: not beside the next test.
            process_writer().stop(WRITING_SECONDS)
