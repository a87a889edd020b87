"""The steps of an update of firmware.

The image is marked as sent before it is sent, and the task's monitor is kept, so that a worker that takes over follows
the task, or waits for the version, and sends no second image.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, replace
from functools import partial

from core.language import gettext_noop
from core.threads import run_in_thread
from fabric.bmc.client import BmcClient, monitor_of
from fabric.bmc.errors import (
    BmcError,
    NotRedfish,
    RequestRefused,
    SignInRefused,
    TaskFailed,
    TimedOut,
    Unreachable,
)
from fabric.bmc.firmware import cancel_task, find_update_service, push_image, read_version, send_image_uri
from fabric.bmc.transport import BmcResponse
from fabric.bmc.values import JsonObject, integer
from fabric.execution.claims import OperationCancelledError, OperationClaim, OperationFailedError
from fabric.execution.permission import check_still_allowed
from fabric.execution.proof import proof_begin, proof_end
from fabric.inventory.models import ManagedPart
from fabric.maintenance.files import image_path
from fabric.maintenance.selectors import undrained_devices
from fabric.operations.models import Operation
from fabric.operations.rules import FirmwareSetting

UPDATE_SECONDS = 3600.0  # a switch or BMC takes from one to thirty minutes
STALL_SECONDS = 900.0  # a task whose percentage stays is given up
VERSION_SECONDS = 300.0  # until the new version shows: a BMC that restarts with it takes minutes
POLL_SECONDS = 1.0


class _Update:
    """One worker's execution of an update."""

    def __init__(self, claim: OperationClaim, bmc: BmcClient, part: ManagedPart) -> None:
        self.claim = claim
        self.bmc = bmc
        self.part = part
        self.setting = FirmwareSetting(**claim.operation.setting)
        self.percent: int | None = None
        self.moved_at = time.monotonic()
        self.is_cancellable = True

    async def save(self, **values: object) -> None:
        self.setting = replace(self.setting, **values)  # type: ignore[arg-type]  # fields of the dataclass
        await self.claim.save(setting=asdict(self.setting))

    async def send(self) -> BmcResponse | None:
        """Send the image; returns the answer, None where its service died before it answered."""
        service = await self.claim.retry(partial(find_update_service, self.bmc))
        await self.save(sent=True)
        setting, target = self.setting, self.part.software_uri
        try:
            if setting.image is None:
                answer = await send_image_uri(self.bmc, service, setting.image_uri, target)
            else:
                path = image_path(setting.image)
                answer = await push_image(self.bmc, service, path, setting.image_name, target)
        except FileNotFoundError as error:
            raise OperationFailedError(gettext_noop("The image was deleted. Nothing was changed.")) from error
        except (Unreachable, TimedOut):
            return None
        if answer.status == 202:
            await self.save(task=monitor_of(answer))
        return answer

    async def follow(self, step: dict[str, object]) -> str:
        """Follow the task to its end; returns the result as a sentence. Raises OperationFailedError."""
        if not self.setting.task:
            return gettext_noop("Its service told of no task.")

        async def progress(body: JsonObject) -> None:
            percent = integer(body, "PercentComplete")
            if percent is not None and percent != self.percent:
                self.percent, self.moved_at = percent, time.monotonic()
                step["sentence"] = f"{percent} %"
                await self.claim.save()
            if time.monotonic() - self.moved_at > STALL_SECONDS:
                raise OperationFailedError(
                    f"Its task stands at {self.percent or 0} % for {STALL_SECONDS / 60:.0f} min."
                )
            await self._cancel_if_requested()

        accepted = BmcResponse(status=202, headers={"Location": self.setting.task}, body={})
        try:
            await self.bmc.finish(accepted, timeout=UPDATE_SECONDS, progress=progress)
        except RequestRefused as error:
            raise OperationFailedError(f"The update failed: {error.reason or error.sentence}") from error
        except TaskFailed as error:
            raise OperationFailedError(f"The update failed: {error.sentence}") from error
        except (SignInRefused, NotRedfish):
            # As of a service that starts: the version shows what became of it.
            return gettext_noop("Its service stopped telling of the task.")
        return gettext_noop("Its task is done.")

    async def _cancel_if_requested(self) -> None:
        if not self.is_cancellable:
            return
        try:
            await self.claim.check_cancelled()
        except OperationCancelledError:
            self.is_cancellable = await cancel_task(self.bmc, self.setting.task)
            if self.is_cancellable:
                raise

    async def wait_for_version(self) -> str:
        """Return the version once it is the wanted one; raises OperationFailedError where it stays as it was."""
        end, version = time.monotonic() + VERSION_SECONDS, ""
        async with self.claim.waiting() as show:
            while time.monotonic() < end:
                try:
                    version = await read_version(self.bmc, self.part.software_uri)
                except BmcError:
                    await show(
                        f"{self.claim.operation.chassis.name} does not answer: it may restart with its new firmware."
                    )
                else:
                    if self.setting.is_reached(version):
                        return version
                await asyncio.sleep(POLL_SECONDS)
                await self._cancel_while_waiting()
        if not version:
            raise OperationFailedError(f"It did not answer within {VERSION_SECONDS:.0f} s after the update.")
        raise OperationFailedError(
            f"It has version {version}"
            + (f", not {self.setting.wanted}." if self.setting.wanted else ", as before the update.")
        )

    async def _cancel_while_waiting(self) -> None:
        """Give up waiting where that is requested: the update itself has ended."""
        if self.is_cancellable:
            await self.claim.check_cancelled()


async def update_firmware(claim: OperationClaim, bmc: BmcClient) -> None:
    """Update the firmware of the operation's part; raises OperationFailedError where it has another version after."""
    part = claim.operation.managed_part
    if part is None:
        raise OperationFailedError(gettext_noop("The part is gone from the site."))
    update = _Update(claim, bmc, part)
    answer: BmcResponse | None = None
    async with claim.step("Check"):
        await run_in_thread(check_still_allowed, claim.operation)
        if not update.setting.sent:
            await run_in_thread(_check_drained, part)
            await update.save(before=await claim.retry(partial(read_version, bmc, part.software_uri)))
            await proof_begin(claim, bmc)
    async with claim.step("Send the image") as step:
        if update.setting.sent:
            step["sentence"] = gettext_noop("A worker that died may have sent it: it is not sent again.")
        else:
            answer = await update.send()
            if answer is None:
                step["sentence"] = gettext_noop("The service went away before it answered.")
    async with claim.step("Update") as step:
        step["sentence"] = await update.follow(step)
    async with claim.step("Wait for the new version") as step:
        step["sentence"] = f"It has version {await update.wait_for_version()}."
    async with claim.step("Read back", state=Operation.State.VERIFYING):
        await claim.retry(partial(bmc.get, claim.operation.chassis.uri))
        await claim.retry(partial(read_part_version, bmc, part))
        await proof_end(claim, bmc)


def _check_drained(part: ManagedPart) -> None:
    """Raise OperationFailedError where a device that the update interrupts was attached since the request."""
    if attached := undrained_devices(part):
        raise OperationFailedError(f"{attached[0].device.name} was attached meanwhile. Nothing was changed.")


async def read_part_version(bmc: BmcClient, part: ManagedPart) -> str:
    """Return the version of a part as its service tells it now, and store it."""
    version = await read_version(bmc, part.software_uri)
    await run_in_thread(ManagedPart.objects.filter(pk=part.pk).update, version=version[:200])
    return version
