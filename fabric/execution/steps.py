"""The hardware steps of each kind of operation.

Every step reads first and writes only what is not in the desired state yet, so that an operation that is taken over
after a worker's death continues from the state of the hardware: nothing is done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

from core.errors import Unavailable
from core.failpoints import failpoint
from core.language import gettext_noop
from core.threads import run_in_thread, running
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import configure_port, read_link, read_zone, set_drawer_mode
from fabric.bmc.errors import BmcError
from fabric.bmc.types import DrawerMode
from fabric.bmc.values import text
from fabric.execution.claims import OperationClaim, OperationFailedError
from fabric.execution.firmware_steps import read_part_version, update_firmware
from fabric.execution.host_claims import host_claim, ports_with_agents
from fabric.execution.host_steps import (
    RELEASE_STEP,
    known_addresses,
    release_device,
    restore_device,
    skip_release,
    wait_until_seen,
)
from fabric.execution.link_steps import LinkDegradedError, wait_for_configured_link, wait_for_link
from fabric.execution.log_steps import collect_logs
from fabric.execution.membership import operation_dialect, set_membership, zones_of
from fabric.execution.part_steps import read_part, reset_part
from fabric.execution.permission import check_still_allowed, nothing_changed_note
from fabric.execution.proof import proof_begin, proof_end
from fabric.execution.trial_steps import conclude_trial, revert_trial
from fabric.inventory.models import Device, HostPort
from fabric.operations.models import Operation
from fabric.operations.rules import CABLE_SECONDS, PortSetting
from fabric.plans.refresh import (
    mirror_attachment,
    read_cabled_host_identity,
    refresh_cable,
    refresh_mode,
    refresh_port,
)

CABLE_POLL_SECONDS = 1.0


async def run_steps(claim: OperationClaim, bmc: BmcClient) -> None:
    """Run the steps of the operation; raises FalconWebError where it fails."""
    match claim.operation.kind:
        case Operation.Kind.MODE:
            await _change_mode(claim, bmc)
        case Operation.Kind.PORT:
            await _configure_port(claim, bmc)
        case Operation.Kind.CABLE:
            await _move_cable(claim, bmc)
        case Operation.Kind.RESET:
            await reset_part(claim, bmc)
        case Operation.Kind.TRIAL:
            await _try_dialect(claim, bmc)
        case Operation.Kind.FIRMWARE:
            await update_firmware(claim, bmc)
        case Operation.Kind.LOGS:
            await collect_logs(claim, bmc)
        case _:
            await _move_device(claim, bmc)


async def read_back(claim: OperationClaim, bmc: BmcClient) -> str:
    """Read the part that the operation changes, store it, and return it.

    That is the zone of the device, the mode, the port's setting, or the identity of the host that is cabled. The poller
    reads the rest of the chassis: it is notified of every end of an operation.
    """
    operation = claim.operation
    if operation.kind == Operation.Kind.MODE and operation.drawer is not None:
        return await refresh_mode(bmc, operation.drawer)
    if operation.port is not None and operation.kind == Operation.Kind.PORT:
        setting = await refresh_port(bmc, operation.port)
        requested = PortSetting(**operation.setting)
        return PortSetting(
            port_type=setting.port_type if requested.port_type else "",
            configured_width=setting.configured_width if requested.configured_width else None,
        ).words
    if operation.source is not None and operation.kind == Operation.Kind.CABLE:
        return await refresh_cable(bmc, operation.source)
    if operation.kind == Operation.Kind.LOGS:
        return ""
    if operation.managed_part is not None and operation.kind == Operation.Kind.FIRMWARE:
        return await read_part_version(bmc, operation.managed_part)
    if operation.managed_part is not None:
        return await read_part(bmc, operation.managed_part)
    if operation.device is None:
        return ""
    if operation.kind == Operation.Kind.TRIAL:
        # However it ended: what was written is reverted.
        with contextlib.suppress(BmcError):
            await revert_trial(claim, bmc)
    zones = await zones_of(claim, bmc, operation.device.endpoint_uri)
    # Of several that which is not wanted.
    zone_uri = min(zones, key=lambda uri: operation.target is not None and operation.target.uri == uri, default="")
    failpoint("operation.read")
    slot = operation.device.slot
    link = claim.link.take()
    if link is None and slot is not None and slot.port is not None:
        link = await read_link(bmc, slot.port.uri)

    def mirror(device: Device = operation.device) -> None:
        mirror_attachment(device, zone_uri, link, operation, claim.parts.zones)

    claim.meanwhile(_mirror(claim, mirror))
    return zone_uri


async def _mirror(claim: OperationClaim, mirror: Callable[[], None]) -> None:
    await claim.store_with(mirror)
    failpoint("operation.mirrored")


async def restore_on_host(claim: OperationClaim, found: str) -> None:
    """Have the host take back a device that it released, or may have, and that `read_back` found attached as before."""
    operation = claim.operation
    # Also where that step failed: the host may have released it, and its answer was lost.
    begun = any(
        step["name"] == RELEASE_STEP and step["state"] not in {"waiting", "skipped"} for step in operation.steps
    )
    if begun and operation.device is not None and operation.source is not None and operation.source.uri == found:
        await restore_device(claim, operation.device, operation.source)


def read_back_sentence(operation: Operation, found: str) -> str:
    """Return the result of `read_back` as a sentence."""
    match operation.kind:
        case Operation.Kind.MODE:
            sentence = f"The drawer is in mode {found}."
        case Operation.Kind.PORT:
            sentence = f"The port is {found}." if found else ""
        case Operation.Kind.CABLE if operation.host is not None and operation.host.identity == found:
            sentence = gettext_noop("The cable leads to that host.")
        case Operation.Kind.CABLE:
            sentence = gettext_noop("The cable leads elsewhere.")
        case Operation.Kind.LOGS:
            sentence = gettext_noop("Nothing was changed.")
        case Operation.Kind.FIRMWARE:
            sentence = f"It has version {found}."
        case Operation.Kind.RESET:
            sentence = f"Its power is '{found}'." if found else gettext_noop("It answers, and tells no power state.")
        case Operation.Kind.TRIAL if found:
            sentence = gettext_noop("It is still attached: the chassis did not let it be detached again.")
        case _:
            ports = (one for one in (operation.source, operation.target) if one is not None and one.uri == found)
            if (port := next(ports, None)) is not None:
                return f"It is attached to {port.label}."
            elsewhere, nowhere = (
                gettext_noop("It is attached to another host port."),
                gettext_noop("It is attached to no host."),
            )
            sentence = elsewhere if found else nowhere
    return sentence


async def _move_device(claim: OperationClaim, bmc: BmcClient) -> None:
    operation = claim.operation
    device = operation.device
    if device is None:
        raise OperationFailedError(gettext_noop("The device is gone from the site."))
    known = await _detach_device(claim, bmc, device)
    if operation.target is not None:
        await _attach_device(claim, bmc, device, operation.target, known)
    wanted = operation.target.uri if operation.target else ""
    where = f"at {operation.target.label} alone" if operation.target else "detached"
    await _verify(
        claim, bmc, wanted, f"The chassis does not show {device.name} {where}: somebody else may have changed it."
    )


@contextlib.asynccontextmanager
async def _check(claim: OperationClaim, bmc: BmcClient) -> AsyncIterator[None]:
    """Run the check of an operation: the requester's permission, that of the context, and the begin of the proof."""
    async with claim.step("Check", late=True):
        await run_in_thread(check_still_allowed, claim.operation)
        yield
        await proof_begin(claim, bmc)


