"""Attaching, detaching and port settings in the dialects of real services, each write conditional and read back.

Snapshots of zones and links, for the proof of an operation, take as few requests as a service allows. A 'zone' is the
resource that has the devices of a host port in the dialect of a service (fabric.bmc.dialects), as a computer system.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import msgspec

from core.failpoints import failpoint
from fabric.bmc.client import BmcClient, retry_while_unreachable
from fabric.bmc.dialects import AttachmentDialect, HeldZone, changed_meanwhile, dialect_of
from fabric.bmc.errors import BmcError, CompositionRefused, RequestRefused, ServerFault, TaskFailed, ZoneChanged
from fabric.bmc.hardware import drawer_mode
from fabric.bmc.port_links import PortLink
from fabric.bmc.resources import read_resources
from fabric.bmc.settling import settle
from fabric.bmc.transport import parse_json_object
from fabric.bmc.types import Dialect, DrawerMode, RedfishSystem
from fabric.bmc.values import (
    JsonObject,
    corrected_link_speed,
    integer,
    mapping,
    named_texts,
    normalize_uri,
    number,
    objects,
    text,
)

LINKS_REMEMBERED = 64  # some KB each
PORT_RETRY_SECONDS = 0.2
# A port's ETag covers its link, which may train between read and write: the read is repeated up to so many times.
MAX_PORT_ATTEMPTS = 4


async def read_zone(bmc: BmcClient, zone_uri: str, dialect: Dialect = Dialect.NONE) -> HeldZone:
    """Return a host port as it is now, with its devices and ETag; a zone's without a dialect. Raises BmcError."""
    return await dialect_of(dialect).read(bmc, normalize_uri(zone_uri))


async def read_zones(bmc: BmcClient, zone_uris: Iterable[str], dialect: Dialect) -> dict[str, HeldZone]:
    """Return host ports as they are now by URI, without those that are gone; in few requests. Raises BmcError."""
    if not bmc.root:
        await bmc.service_root()
    return await dialect_of(dialect).read_many(bmc, sorted({normalize_uri(uri) for uri in zone_uris}))


async def read_link(bmc: BmcClient, port_uri: str, *, is_repeated: bool = False) -> PortLink:
    """Return the present link of a port; speeds in Gb/s, widths in lanes. Raises BmcError."""
    return _link_of(port_uri, await bmc.get_bytes(port_uri, is_repeated=is_repeated), f"{bmc.host}{port_uri}")


@lru_cache(LINKS_REMEMBERED)
def _link_of(port_uri: str, raw: bytes, where: str) -> PortLink:
    # A link that trains is read again and again, and tells the same.
    return port_link(port_uri, parse_json_object(raw, where=where))


def port_link(port_uri: str, body: JsonObject) -> PortLink:
    """Return the link that a port's body describes."""
    width, active = integer(body, "Width"), integer(body, "ActiveWidth")
    return PortLink(
        port_uri=normalize_uri(port_uri),
        status=text(body, "LinkStatus"),
        active_width=active,
        width=width,
        speed_gbps=corrected_link_speed(number(body, "CurrentSpeedGbps"), (active, width)),
        max_speed_gbps=corrected_link_speed(number(body, "MaxSpeedGbps"), (width, active)),
        configured_width=integer(body, "ConfiguredWidth"),
        **named_texts(body, "PortType", "LinkState"),
    )


async def attach(bmc: BmcClient, dialect: Dialect, *, zone: HeldZone | str, endpoint_uri: str) -> HeldZone:
    """Add an endpoint (or block) to a zone and return the zone read back; a member is not written again.

    `zone` is how somebody saw it, or its URI alone: then it may be as it is. Raises ZoneChanged if the zone no longer
    matches, CompositionRefused with the BMC's sentence if its rules forbid it, TaskFailed or another BmcError. After a
    retryable error only `read_zone` shows the result.
    """
    return await _set_membership(bmc, dialect_of(dialect), zone, normalize_uri(endpoint_uri), present=True)


