"""The steps of operations on a part: a reset, or its power on or off.

No state shows that a reset was carried out as a zone shows its devices. So it is marked as sent before it is sent, and
a worker that takes over sends none again: it waits for the sign of it, and fails where there is none.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, replace
from functools import partial

from django.utils.dateparse import parse_datetime

from core.language import gettext_noop
from core.threads import run_in_thread
from fabric.bmc.client import BmcClient
from fabric.bmc.errors import BmcError
from fabric.bmc.power import ResetOffer, read_reset, send_reset
from fabric.bmc.values import text
from fabric.execution.claims import OperationClaim, OperationFailedError
from fabric.execution.permission import check_still_allowed
from fabric.execution.proof import proof_begin, proof_end
from fabric.inventory.models import ManagedPart
from fabric.operations.models import Operation
from fabric.operations.rules import TURNS_OFF, TURNS_ON, ResetSetting

RESET_SECONDS = 600.0  # a host may take as long until its system has shut down
SIGN_SECONDS = 90.0  # until a service shows that a part restarts: OpenBMC goes down after some seconds
POLL_SECONDS = 0.5
CLOCK_SECONDS = 3.0  # by which two readings of one LastResetTime may differ
NO_SIGN = gettext_noop("Nothing shows that it restarted. Look at it before you request it again.")


async def reset_part(claim: OperationClaim, bmc: BmcClient) -> None:
    """Reset the part of an operation; raises OperationFailedError where nothing shows that it happened."""
    part = claim.operation.managed_part
    if part is None:
        raise OperationFailedError(gettext_noop("The part is gone from the site."))
    setting = ResetSetting(**claim.operation.setting)
    target = ""
    async with claim.step("Check"):
        await run_in_thread(check_still_allowed, claim.operation)
        if not setting.sent:
            offer = await claim.retry(partial(read_reset, bmc, part.reset_uri))
            setting, target = _checked(setting, offer), offer.target
            await proof_begin(claim, bmc)
    async with claim.step("Reset") as step:
        if setting.sent:
            step["sentence"] = gettext_noop("A worker that died may have sent it: it is not sent again.")
        else:
            await claim.save(setting=asdict(replace(setting, sent=True)))
            if not await send_reset(bmc, target, setting.reset_type):
                step["sentence"] = gettext_noop("The service went away before it answered.")
    async with claim.step("Wait for its end") as step:
        step["sentence"] = await _wait_for_end(claim, bmc, part, setting)
    async with claim.step("Read back", state=Operation.State.VERIFYING):
        found = await claim.retry(partial(read_part, bmc, part))
        if found and found != setting.power_after:
            raise OperationFailedError(f"Its power is '{found}', not '{setting.power_after}'.")
        await proof_end(claim, bmc)


def _checked(setting: ResetSetting, offer: ResetOffer) -> ResetSetting:
    """Return the setting with what the check found; raises OperationFailedError where the reset is not offered."""
    if offer.types and setting.reset_type not in offer.types:
        raise OperationFailedError(
            f"Its service offers {', '.join(offer.types)}, not {setting.reset_type}. Nothing was changed."
        )
    return replace(setting, last_reset=offer.last_reset, power_state=offer.power_state)


async def _wait_for_end(claim: OperationClaim, bmc: BmcClient, part: ManagedPart, setting: ResetSetting) -> str:
    """Wait until the part has the power that it should end in, and shows that it restarted where it should.

    `setting.sent`: by a worker that died, so that the sign of it may have gone by.
    """
    begun = time.monotonic()
    has_sign = setting.reset_type in TURNS_ON | TURNS_OFF
    async with claim.waiting() as show:
        while True:
            try:
                body = (await bmc.get(part.reset_uri)).body
            except BmcError:
                # Of another part it shows nothing: its BMC may be away for a reason of its own.
                has_sign |= part.kind == ManagedPart.Kind.BMC
                await show(f"{claim.operation.chassis.name} does not answer for it now: it is asked until it does.")
            else:
                power = text(body, "PowerState")
                has_sign |= _is_later(text(body, "LastResetTime"), setting.last_reset) or power not in {"", "On"}
                if power in {"", setting.power_after} and has_sign:
                    return _end_sentence(power, time.monotonic() - begun)
                is_silent = not has_sign and time.monotonic() - begun > SIGN_SECONDS
                if is_silent and (setting.sent or setting.last_reset or part.kind == ManagedPart.Kind.BMC):
                    raise OperationFailedError(NO_SIGN)
                if is_silent:
                    return gettext_noop("It is on. Whether it restarted, its service does not tell.")
            if time.monotonic() - begun > RESET_SECONDS:
                raise OperationFailedError(f"It was not where it should be within {RESET_SECONDS:.0f} s.")
            await asyncio.sleep(POLL_SECONDS)
            await claim.check_cancelled()


def _is_later(reset: str, before: str) -> bool:
    """Return whether a LastResetTime tells of another reset: some services compute it anew, a second off."""
    if reset == before:
        return False
    try:
        now, then = parse_datetime(reset), parse_datetime(before)
        return now is None or then is None or abs((now - then).total_seconds()) > CLOCK_SECONDS
    except (ValueError, TypeError):  # no date, or one without a zone
        return True


def _end_sentence(power: str, seconds: float) -> str:
    state = f"Its power is '{power}'" if power else "It answers"
    return f"{state} after {seconds:.0f} s."


async def read_part(bmc: BmcClient, part: ManagedPart) -> str:
    """Return the power state of a part as its service tells it now, and store it; '' where it tells none."""
    power = text((await bmc.get(part.reset_uri)).body, "PowerState")
    await run_in_thread(ManagedPart.objects.filter(pk=part.pk).update, power_state=power[:20])
    return power