async def _verify(claim: OperationClaim, bmc: BmcClient, wanted: str, failure: str) -> None:
    """Read the changed part back; raises OperationFailedError with `failure` where it is not as wanted."""
    async with claim.step("Read back", late=True, state=Operation.State.VERIFYING):
        if await claim.retry(partial(read_back, claim, bmc)) != wanted:
            raise OperationFailedError(failure)
        await proof_end(claim, bmc)


async def _detach_device(claim: OperationClaim, bmc: BmcClient, device: Device) -> tuple[str, ...] | None:
    """Check everything, and detach the device; returns the addresses that the target host shows."""
    operation, source, target = claim.operation, claim.operation.source, claim.operation.target
    known = None
    async with contextlib.AsyncExitStack() as until_detached:
        async with claim.step("Check", late=True):
            # The zones are read meanwhile.
            async with running(claim.retry(partial(zones_of, claim, bmc, device.endpoint_uri))) as reading:
                with_agent = await run_in_thread(_check_and_find_agents, operation)
                _check_device_identity(operation, device)
                zone_uri = await _check_current_zone(claim, bmc, device, await reading)
            await proof_begin(claim, bmc)
            is_held = source is not None and zone_uri == source.uri and not _is_reattachment_resumed(operation)
            if is_held and source is not None and source.pk in with_agent:
                await until_detached.enter_async_context(host_claim(claim, source))
            if target is not None and target.pk in with_agent:
                known = await known_addresses(device, target, is_there=_is_on_target_host(operation, zone_uri))
        if source is not None and is_held:
            await release_device(claim, device, source, has_agent=source.pk in with_agent)
        elif source is not None:
            # Its host has others of the kind, or has it at another port by now: none of them may be released.
            skip_release(claim, source)
        if source is not None and not _is_reattachment_resumed(operation):
            async with claim.step("Detach", late=True):
                await claim.retry(partial(set_membership, claim, bmc, source.uri, device.endpoint_uri, present=False))
    return known