async def detach(bmc: BmcClient, dialect: Dialect, *, zone: HeldZone | str, endpoint_uri: str) -> HeldZone:
    """Remove an endpoint (or block) from a zone and return the zone read back; raises as `attach` does."""
    return await _set_membership(bmc, dialect_of(dialect), zone, normalize_uri(endpoint_uri), present=False)


async def _set_membership(
    bmc: BmcClient, dialect: AttachmentDialect, seen: HeldZone | str, member: str, *, present: bool
) -> HeldZone:
    zone = current = await dialect.read(bmc, normalize_uri(seen) if isinstance(seen, str) else seen.uri)
    if not isinstance(seen, str):
        zone = seen
    if (member in current.members) is present:
        return current
    changed = changed_meanwhile(bmc, zone)
    if set(current.members) != set(zone.members) or (zone.etag and current.etag and zone.etag != current.etag):
        raise changed
    failpoint("bmc.attach.request" if present else "bmc.detach.request")
    what = "does not hold" if present else "still holds"
    try:
        with _refusals_explained(changed.sentence):
            written = await dialect.change(bmc, current, member, present=present)
        failpoint("bmc.attach.answered" if present else "bmc.detach.answered")
        found = await settle(
            bmc,
            written,
            partial(dialect.read, bmc, zone.uri),
            lambda found: (member in found.members) is present,
            lambda _: f"{bmc.host} accepted the change, but zone {zone.name} {what} {member.rsplit('/', 1)[-1]}.",
        )
    except (CompositionRefused, RequestRefused, ServerFault, TaskFailed) as error:
        if dialect.lists_members:
            await _put_back(bmc, dialect, current, {member}, because=error.sentence)
        raise
    if present:
        await dialect.confirm(bmc, found, member)
    others = set(current.members) - {member}
    if dialect.lists_members and others and not others.intersection(found.members):
        await _put_back(bmc, dialect, current, {member}, because=f"{bmc.host} accepted the change.")
    return found


async def _put_back(
    bmc: BmcClient, dialect: AttachmentDialect, before: HeldZone, member: set[str], *, because: str
) -> None:
    """Restore what a service dropped from a zone at a write, as some do where they refuse it.

    Raises CompositionRefused, whose details have the name of the `zone`, the `lost` members and those `left` out, if
    anything but the one member of the write was gone.
    """
    # Once the write is over nobody else knows what was there.
    now = await retry_while_unreachable(partial(dialect.read, bmc, before.uri))
    lost = [uri for uri in before.members if uri not in now.members]
    if set(lost) <= member:
        return
    read = partial(dialect.read, bmc, before.uri)

    async def add(uri: str) -> HeldZone:
        written = await dialect.change(bmc, now, uri, present=True)
        return await settle(bmc, written, read, lambda zone: uri in zone.members, lambda _: "")

    with suppress(BmcError):
        for uri in lost:
            now = await add(uri)
    with suppress(BmcError):
        now = await read()
    left = [uri for uri in lost if uri not in now.members]
    outcome = f"{len(left)} could not be put back" if left else "they were put back"
    raise CompositionRefused(
        f"{because.rstrip('.')}. With that, {len(lost)} members of zone {before.name} were dropped: {outcome}.",
        zone=before.name,
        lost=lost,
        left=left,
    )


@contextmanager
def _refusals_explained(changed: str) -> Iterator[None]:
    """Raise ZoneChanged with a sentence where a conditional write found a change, else CompositionRefused."""
    try:
        yield
    except RequestRefused as error:
        if error.answered in {412, 428}:
            raise ZoneChanged(changed, answered=412) from error
        raise CompositionRefused(error.reason or error.sentence, answered=error.answered) from error


async def read_drawer_mode(bmc: BmcClient, drawer_uri: str) -> DrawerMode:
    """Return the present mode of a drawer; raises BmcError."""
    return drawer_mode((await bmc.get(drawer_uri)).body)[0]


