"""`python -m tests.telemetry.events.worker CHASSIS`: a worker that listens to one chassis, to be killed."""

from __future__ import annotations

import asyncio
import sys

import django


def main(pk: int) -> None:
    """Walk the chassis, say 'ready', and listen."""
    django.setup()
    from fabric.bmc.client import BmcClient
    from fabric.bmc.discovery import discover
    from fabric.inventory.models import Chassis
    from telemetry.polling.event_listener import EventListener

    address = Chassis.objects.get(pk=pk).address()

    async def run() -> None:
        async with BmcClient(address) as bmc:
            inventory = await discover(bmc)
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await EventListener(pk, bmc, inventory, asyncio.Event()).run()

    asyncio.run(run())


if __name__ == "__main__":
    main(int(sys.argv[1]))
