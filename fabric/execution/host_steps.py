"""The host's part of an attachment: its agent releases a device before it is detached, and rescans afterwards.

Where no agent runs, or none answers, the step is skipped with a sentence that says so.
"""

from __future__ import annotations

import asyncio
import logging
import time

from core.errors import Unavailable
from core.language import gettext_noop
from core.threads import run_in_thread
from fabric.agents.models import HostAgent
from fabric.agents.selectors import (
    DeviceMatch,
    attached_devices,
    device_selector,
    holders_label,
    latest_report,
    match_device,
    no_report_reason,
    reporting_agent,
)
from fabric.agents.services import agent_request
from fabric.execution.claims import OperationClaim, OperationFailedError
from fabric.execution.host_claims import host_claim
from fabric.inventory.labels import may_name_host
from fabric.inventory.models import Device, Host, HostPort
from hostwire.protocol import CommandAnswer, DrainRequest, PciDevice, RescanRequest, RestoreRequest

logger = logging.getLogger(__name__)

RELEASE_STEP = gettext_noop("Release on the host")
SEEN_STEP = gettext_noop("Seen by the host")
# Where the host belongs to another tenant than the device, nothing of it is disclosed, not even its name.
NO_AGENT_REPORTS = "No agent reports for its host."
LEAVE_SECONDS = 10.0  # time for processes to close a device by themselves
RESTORE_SECONDS = 5.0  # for a device that was released, and is still attached
APPEAR_SECONDS = 60.0  # a rescan takes from under 1 s up to minutes
BROKER_SECONDS = 20.0  # time for a broker to restart
BROKER_RETRY_PAUSE = 0.5


async def release_device(claim: OperationClaim, device: Device, port: HostPort, *, has_agent: bool) -> None:
    """Have the host release a device; raises OperationFailedError where it is in use and not forced."""
    none = None, no_report_reason(port, is_known=False)
    agent, why_not = (await run_in_thread(reporting_agent, port)) if has_agent else none
    is_named = may_name_host(device, port)
    if agent is None:
        claim.skip(
            RELEASE_STEP, f"{why_not if is_named else NO_AGENT_REPORTS} Whether the device is in use is unknown."
        )
        return
    forced = claim.operation.forced
    name = agent.host.name if is_named else "its host"
    async with claim.step(RELEASE_STEP) as step:
        found = await run_in_thread(_match, agent, device)
        if found.unsure:
            # The card that was named may be another one, in use by others.
            if not forced:
                raise OperationFailedError(f"{device.name} cannot be released: {found.unsure}. Nothing was detached.")
            step["sentence"] = f"Its host was not told to release it: {found.unsure}. It is forced anyway."
            return
        selector = device_selector(device, found.seen)
        wait = 0.0 if forced else LEAVE_SECONDS
        try:
            patience = 0.0 if forced else BROKER_SECONDS
            answer = await _request_agent(
                claim, agent.host, DrainRequest(selector, wait=wait, force=forced), patience=patience
            )
        except Unavailable as error:
            if not forced:
                raise
            step["sentence"] = f"{error.sentence} It is forced anyway."
            return
        if answer is None:
            if not forced:
                raise OperationFailedError(f"The agent of {name} did not answer: nothing was detached.")
            step["sentence"] = f"The agent of {name} did not answer. It is forced anyway."
        elif answer.outcome in {"removed", "not_present"}:
            step["sentence"] = answer.sentence if is_named else gettext_noop("Its host was told to release it.")
        elif forced and answer.outcome not in {"refused", "in_use"}:
            # The host did not manage in time. A device that it refuses to release even by force stays: it has data.
            sentence = answer.sentence if is_named else "Its host could not release it."
            step["sentence"] = f"{sentence} It is forced anyway."
        elif answer.outcome == "in_use":
            who = f": {holders_label(answer.holders)}" if is_named else " on its host"
            raise OperationFailedError(f"{device.name} is in use{who}. Nothing was detached.")
        elif is_named:
            raise OperationFailedError(f"{name} does not release the device: {answer.sentence}")
        else:
            raise OperationFailedError(gettext_noop("Its host does not release the device. Nothing was detached."))


