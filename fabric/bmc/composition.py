"""Attaching and detaching in the dialects of real services, each write conditional and each result read back.

ZONE_PATCH is what H3's Falcon and Intel's PSME do (the whole list of endpoints, If-Match), ZONE_ACTIONS is Redfish's
own AddEndpoint and RemoveEndpoint, RESOURCE_BLOCKS the CompositionService's AddResourceBlock: there the zone is the
computer system, and its endpoints are the blocks.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import msgspec

from fabric.bmc.answers import Answer
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import read_zone_body
from fabric.bmc.errors import CompositionRefused, RequestRefused, ZoneChanged
from fabric.bmc.hardware import drawer_mode
from fabric.bmc.types import Dialect, DrawerMode, Link, Zone
from fabric.bmc.values import Body, inner, integer, link_speed, mapping, number, plain_uri, text, texts

# How long a BMC that accepts without a task may take until its zone tells the same, s.
SETTLES_WITHIN = 5.0
LOOKS_EVERY = 0.2
# A port's ETag covers its link, which may train between look and write: then it is looked at again, so often.
PORT_ATTEMPTS = 4
WIDEST_PORT = 256


class PortSetting(msgspec.Struct, frozen=True, kw_only=True):
    """How a port is set up: what may be changed of it by hand, and what it does with that.

    `port_types` and `widths` (lanes) are those that the BMC says it accepts, () where it does not say.
    """

    port_uri: str
    port_type: str = ""  # UpstreamPort, DownstreamPort, UnconfiguredPort; '' where the BMC has no types
    configured_width: int | None = None  # lanes to use at most
    width: int | None = None
    link_state: str = ""  # wanted: Enabled, Disabled
    link_status: str = ""  # is: LinkUp, Starting, Training, LinkDown, NoLink
    port_types: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()


async def read_zone(bmc: BmcClient, zone_uri: str) -> Zone:
    """Return a zone (or a system, in RESOURCE_BLOCKS) as it stands, with its ETag; raises BmcError."""
    return _zone(zone_uri, await bmc.get(zone_uri))


def _zone(zone_uri: str, answer: Answer) -> Zone:
    return read_zone_body(plain_uri(zone_uri), answer.body, answer.etag)


async def read_link(bmc: BmcClient, port_uri: str) -> Link:
    """Return the link of a port as it stands; speeds in Gb/s, widths in lanes. Raises BmcError."""
    return link_of(port_uri, (await bmc.get(port_uri)).body)


def link_of(port_uri: str, body: Body) -> Link:
    """Return the link that a port's body describes."""
    width, active = integer(body, "Width"), integer(body, "ActiveWidth")
    return Link(
        port_uri=plain_uri(port_uri),
        status=text(body, "LinkStatus"),
        active_width=active,
        width=width,
        speed_gbps=link_speed(number(body, "CurrentSpeedGbps"), (active, width)),
        max_speed_gbps=link_speed(number(body, "MaxSpeedGbps"), (width, active)),
        configured_width=integer(body, "ConfiguredWidth"),
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


async def read_port_setting(bmc: BmcClient, port_uri: str) -> PortSetting:
    """Return how a port is set up; raises BmcError."""
    return _setting(port_uri, (await bmc.get(port_uri)).body)


def _setting(port_uri: str, body: Body) -> PortSetting:
    return PortSetting(
        port_uri=plain_uri(port_uri),
        port_type=text(body, "PortType"),
        configured_width=integer(body, "ConfiguredWidth"),
        width=integer(body, "Width"),
        link_state=text(body, "LinkState"),
        link_status=text(body, "LinkStatus"),
        port_types=texts(body, "PortType@Redfish.AllowableValues"),
        widths=_allowable_widths(body),
    )


def _allowable_widths(body: Body) -> tuple[int, ...]:
    """Return the lane counts of a Redfish.AllowableNumbers: single numbers, or 'lowest:highest:step'."""
    found: set[int] = set()
    for entry in texts(body, "ConfiguredWidth@Redfish.AllowableNumbers"):
        match = re.fullmatch(r"(\d{1,3})(?::(\d{1,3})(?::(\d{1,3}))?)?", entry)
        if match:
            low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            found.update(range(low, min(high, WIDEST_PORT) + 1, max(step, 1)))
    return tuple(sorted(width for width in found if width > 0))


async def set_port(
    bmc: BmcClient, port_uri: str, *, port_type: str | None = None, configured_width: int | None = None
) -> PortSetting:
    """Change a port's type, its configured width (lanes), or both in one write, and return its setting read back.

    None leaves a property as it is; what is so already is not written. The link of the port may train afterwards:
    `read_link` tells. Raises CompositionRefused with the BMC's sentence, ZoneChanged if somebody else changed the
    setting meanwhile, TaskFailed or another BmcError; after a retryable one the truth is in `read_port_setting` alone.
    """
    wanted: dict[str, Any] = {"PortType": port_type, "ConfiguredWidth": configured_width}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    looked_at: PortSetting | None = None
    for attempt in range(PORT_ATTEMPTS):
        answer = await bmc.get(port_uri)
        now = _setting(port_uri, answer.body)
        change = {name: value for name, value in wanted.items() if answer.body.get(name) != value}
        if not change:
            return now
        missing = next((name for name in change if name not in answer.body), "")
        if missing:
            raise CompositionRefused(f"{bmc.host} does not let the {missing} of this port be set.")
        if looked_at is not None and _by_hand(now) != _by_hand(looked_at):
            raise ZoneChanged(f"The port of {bmc.host} has just been changed by somebody else; nothing was written.")
        looked_at = now
        try:
            written = await bmc.patch(port_uri, change, etag=answer.etag)
        except RequestRefused as error:
            if error.answered not in {412, 428}:
                raise CompositionRefused(error.reason or error.sentence, answered=error.answered) from error
            if attempt == PORT_ATTEMPTS - 1:
                raise ZoneChanged(f"The port of {bmc.host} keeps changing; nothing was written.") from error
            await asyncio.sleep(LOOKS_EVERY)
            continue
        await bmc.finish(written)
        break
    return await _port_settled(bmc, port_uri, wanted)


def _by_hand(setting: PortSetting) -> tuple[str, int | None, str]:
    return setting.port_type, setting.configured_width, setting.link_state


async def _port_settled(bmc: BmcClient, port_uri: str, wanted: dict[str, Any]) -> PortSetting:
    deadline = time.monotonic() + SETTLES_WITHIN
    while True:
        body = (await bmc.get(port_uri)).body
        if all(body.get(name) == value for name, value in wanted.items()):
            return _setting(port_uri, body)
        if time.monotonic() > deadline:
            left = next(name for name, value in wanted.items() if body.get(name) != value)
            raise CompositionRefused(f"{bmc.host} accepted the change, but the {left} of the port is not as asked.")
        await asyncio.sleep(LOOKS_EVERY)
