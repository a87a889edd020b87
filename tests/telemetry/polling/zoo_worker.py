"""`python -m tests.telemetry.polling.zoo_worker READINGS`: a worker that polls, with readings in a file."""

from __future__ import annotations

import sys

import django

from falconweb.launch.processes import share_allocations


def main(readings: str) -> None:
    """Poll until the process is killed, with one heap for all threads, as workers of a site have it."""
    share_allocations()
    django.setup()
    from django.conf import settings
    from django.db import connections

    from telemetry.polling.poller import Poller, run_poller

    if settings.READINGS_DATABASE != "default":
        connections.settings[settings.READINGS_DATABASE]["NAME"] = readings
    run_poller(Poller("zoo"))


if __name__ == "__main__":
    main(sys.argv[1])
