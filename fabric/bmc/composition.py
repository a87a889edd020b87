"""Attaching and detaching in the dialects of real services, each write conditional and each result read back.

ZONE_PATCH is what H3's Falcon and Intel's PSME do (the whole list of endpoints, If-Match), ZONE_ACTIONS is Redfish's
own AddEndpoint and RemoveEndpoint, RESOURCE_BLOCKS the CompositionService's AddResourceBlock: there the zone is the
computer system, and its endpoints are the blocks.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fabric.bmc.answers import Answer
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import read_zone_body
from fabric.bmc.errors import CompositionRefused, RequestRefused, ZoneChanged
from fabric.bmc.hardware import drawer_mode
from fabric.bmc.types import Dialect, DrawerMode, Link, Zone
from fabric.bmc.values import inner, integer, link_speed, mapping, number, plain_uri, text

# How long a BMC that accepts without a task may take until its zone tells the same, s.
SETTLES_WITHIN = 5.0
LOOKS_EVERY = 0.2


async def read_zone(bmc: BmcClient, zone_uri: str) -> Zone:
    """Return a zone (or a system, in RESOURCE_BLOCKS) as it stands, with its ETag; raises BmcError."""
    return _zone(zone_uri, await bmc.get(zone_uri))


def _zone(zone_uri: str, answer: Answer) -> Zone:
    return read_zone_body(plain_uri(zone_uri), answer.body, answer.etag)


async def read_link(bmc: BmcClient, port_uri: str) -> Link:
    """Return the link of a port as it stands; speeds in Gb/s, widths in lanes. Raises BmcError."""
    body = (await bmc.get(port_uri)).body
    width, active = integer(body, "Width"), integer(body, "ActiveWidth")
    return Link(
        port_uri=plain_uri(port_uri),
        status=text(body, "LinkStatus"),
        active_width=active,
        width=width,
        speed_gbps=link_speed(number(body, "CurrentSpeedGbps"), (active, width)),
        max_speed_gbps=link_speed(number(body, "MaxSpeedGbps"), (width, active)),
    )


async def attach(bmc: BmcClient, dialect: Dialect, *, zone: Zone, endpoint_uri: str) -> Zone:
    """Put an endpoint (or block) into a zone and return the zone read back; one that is in already is not written.

    Raises ZoneChanged if the zone is no longer as `zone` says, CompositionRefused with the BMC's sentence if its rules
    say no, TaskFailed or another BmcError. After one of the retryable errors the truth is in `read_zone` alone.
    """
    return await _change(bmc, dialect, zone, plain_uri(endpoint_uri), present=True)


async def detach(bmc: BmcClient, dialect: Dialect, *, zone: Zone, endpoint_uri: str) -> Zone:
    """Take an endpoint (or block) out of a zone and return the zone read back; raises as `attach` does."""
    return await _change(bmc, dialect, zone, plain_uri(endpoint_uri), present=False)


def members_of(zone: Zone, dialect: Dialect) -> tuple[str, ...]:
    """Return what is attached: endpoints of a zone, or blocks of a system."""
    return zone.resource_block_uris if dialect is Dialect.RESOURCE_BLOCKS else zone.endpoint_uris


async def _change(bmc: BmcClient, dialect: Dialect, zone: Zone, member: str, *, present: bool) -> Zone:
    if dialect is Dialect.NONE:
        raise CompositionRefused(f"{bmc.host} offers no way to attach or detach devices; it can only be monitored.")
    answer = await bmc.get(zone.uri)
    current = _zone(zone.uri, answer)
    if (member in members_of(current, dialect)) is present:
        return current
    if set(members_of(current, dialect)) != set(members_of(zone, dialect)) or (
        zone.etag and current.etag and zone.etag != current.etag
    ):
        raise ZoneChanged(f"Zone {zone.name} of {bmc.host} has been changed by somebody else; nothing was written.")
    try:
        if dialect is Dialect.ZONE_PATCH:
            written = await _patch(bmc, current, answer.body, member, present=present)
        else:
            written = await _act(bmc, dialect, current, member, present=present)
    except RequestRefused as error:
        if error.answered in {412, 428}:
            raise ZoneChanged(
                f"Zone {zone.name} of {bmc.host} has been changed by somebody else; nothing was written.", answered=412
            ) from error
        raise CompositionRefused(error.reason or error.sentence, answered=error.answered) from error
    await bmc.finish(written)
    return await _read_back(bmc, dialect, zone, member, present=present)


async def _patch(bmc: BmcClient, zone: Zone, body: dict[str, Any], member: str, *, present: bool) -> Answer:
    # The order is kept: the host port's endpoint comes first, and some services mind.
    others = [uri for uri in zone.endpoint_uris if uri != member]
    wanted = [{"@odata.id": uri} for uri in [*others, *([member] if present else [])]]
    # Older PSME lists endpoints at the top level, and wants them written there.
    at_top = inner(body, "Links", "Endpoints") is None and isinstance(body.get("Endpoints"), list)
    change: dict[str, Any] = {"Endpoints": wanted}
    return await bmc.patch(zone.uri, change if at_top else {"Links": change}, etag=zone.etag)


async def _act(bmc: BmcClient, dialect: Dialect, zone: Zone, member: str, *, present: bool) -> Answer:
    target = zone.add_endpoint_target if present else zone.remove_endpoint_target
    if not target:
        raise CompositionRefused(f"{zone.name} of {bmc.host} offers no action to attach or detach.")
    of_member, of_zone = (
        ("ResourceBlock", "ComputerSystem") if dialect is Dialect.RESOURCE_BLOCKS else ("Endpoint", "Zone")
    )
    body: dict[str, Any] = {of_member: {"@odata.id": member}}
    etag = (await bmc.get(member)).etag
    if etag:
        body[f"{of_member}ETag"] = etag
    if zone.etag:
        body[f"{of_zone}ETag"] = zone.etag
    return await bmc.post(target, body)


async def _read_back(bmc: BmcClient, dialect: Dialect, zone: Zone, member: str, *, present: bool) -> Zone:
    deadline = time.monotonic() + SETTLES_WITHIN
    while True:
        current = await read_zone(bmc, zone.uri)
        if (member in members_of(current, dialect)) is present:
            return current
        if time.monotonic() > deadline:
            what = "does not hold" if present else "still holds"
            raise CompositionRefused(
                f"{bmc.host} accepted the change, but zone {zone.name} {what} {member.rsplit('/', 1)[-1]}."
            )
        await asyncio.sleep(LOOKS_EVERY)


async def read_drawer_mode(bmc: BmcClient, drawer_uri: str) -> DrawerMode:
    """Return the mode that a drawer is in; raises BmcError."""
    return drawer_mode((await bmc.get(drawer_uri)).body)[0]


async def set_drawer_mode(bmc: BmcClient, drawer_uri: str, mode: DrawerMode) -> None:
    """Put a drawer into a mode and wait until the BMC says so; a drawer already in it is not written.

    Raises CompositionRefused with the BMC's sentence, ZoneChanged if the drawer changed meanwhile, TaskFailed.
    """
    answer = await bmc.get(drawer_uri)
    if drawer_mode(answer.body)[0] is mode:
        return
    vendor = next(
        (name for name, part in mapping(answer.body, "Oem").items() if isinstance(part, dict) and "DrawerMode" in part),
        "",
    )
    if not vendor:
        raise CompositionRefused(f"{bmc.host} does not let the mode of this drawer be set.")
    try:
        written = await bmc.patch(drawer_uri, {"Oem": {vendor: {"DrawerMode": mode.value}}}, etag=answer.etag)
    except RequestRefused as error:
        if error.answered in {412, 428}:
            raise ZoneChanged(f"The drawer of {bmc.host} has just changed; nothing was written.") from error
        raise CompositionRefused(error.reason or error.sentence, answered=error.answered) from error
    await bmc.finish(written)
    deadline = time.monotonic() + SETTLES_WITHIN
    while drawer_mode((await bmc.get(drawer_uri)).body)[0] is not mode:
        if time.monotonic() > deadline:
            raise CompositionRefused(f"{bmc.host} accepted the mode {mode.value}, but the drawer is not in it.")
        await asyncio.sleep(LOOKS_EVERY)