async def set_drawer_mode(bmc: BmcClient, drawer_uri: str, mode: DrawerMode) -> None:
    """Set the mode of a drawer and wait until the BMC reports it; a drawer already in it is not written.

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
    failpoint("bmc.mode.request")
    with _refusals_explained(f"The drawer of {bmc.host} has just changed; nothing was written."):
        written = await bmc.patch(drawer_uri, {"Oem": {vendor: {"DrawerMode": mode.value}}}, etag=answer.etag)
    failpoint("bmc.mode.answered")
    await settle(
        bmc,
        written,
        partial(read_drawer_mode, bmc, drawer_uri),
        lambda found: found is mode,
        lambda _: f"{bmc.host} accepted the mode {mode.value}, but the drawer is not in it.",
    )


async def configure_port(
    bmc: BmcClient, port_uri: str, *, port_type: str | None = None, configured_width: int | None = None
) -> PortLink:
    """Change a port's type, its configured width (lanes), or both in one write, and return the port read back.

    None leaves a property unchanged; a property with the requested value is not written. The link of the port may train
    afterwards. Raises CompositionRefused with the BMC's sentence, ZoneChanged if the setting was changed concurrently,
    TaskFailed or another BmcError; after a retryable one only `read_link` is reliable.
    """
    wanted: dict[str, Any] = {"PortType": port_type, "ConfiguredWidth": configured_width}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    previous: PortLink | None = None
    for attempt in range(MAX_PORT_ATTEMPTS):
        answer = await bmc.get(port_uri)
        now = port_link(port_uri, answer.body)
        change = {name: value for name, value in wanted.items() if answer.body.get(name) != value}
        if not change:
            return now
        missing = next((name for name in change if name not in answer.body), "")
        if missing:
            raise CompositionRefused(f"{bmc.host} does not let the {missing} of this port be set.")
        if previous is not None and _writable_values(now) != _writable_values(previous):
            raise ZoneChanged(f"The port of {bmc.host} has just been changed by somebody else; nothing was written.")
        previous = now
        failpoint("bmc.port.request")
        try:
            with _refusals_explained(f"The port of {bmc.host} keeps changing; nothing was written."):
                written = await bmc.patch(port_uri, change, etag=answer.etag)
        except ZoneChanged:
            if attempt == MAX_PORT_ATTEMPTS - 1:
                raise
            await asyncio.sleep(PORT_RETRY_SECONDS)
            continue
        failpoint("bmc.port.answered")
        break
    else:
        raise AssertionError("every attempt ends or raises")

    def differing(body: JsonObject) -> list[str]:
        return [name for name, value in wanted.items() if body.get(name) != value]

    async def read_body() -> JsonObject:
        return (await bmc.get(port_uri)).body

    body = await settle(
        bmc,
        written,
        read_body,
        lambda found: not differing(found),
        lambda found: f"{bmc.host} accepted the change, but the {differing(found)[0]} of the port is not as requested.",
    )
    return port_link(port_uri, body)


def _writable_values(port: PortLink) -> tuple[str, int | None, str]:
    return port.port_type, port.configured_width, port.link_state


@dataclass(frozen=True)
class PortCounters:
    """The counters of a port: `errors` are PCIeErrors, whole numbers only; `reset_target` '' where none is offered."""

    errors: dict[str, int]
    rx_bytes: int | None
    tx_bytes: int | None
    reset_target: str

    @property
    def counts(self) -> dict[str, int]:
        """All counters by name."""
        bytes_ = {"RXBytes": self.rx_bytes, "TXBytes": self.tx_bytes}
        return self.errors | {name: count for name, count in bytes_.items() if count is not None}


async def read_port_counters(bmc: BmcClient, metrics_uri: str) -> PortCounters:
    """Return the counters of a port; raises BmcError."""
    body = (await bmc.get(metrics_uri)).body
    errors = mapping(body, "PCIeErrors")
    counts = {name: integer(errors, name) for name in errors}
    return PortCounters(
        errors={name: count for name, count in counts.items() if count is not None and count >= 0},
        rx_bytes=integer(body, "RXBytes"),
        tx_bytes=integer(body, "TXBytes"),
        reset_target=text(body, "Actions", "#PortMetrics.ResetMetrics", "target"),
    )


async def reset_port_counters(bmc: BmcClient, metrics_uri: str) -> tuple[PortCounters, PortCounters]:
    """Set the counters of a port to zero; return them as read before, and read back after.

    The read-back shows that counting has restarted, and may include new errors. Raises CompositionRefused where the BMC
    offers no reset, refuses it, or does not perform it; TaskFailed or another BmcError.
    """
    before = await read_port_counters(bmc, metrics_uri)
    if not before.reset_target:
        raise CompositionRefused("Its BMC offers no way to set the counters of a port to zero.")
    try:
        written = await bmc.post(before.reset_target, {})
    except RequestRefused as error:
        raise CompositionRefused(error.reason or "Its BMC refused the reset.", answered=error.answered) from error
    after = await settle(
        bmc,
        written,
        partial(read_port_counters, bmc, metrics_uri),
        lambda found: _was_reset(before, found),
        lambda _: "Its BMC accepted the reset, but the counters continue as before.",
    )
    return before, after


def _was_reset(before: PortCounters, after: PortCounters) -> bool:
    """Return whether counters were reset: one is lower, or all were zero."""
    counted = {name: count for name, count in before.counts.items() if count > 0}
    return not counted or any(after.counts.get(name, 0) < count for name, count in counted.items())


# Status, width and active width in lanes, speed in Gb/s: what a tenant would notice of a change.
LinkState = tuple[str, int | None, int | None, float | None]


class CompositionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Members of each zone, sorted, and the state of each port's link.

    Resources that the BMC no longer has (404, 410) have no entry. Two snapshots of the same unchanged state are equal,
    and so are their JSON.
    """

    zones: dict[str, tuple[str, ...]]
    links: dict[str, LinkState]