def skip_release(claim: OperationClaim, port: HostPort) -> None:
    """Skip the release of a device that has left its host port; the work of a previous worker stays."""
    step = next(step for step in claim.operation.steps if step["name"] == RELEASE_STEP)
    if step["state"] != "done":
        claim.skip(RELEASE_STEP, f"It is no longer attached to {port.label}: its host has no card to release.")


async def restore_device(claim: OperationClaim, device: Device, port: HostPort) -> None:
    """Have the host take back a device that it released, and that was not detached after all; tries once."""
    agent, _ = await run_in_thread(reporting_agent, port)
    if agent is None:
        return
    try:
        await agent_request(
            agent.host, RestoreRequest(device_selector(device), wait=RESTORE_SECONDS), wait=RESTORE_SECONDS
        )
    except Unavailable as error:
        logger.warning("operation %s: the device was not restored on its host: %s", claim.operation.pk, error.sentence)


async def known_addresses(device: Device, port: HostPort, *, is_there: bool) -> tuple[str, ...] | None:
    """Return the addresses that a host shows before a device is attached to it; None where they are unknown.

    Its own address is excluded where it `is_there` already: at the host's other port, or attached by a previous worker.
    """
    agent, _ = await run_in_thread(reporting_agent, port)
    report = latest_report(agent)
    if agent is None or report is None:
        return None
    own = (await run_in_thread(_match, agent, device)).seen if is_there else None
    return tuple(one.address for one in report.devices if own is None or one.address != own.address)


async def wait_until_seen(
    claim: OperationClaim, device: Device, port: HostPort, known: tuple[str, ...] | None, *, is_link_up: bool = True
) -> None:
    """Have the host rescan for an attached device; raises OperationFailedError where it does not see it.

    `is_link_up` is False where the chassis did not tell that.
    """
    agent, why_not = await run_in_thread(reporting_agent, port)
    is_named = may_name_host(device, port)
    if agent is None:
        claim.skip(
            SEEN_STEP,
            f"{why_not if is_named else NO_AGENT_REPORTS} The device is verified up to its "
            f"{'link' if is_link_up else 'zone'}.",
        )
        return
    name = agent.host.name if is_named else "its host"
    standing = "Attached, with its link up" if is_link_up else "Attached"
    async with claim.step(SEEN_STEP) as step:
        request = RescanRequest((device_selector(device),), wait=APPEAR_SECONDS, known=known)
        async with host_claim(claim, port):
            answer = await _request_agent(claim, agent.host, request, patience=BROKER_SECONDS)
        if answer is None:
            raise OperationFailedError(f"{standing}, but the agent of {name} did not answer.")
        if answer.outcome != "seen":
            why = f": {answer.sentence}" if is_named else "."
            raise OperationFailedError(f"{standing}, but {name} does not see it{why}")
        step["sentence"] = _seen_sentence(name, answer.devices) if is_named else gettext_noop("Its host sees it.")


async def _request_agent(
    claim: OperationClaim, host: Host, request: DrainRequest | RescanRequest, *, patience: float
) -> CommandAnswer | None:
    """Send a request to an agent, retried for up to `patience` s without a broker; raises Unavailable after that."""
    end = time.monotonic() + patience
    while True:
        try:
            return await agent_request(host, request, wait=request.wait)
        except Unavailable:
            if time.monotonic() > end:
                raise
        await asyncio.sleep(BROKER_RETRY_PAUSE)
        await claim.check_cancelled()


def _seen_sentence(host: str, devices: tuple[PciDevice, ...]) -> str:
    if not devices:
        return f"{host} sees it."
    found = devices[0]
    width = f", x{found.width}" if found.width else ""
    speed = f" at {found.speed:g} GT/s" if found.speed else ""
    return f"{host} sees it at {found.address}{width}{speed}."


def _match(agent: HostAgent, device: Device) -> DeviceMatch:
    report = latest_report(agent)
    if report is None:
        return DeviceMatch()
    return match_device(report, device, attached_devices([agent.host_id])[agent.host_id])
