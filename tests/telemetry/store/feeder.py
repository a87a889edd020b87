"""A worker that reads made-up readings, a minute in each tenth of a second: `feeder CHASSIS SINCE FILE`.

Each line that it prints tells how many it took, and how the store fares. SIGTERM ends it as it ends a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys

import django


def main(chassis: int, since: float, file: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "falconweb.settings")
    django.setup()
    from django.conf import settings

    settings.DATABASES["readings"]["NAME"] = file
    asyncio.run(feed(chassis, since))


async def feed(chassis: int, since: float) -> None:
    """Take readings until asked to end."""
    from telemetry.instrumentation import metrics
    from telemetry.store.writer import StoreWriter
    from tests.telemetry.store.feeding import Feed

    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    writer = StoreWriter(gather=0.05)
    some = Feed(chassis, writer, since=since)
    taken = 0
    while not over.is_set():
        some.run(range(taken, taken + 60))
        taken += 60
        failures = metrics.counter_values().get(("store_write_failures", None), 0)
        said = {"taken": taken, "failures": failures, "failing": writer._failures > 0}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), 0.1)
    await some.recorder.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