async def read_snapshot(
    bmc: BmcClient,
    *,
    zone_uris: Iterable[str],
    port_uris: Iterable[str],
    dialect: Dialect,
    zones: Mapping[str, HeldZone] | None = None,
) -> CompositionSnapshot:
    """Return the present state of the named zones and links; `zones` where `read_zones` has just returned these.

    With $expand it takes one request per collection (Zones, and Ports of each switch; Systems in RESOURCE_BLOCKS),
    without it one per zone and port: 3 in place of 24 for a Falcon of four host ports. Raises BmcError where any of
    them cannot be read: half a snapshot proves nothing.
    """
    ports = sorted({normalize_uri(uri) for uri in port_uris})
    if not bmc.root:
        await bmc.service_root()
    held = zones if zones is not None else await read_zones(bmc, zone_uris, dialect)
    bodies = await read_resources(bmc, ports)
    return CompositionSnapshot(
        zones={uri: tuple(sorted(zone.members)) for uri, zone in held.items()},
        links={uri: _link_state(uri, body) for uri, body in bodies.items()},
    )


def _link_state(uri: str, body: JsonObject) -> LinkState:
    link = port_link(uri, body)
    return link.status, link.width, link.active_width, link.speed_gbps


async def read_cabled_host(bmc: BmcClient, endpoint_uri: str) -> RedfishSystem | None:
    """Return the host behind an initiator's endpoint, None where no cable leads to one.

    Of the system only its identity is read: URI, name, manufacturer, serial number and UUID. Raises BmcError where it
    cannot be read.
    """
    for entity in objects((await bmc.get(endpoint_uri)).body, "ConnectedEntities"):
        uri = text(entity, "EntityLink", "@odata.id")
        if not uri or text(entity, "EntityRole") == "Target":
            continue
        if (system := await bmc.get_or_none(uri)) is not None:
            return RedfishSystem(
                uri=normalize_uri(uri),
                **named_texts(system, "Name", "HostName", "Manufacturer", "SerialNumber", "UUID"),
            )
    return None
