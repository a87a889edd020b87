"""The event stream of one chassis, beside its readings."""

from __future__ import annotations

import asyncio
import logging

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import BmcError
from fabric.bmc.events import stream_events
from fabric.bmc.types import Inventory

logger = logging.getLogger(__name__)

STREAM_PAUSE = 15.0


async def listen(chassis_id: int, bmc: BmcClient, inventory: Inventory, disturbed: asyncio.Event) -> None:
    """Let the BMC's events bring the next refresh forward; where there is no stream, the period must do."""
    if not inventory.service.event_stream_uri:
        return
    while True:
        try:
            async for _ in stream_events(bmc, inventory.service.event_stream_uri):
                disturbed.set()
        except BmcError as error:
            logger.debug("events of chassis %s: %s", chassis_id, error.sentence)
        except Exception:
            logger.exception("events of chassis %s", chassis_id)
        await asyncio.sleep(STREAM_PAUSE)