async def _attach_device(
    claim: OperationClaim, bmc: BmcClient, device: Device, target: HostPort, known: tuple[str, ...] | None
) -> None:
    """Attach the device, and wait for its link and its host; `known` are the addresses that the host showed before."""
    async with claim.step("Attach", late=True):
        await claim.retry(partial(set_membership, claim, bmc, target.uri, device.endpoint_uri, present=True))
    try:
        async with claim.step("Wait for the link", late=True) as step:
            step["sentence"], is_up = await wait_for_link(claim, bmc, device)
    except LinkDegradedError:
        # However the link has trained, the host rescans: the device works, if slowly.
        with contextlib.suppress(OperationFailedError, Unavailable):
            await wait_until_seen(claim, device, target, known)
        raise
    await wait_until_seen(claim, device, target, known, is_link_up=is_up)


def _check_and_find_agents(operation: Operation) -> set[int]:
    """Check the requester's permission; returns those of its host ports (ids) whose hosts have an agent."""
    check_still_allowed(operation)
    return ports_with_agents(operation.source, operation.target)


def _check_device_identity(operation: Operation, device: Device) -> None:
    """Raise where the slot's row has another device than at the request."""
    identity = operation.device_identity
    if identity and identity not in {device.identity, device.kind_identity}:
        raise OperationFailedError(
            f"There is another device in the slot since this was requested: {device.name}."
            f"{nothing_changed_note(operation)}"
        )


def _is_reattachment_resumed(operation: Operation) -> bool:
    """Return whether a previous worker has done the detach of a reattachment, which must not be repeated."""
    attach = next((step for step in operation.steps if step["name"] == "Attach"), None)
    return operation.source_id == operation.target_id and attach is not None and attach["state"] != "waiting"


def _is_on_target_host(operation: Operation, zone_uri: str) -> bool:
    """Return whether the target host has the device already, at any of its ports."""
    hosts = {port.uri: port.host_id for port in (operation.source, operation.target) if port is not None}
    target = operation.target
    return target is not None and target.host_id is not None and hosts.get(zone_uri) == target.host_id


async def _check_current_zone(claim: OperationClaim, bmc: BmcClient, device: Device, zones: list[str]) -> str:
    """Return that of its zones in which the device is, '' for none; raises OperationFailedError for one not of these.

    From one of several it may still be detached.
    """
    operation = claim.operation
    own = [port.uri for port in (operation.source, operation.target) if port is not None]
    zone_uri = next((uri for uri in own if uri in zones), "")
    if set(zones) - set(own) and not (zone_uri and operation.target is None):
        raise OperationFailedError(
            f"{device.name} was attached elsewhere outside this operation.{nothing_changed_note(operation)}"
        )
    if operation.target is not None:
        found = text((await claim.retry(partial(bmc.get, device.uri))).body, "SerialNumber")
        if device.serial_number and found and found != device.serial_number:
            raise OperationFailedError(f"There is another device in the slot now (serial number {found}).")
    return zone_uri


