"""The link of a device or port after a change: waited for until it is up, as far as the chassis tells."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from django.utils import timezone

from core.language import gettext_noop
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import read_link
from fabric.bmc.values import text
from fabric.execution.claims import OperationClaim, OperationFailedError
from fabric.execution.membership import zones_of
from fabric.inventory.models import Device, Port
from fabric.inventory.rules import describe_link, is_link_degraded

LINK_SECONDS = 30.0  # a bind takes from under 1 s to 15 s
PRESENCE_SECONDS = 2.0  # between two checks that a training device is still attached
RETRAIN_SECONDS = 5.0  # a link that is up may still train to its full width and speed
# States of an endpoint, or block, behind which no device is.
ABSENT_STATES = frozenset({"Absent", "Disabled", "UnavailableOffline"})
# Between two reads of a training link as long as the read took, so that a slow BMC is asked for at most half of its
# time, or, up to the first of these bounds, as long as was waited: a short training is noticed early. On average half
# of the pause is the delay of the result.
MIN_LINK_PAUSE, MAX_LINK_PAUSE = 0.01, 0.1


class LinkDegradedError(OperationFailedError):
    """The link is up, below the capability of device and slot."""


async def wait_for_link(claim: OperationClaim, bmc: BmcClient, device: Device) -> tuple[str, bool]:
    """Wait until the link of an attached device is up at its capability; returns it as a sentence.

    The second value is False where the chassis does not tell that it is up.
    """
    port = device.slot.port if device.slot is not None else None
    if port is None:
        return gettext_noop("The chassis shows no port for this slot, so the link was not checked."), False
    began = time.monotonic()
    end, check_at = began + LINK_SECONDS, began + PRESENCE_SECONDS
    up_since = None
    read = partial(read_link, bmc, port.uri)
    while True:
        asked_at, read_at = time.monotonic(), timezone.now()
        link = await claim.retry(read)
        read = partial(read_link, bmc, port.uri, is_repeated=True)
        now = time.monotonic()
        if link.status != "LinkUp":
            up_since = None
            if now > check_at:
                await claim.retry(partial(_check_still_attached, claim, bmc, device))
                if not link.status:
                    return await claim.retry(partial(_unknown_link, bmc, device, port)), False
                check_at = now + PRESENCE_SECONDS
            if now > end:
                raise OperationFailedError(
                    f"Attached, but the link of {port.name} is '{link.status}' after {LINK_SECONDS:.0f} s."
                )
        elif not is_link_degraded(link, device.max_lanes, device.max_pcie_type):
            claim.link.keep(link, read_at)
            return describe_link(link), True
        else:
            up_since = now if up_since is None else up_since
            if now > up_since + RETRAIN_SECONDS:
                raise LinkDegradedError(
                    f"Attached, but below what device and slot can do. {describe_link(link)} "
                    "Detach and attach it again to retrain the link."
                )
        await _pause_between_reads(claim, began, asked_at)


async def _unknown_link(bmc: BmcClient, device: Device, port: Port) -> str:
    """Return what the chassis says of an attached device whose port tells no link; raises where that is: absent."""
    end = await bmc.get_or_none(device.endpoint_uri) or {}
    state = text(end, "Status", "State")
    if state in ABSENT_STATES:
        raise OperationFailedError(f"{device.name} is in the zone, but the chassis says that it is '{state}'.")
    told = f", and its endpoint is '{state}'" if state else ""
    return f"Attached, link unknown: {port.name} does not tell whether its link is up. The zone holds it{told}."


async def wait_for_configured_link(claim: OperationClaim, bmc: BmcClient, port: Port) -> str:
    """Wait while the link of a configured port trains; an unused one stays down."""
    began = time.monotonic()
    while True:
        asked_at = time.monotonic()
        link = await claim.retry(partial(read_link, bmc, port.uri))
        if link.status == "LinkUp":
            return describe_link(link)
        if link.status not in {"Training", "Starting"} or time.monotonic() > began + LINK_SECONDS:
            return f"The link is '{link.status or 'unknown'}': nothing that is attached uses it."
        await _pause_between_reads(claim, began, asked_at)


async def _pause_between_reads(claim: OperationClaim, began: float, asked_at: float) -> None:
    """Wait before a link is read again; the wait began and it was asked for then, in s of the monotonic clock.

    Raises where the operation is cancelled.
    """
    now = time.monotonic()
    await asyncio.sleep(min(max(now - asked_at, min(now - began, MIN_LINK_PAUSE)), MAX_LINK_PAUSE))
    await claim.check_cancelled()


async def _check_still_attached(claim: OperationClaim, bmc: BmcClient, device: Device) -> None:
    target = claim.operation.target
    if target is not None and target.uri not in await zones_of(claim, bmc, device.endpoint_uri):
        raise OperationFailedError(f"{device.name} was removed, or detached by somebody else, while its link trained.")
