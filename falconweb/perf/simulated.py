"""Simulated chassis as measurements use them: mirrored once, and asked for the truth."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from typing import Any

from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.types import Inventory
from fabric.models import Chassis
from fabric.services.sync import inventory_apply
from falconweb.perf.place import PASSWORD, CannotMeasureError

LOOK_SECONDS = 0.01
UP_SECONDS = 60.0


def mirrored(name: str, address: str, fingerprint: str) -> Chassis:
    """Add a chassis and walk it once.

    It is not polled meanwhile: a walk takes processor time of the worker that is not what is measured.
    """
    chassis = Chassis(name=name, url=address, username="administrator", fingerprint=fingerprint, enabled=False)
    chassis.set_password(PASSWORD)
    chassis.save()
    reached = chassis.address()

    async def walk() -> Inventory:
        async with BmcClient(reached) as bmc:
            return await discover(bmc)

    inventory_apply(chassis=chassis, inventory=asyncio.run(walk()))
    return Chassis.objects.get(pk=chassis.pk)


class Control:
    """The simulator's control address."""

    def __init__(self, address: str) -> None:
        self._address = address
        # A proxy of the environment has no business with a process on this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the answer to a GET, or to a POST where there is a body."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data=data)  # noqa: S310 - our own process
        with self._opener.open(request, timeout=10) as reply:
            return json.loads(reply.read())

    def wait_until_up(self, slot: str) -> float:
        """Return the Unix time at which the link of a slot came up, right to LOOK_SECONDS and an answer."""
        deadline = time.time() + UP_SECONDS
        while self.ask("/state")["links"][slot]["status"] != "LinkUp":
            if time.time() > deadline:
                raise CannotMeasureError(f"the link of {slot} did not come up.")
            time.sleep(LOOK_SECONDS)
        return time.time()