async def _try_dialect(claim: OperationClaim, bmc: BmcClient) -> None:
    """Attach a device that is nobody's and detach it again, by a dialect that its chassis does not show."""
    device, port = claim.operation.device, claim.operation.target
    if device is None or port is None:
        raise OperationFailedError(gettext_noop("The device or the host port is gone from the site."))
    async with _check(claim, bmc):
        _check_device_identity(claim.operation, device)
        zones = await claim.retry(partial(zones_of, claim, bmc, device.endpoint_uri))
        await _check_current_zone(claim, bmc, device, zones)
    async with claim.step("Write", late=True) as step:
        await claim.retry(partial(set_membership, claim, bmc, port.uri, device.endpoint_uri, present=True))
        step["sentence"] = f"The zone of {port.label} holds {device.name}, as read back."
    async with claim.step("Revert", late=True) as step:
        await claim.retry(partial(revert_trial, claim, bmc))
        step["sentence"] = f"The zone of {port.label} no longer holds it."
    await _verify(claim, bmc, "", f"{device.name} is still in a zone.")
    await run_in_thread(conclude_trial, claim.operation)


async def _change_mode(claim: OperationClaim, bmc: BmcClient) -> None:
    drawer = claim.operation.drawer
    if drawer is None:
        raise OperationFailedError(gettext_noop("The drawer is gone from the site."))
    mode = DrawerMode(claim.operation.mode)
    async with _check(claim, bmc):
        await claim.retry(partial(bmc.get, drawer.uri))
    async with claim.step("Change mode", late=True):
        await claim.retry(partial(set_drawer_mode, bmc, drawer.uri, mode))
    await _verify(claim, bmc, mode, gettext_noop("The drawer does not show the new mode."))


async def _configure_port(claim: OperationClaim, bmc: BmcClient) -> None:
    port, setting = claim.operation.port, claim.operation.setting
    if port is None:
        raise OperationFailedError(gettext_noop("The port is gone from the site."))
    async with _check(claim, bmc):
        await claim.retry(partial(bmc.get, port.uri))
    async with claim.step("Configure", late=True):
        width = setting.get("configured_width")
        port_type = setting.get("port_type") or None
        await claim.retry(partial(configure_port, bmc, port.uri, port_type=port_type, configured_width=width))
    async with claim.step("Wait for the link", late=True) as step:
        step["sentence"] = await wait_for_configured_link(claim, bmc, port)
    await _verify(
        claim, bmc, PortSetting(**setting).words, gettext_noop("The port does not show the new configuration.")
    )


async def _move_cable(claim: OperationClaim, bmc: BmcClient) -> None:
    """Wait until a person has moved the cable of a host port, as the BMC reports it."""
    port, host = claim.operation.source, claim.operation.host
    if port is None:
        raise OperationFailedError(gettext_noop("The host port is gone from the site."))
    wanted = host.identity if host is not None else ""
    async with _check(claim, bmc):
        zone = await claim.retry(partial(read_zone, bmc, port.uri, operation_dialect(claim.operation)))
        if set(zone.members) - {port.endpoint_uri}:
            raise OperationFailedError(f"Devices are still attached to {port.label}: its cable must stay.")
    async with claim.step("Wait for the cable") as step:
        where = host.name if host is not None else "no host: unplug it"
        step["sentence"] = f"Now move the cable of {port.label} to {where}."
        await claim.save()
        end = time.monotonic() + CABLE_SECONDS
        while await claim.retry(partial(read_cabled_host_identity, bmc, port)) != wanted:
            if time.monotonic() > end:
                minutes = f"{CABLE_SECONDS / 60:.0f} minutes"
                raise OperationFailedError(f"The chassis did not see the cable of {port.label} move within {minutes}.")
            await asyncio.sleep(CABLE_POLL_SECONDS)
            await claim.check_cancelled()
        step["sentence"] = f"The cable of {port.label} leads to {where}."
    await _verify(claim, bmc, wanted, f"The cable of {port.label} has been moved again.")
