"""Carrying an operation out: claimed by one worker, done only after a read-back, ended whatever dies.

Every step looks first and writes only what is not so yet, so that an operation that is taken over after a worker's
death goes on from the hardware as it stands: nothing is done twice.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.db import DatabaseError, close_old_connections, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from accounts.models import User
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import (
    attach,
    detach,
    members_of,
    read_drawer_mode,
    read_link,
    read_zone,
    set_drawer_mode,
)
from fabric.bmc.errors import BmcError, ZoneChanged
from fabric.bmc.types import Dialect, DrawerMode
from fabric.bmc.values import text
from fabric.links import described, is_below
from fabric.models import Chassis, Device, HostPort, Operation
from fabric.services.sync import attachment_read_back, mode_read_back
from fabric.signals import operation_changed
from falconweb.errors import FalconWebError
from falconweb.threads import in_thread

logger = logging.getLogger(__name__)

LEASE_SECONDS = 10.0
RENEW_SECONDS = 3.0
LINK_SECONDS = 30.0  # a bind takes from under 1 s to 15 s
PRESENCE_SECONDS = 2.0  # between two looks whether what trains is still there
RETRAIN_SECONDS = 5.0  # a link that is up may still train to its full width and speed
LOOK_SECONDS = 0.1  # between two looks at a link that trains: half of it is how late we know on average
REQUEST_SECONDS = 10.0  # one answer of the BMC
OUTAGE_SECONDS = 60.0  # how long a BMC may be away before the operation gives up
TRUTH_SECONDS = 45.0  # the read-back after a failure
OPERATION_SECONDS = 180.0  # a worker's turn at an operation
WAITING_SECONDS = 600.0  # what nobody could begin for so long is no longer wanted unseen
MOST_ATTEMPTS = 5
PLACES = 1  # of the BMC's four: the poller keeps some, and the other drawer may have an operation of its own
HANDED_OVER_SECONDS = 3  # a new operation gets this long to be taken from the queue


class OperationFailedError(FalconWebError):
    """The operation ends as failed, with this sentence."""


def waiting() -> list[str]:
    """Return the ids of open operations that nobody holds."""
    now = timezone.now()
    return [
        str(pk)
        for pk in Operation.objects.open()
        .filter(
            Q(lease_until__lt=now) | Q(lease_until=None, requested_at__lt=now - timedelta(seconds=HANDED_OVER_SECONDS))
        )
        .order_by("requested_at")
        .values_list("pk", flat=True)
    ]


def next_after(operation_id: str) -> str | None:
    """Return the id of the operation that waited for the end of this one; None where none does, or it goes on."""
    ended = Operation.objects.filter(pk=operation_id).first()
    if ended is None or ended.is_open:
        return None
    following = Operation.objects.open().filter(chassis=ended.chassis_id, drawer=ended.drawer_id, lease_until=None)
    pk = following.order_by("requested_at").values_list("pk", flat=True).first()
    return None if pk is None else str(pk)


def execute(operation_id: str, *, worker: str) -> None:
    """Claim an operation and carry it to its end.

    Does nothing where it has ended, another worker holds it, or an older operation of the same drawer has not ended: it
    is then taken up after that one (`next_after`).
    """
    operation = _claimed(operation_id, worker)
    if operation is None:
        return
    try:
        asyncio.run(_Run(operation, worker).run())
    finally:
        close_old_connections()


def _claimed(operation_id: str, worker: str) -> Operation | None:
    """Return the operation, held by this worker from now on; None where it cannot be had now."""
    chassis = Operation.objects.filter(pk=operation_id).values_list("chassis", flat=True).first()
    with transaction.atomic():
        # Under the lock one worker at a time chooses for this chassis: what is read before it may be old.
        Chassis.objects.select_for_update().filter(pk=chassis).first()
        now = timezone.now()
        free = Operation.objects.open().filter(Q(lease_until=None) | Q(lease_until__lt=now), pk=operation_id)
        operation: Operation | None = free.select_related(
            "chassis", "device__slot__port", "source", "target", "drawer"
        ).first()
        if operation is None:
            return None
        # In order, since each was judged by the rules as what follows those before it.
        at = operation.requested_at
        before = Q(requested_at__lt=at) | Q(requested_at=at, pk__lt=operation.pk)
        same = Operation.objects.open().filter(chassis=operation.chassis_id, drawer=operation.drawer_id)
        if same.filter(before).exists():
            return None
        values = {"worker": worker, "lease_until": now + timedelta(seconds=LEASE_SECONDS), "state": "running"}
        if free.update(attempts=F("attempts") + 1, **values) != 1:
            return None
    operation.refresh_from_db(fields=["attempts", *values])
    return operation


class _Run:
    """One worker's turn at an operation."""

    def __init__(self, operation: Operation, worker: str) -> None:
        self.operation = operation
        self.worker = worker
        self._lost = False  # another worker holds the operation: this one must not write again

    async def run(self) -> None:
        turn = asyncio.create_task(self._turn())
        renewal = asyncio.create_task(self._renew(turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not self._lost:
                raise
            logger.warning("operation %s: %s was away too long, another worker has it", self.operation.pk, self.worker)
        finally:
            renewal.cancel()

    async def _turn(self) -> None:
        try:
            if self.operation.attempts > MOST_ATTEMPTS:
                await self._finish(f"Given up after {MOST_ATTEMPTS} attempts, each cut off.")
                return
            waited = (timezone.now() - self.operation.requested_at).total_seconds()
            if self.operation.started_at is None and waited > WAITING_SECONDS:
                await self._finish(f"Nobody could begin it within {WAITING_SECONDS / 60:.0f} minutes. Ask again.")
                return
            await self._save(started_at=self.operation.started_at or timezone.now())
            async with asyncio.timeout(OPERATION_SECONDS):
                await self._carry_out()
        except FalconWebError as error:
            await self._finish(error.sentence)
        except TimeoutError:
            await self._finish(f"It did not end within {OPERATION_SECONDS:.0f} s.")
        except Exception:
            logger.exception("operation %s", self.operation.pk)
            await self._finish("An error of the site stopped it; the log of the worker says which.")
        else:
            await self._finish("")

    async def _carry_out(self) -> None:
        address = await in_thread(self.operation.chassis.address)
        async with BmcClient(address, timeout=REQUEST_SECONDS, at_a_time=PLACES) as bmc:
            if self.operation.kind == Operation.Kind.MODE:
                await self._change_mode(bmc)
            else:
                await self._compose(bmc)

    async def _compose(self, bmc: BmcClient) -> None:
        operation = self.operation
        device, dialect = operation.device, Dialect(operation.chassis.dialect)
        if device is None:
            raise OperationFailedError("The device is gone from the site.")
        member = device.endpoint_uri
        async with self._step("Check"):
            await in_thread(self._still_allowed)
            holder = await self._patiently(lambda: self._holder(bmc, dialect, member))
            allowed = {
                "",
                operation.source.uri if operation.source else "",
                operation.target.uri if operation.target else "",
            }
            if holder not in allowed:
                raise OperationFailedError(
                    f"{device.name} was attached elsewhere outside this operation: nothing was changed."
                )
            if operation.target is not None:
                found = text((await self._patiently(lambda: bmc.get(device.uri))).body, "SerialNumber")
                if device.serial_number and found and found != device.serial_number:
                    raise OperationFailedError(f"There is another device in the slot now (serial number {found}).")
        if operation.source is not None:
            source = operation.source.uri
            async with self._step("Detach"):
                await self._patiently(lambda: self._change(bmc, dialect, source, member, present=False))
        if operation.target is not None:
            target = operation.target.uri
            async with self._step("Attach"):
                await self._patiently(lambda: self._change(bmc, dialect, target, member, present=True))
            async with self._step("Wait for the link") as step:
                step["sentence"] = await self._link_up(bmc)
        await self._save(state=Operation.State.VERIFYING)
        async with self._step("Read back"):
            wanted = operation.target.uri if operation.target else ""
            if await self._patiently(lambda: self._read_back(bmc)) != wanted:
                raise OperationFailedError(f"The chassis does not show {device.name} where it was put.")

    async def _change_mode(self, bmc: BmcClient) -> None:
        drawer = self.operation.drawer
        if drawer is None:
            raise OperationFailedError("The drawer is gone from the site.")
        mode = DrawerMode(self.operation.mode)
        async with self._step("Check"):
            await in_thread(self._still_allowed)
            await self._patiently(lambda: bmc.get(drawer.uri))
        async with self._step("Change mode"):
            await self._patiently(lambda: set_drawer_mode(bmc, drawer.uri, mode))
        await self._save(state=Operation.State.VERIFYING)
        async with self._step("Read back"):
            if await self._patiently(lambda: self._read_back(bmc)) != mode:
                raise OperationFailedError("The drawer does not show the new mode.")

    def _still_allowed(self) -> None:
        """Refuse what the person may no longer do: it may have waited, and they may have lost it meanwhile."""
        operation = self.operation
        person = User.objects.filter(pk=operation.requested_by_id or 0).first()
        if operation.kind == Operation.Kind.MODE:
            allowed = person is not None and person.is_active and person.is_administrator
        else:
            ports = {port.pk for port in (operation.source, operation.target) if port is not None}
            allowed = (
                person is not None
                and person.may_compose
                and Device.objects.visible_to(person).filter(pk=operation.device_id).exists()
                and HostPort.objects.visible_to(person).filter(pk__in=ports).count() == len(ports)
            )
        if not allowed:
            raise OperationFailedError(f"{operation.requested_by_name} may no longer do this. Nothing was changed.")

    async def _read_back(self, bmc: BmcClient) -> str:
        """Read what the operation is about, mirror that, and return it: the zone that holds the device, or the mode.

        The rest of the chassis is the poller's, which is told of every end of an operation.
        """
        operation = self.operation
        if operation.drawer is not None and operation.kind == Operation.Kind.MODE:
            mode = await read_drawer_mode(bmc, operation.drawer.uri)
            await in_thread(mode_read_back, drawer=operation.drawer, mode=mode)
            return mode
        device = operation.device
        if device is None:
            return ""
        holder = await self._holder(bmc, Dialect(operation.chassis.dialect), device.endpoint_uri)
        port = device.slot.port if device.slot is not None else None
        link = None if port is None else await read_link(bmc, port.uri)
        await in_thread(attachment_read_back, device=device, zone_uri=holder, link=link)
        return holder

    async def _holder(self, bmc: BmcClient, dialect: Dialect, member: str) -> str:
        """Return the zone that holds the device on the BMC, '' if none does."""
        zones = await in_thread(
            lambda: list(self.operation.chassis.hostports.filter(missing_since=None).values_list("uri", flat=True))
        )
        for zone in await asyncio.gather(*(read_zone(bmc, uri) for uri in zones)):
            if member in members_of(zone, dialect):
                return zone.uri
        return ""

    async def _change(self, bmc: BmcClient, dialect: Dialect, zone_uri: str, member: str, *, present: bool) -> None:
        zone = await read_zone(bmc, zone_uri)
        await (attach if present else detach)(bmc, dialect, zone=zone, endpoint_uri=member)

    async def _link_up(self, bmc: BmcClient) -> str:
        device = self.operation.device
        port = device.slot.port if device is not None and device.slot is not None else None
        if device is None or port is None:
            return "The chassis shows no port for this slot, so the link was not checked."
        end = time.monotonic() + LINK_SECONDS
        up_since = None
        look_at = time.monotonic() + PRESENCE_SECONDS
        while True:
            link = await self._patiently(lambda: read_link(bmc, port.uri))
            now = time.monotonic()
            if link.status != "LinkUp":
                up_since = None
                if now > look_at:
                    await self._patiently(lambda: self._refuse_vanished(bmc, device))
                    look_at = now + PRESENCE_SECONDS
                if now > end:
                    raise OperationFailedError(
                        f"Attached, but the link of {port.name} is '{link.status}' after {LINK_SECONDS:.0f} s."
                    )
            elif not is_below(link, device.max_lanes, device.max_pcie_type):
                return described(link)
            else:
                up_since = now if up_since is None else up_since
                if now > up_since + RETRAIN_SECONDS:
                    raise OperationFailedError(
                        f"Attached, but below what device and slot can do. {described(link)} "
                        "Detach and attach it again to train the link anew."
                    )
            await asyncio.sleep(LOOK_SECONDS)

    async def _refuse_vanished(self, bmc: BmcClient, device: Device) -> None:
        target = self.operation.target
        holder = await self._holder(bmc, Dialect(self.operation.chassis.dialect), device.endpoint_uri)
        if target is not None and holder != target.uri:
            raise OperationFailedError(
                f"{device.name} was taken out, or detached by somebody else, while its link trained."
            )

    async def _patiently(self, ask: Callable[[], Any]) -> Any:
        """Ask, and again while the BMC is away or a zone changes under us; what was done is looked at, not repeated."""
        end = time.monotonic() + OUTAGE_SECONDS
        pause = 0.2
        while True:
            try:
                return await ask()
            except BmcError as error:
                if not (error.retry_helps or isinstance(error, ZoneChanged)) or time.monotonic() + pause > end:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 3.0)

    def _step(self, name: str) -> _Step:
        return _Step(self, name)

    async def _finish(self, error: str) -> None:
        if error:
            error = _without_address(error, self.operation.chassis)
            self._close_steps(await self._tell_truth())
        state = Operation.State.FAILED if error else Operation.State.DONE
        await self._save(state=state, error=error, finished_at=timezone.now(), lease_until=None)

    def _close_steps(self, truth: str) -> None:
        """Leave no step of a failed operation open; the last one tells what was read back."""
        for step in self.operation.steps:
            step["state"] = {"waiting": "skipped", "running": "failed"}.get(step["state"], step["state"])
        last = self.operation.steps[-1]
        if truth and last["state"] == "skipped":
            last.update(state="done", started_at=_now(), finished_at=_now(), sentence=truth)

    def _truth_of(self, found: str) -> str:
        """Return what was read back in a sentence: `found` is the mode, or the zone that holds the device."""
        operation = self.operation
        if operation.kind == Operation.Kind.MODE:
            return f"The drawer is in mode {found}."
        for port in (operation.source, operation.target):
            if port is not None and port.uri == found:
                return f"It is attached to {port.label}."
        return "It is attached to another host port." if found else "It is attached to no host."

    async def _tell_truth(self) -> str:
        """Read the hardware back into the mirror after a failure and return it in a sentence.

        A BMC that is away is read by the next poll: then ''.
        """
        try:
            address = await in_thread(self.operation.chassis.address)
            client = BmcClient(address, timeout=REQUEST_SECONDS / 2, at_a_time=PLACES)
            async with asyncio.timeout(TRUTH_SECONDS), client as bmc:
                return self._truth_of(await self._read_back(bmc))
        except FalconWebError as error:
            logger.info("operation %s: read-back after failure: %s", self.operation.pk, error.sentence)
        except TimeoutError:
            logger.info("operation %s: read-back after failure took longer than %s s", self.operation.pk, TRUTH_SECONDS)
        except Exception:
            # Whatever the chassis answers, the operation ends.
            logger.exception("operation %s: read-back after failure", self.operation.pk)
        return ""

    async def _renew(self, turn: asyncio.Task[None]) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                held = await in_thread(
                    self._held().update, lease_until=timezone.now() + timedelta(seconds=LEASE_SECONDS)
                )
            except DatabaseError:
                logger.exception("operation %s: the lease could not be renewed", self.operation.pk)
                continue
            if held != 1:
                if self.operation.is_open:
                    self._lost = True
                    turn.cancel()
                return

    def _held(self) -> QuerySet[Operation]:
        return Operation.objects.open().filter(pk=self.operation.pk, worker=self.worker)

    async def _save(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self.operation, name, value)
        if await in_thread(self._held().update, steps=self.operation.steps, **values) != 1:
            self._lost = True
            raise asyncio.CancelledError
        await in_thread(operation_changed.send, Operation, operation=self.operation)


class _Step:
    """One step of an operation: its times and outcome are kept as it goes."""

    def __init__(self, run: _Run, name: str) -> None:
        self.run = run
        self.entry: dict[str, Any] = next(step for step in run.operation.steps if step["name"] == name)

    async def __aenter__(self) -> dict[str, Any]:
        self.entry.update(state="running", started_at=self.entry["started_at"] or _now())
        await self.run._save()  # noqa: SLF001 - one class in two parts
        return self.entry

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, asyncio.CancelledError):
            return
        sentence = self.entry["sentence"]
        if isinstance(error, FalconWebError):
            sentence = _without_address(error.sentence, self.run.operation.chassis)
        self.entry.update(state="failed" if error else "done", finished_at=_now(), sentence=sentence)
        if not error:
            await self.run._save()  # noqa: SLF001 - one class in two parts


def _without_address(sentence: str, chassis: Chassis) -> str:
    """Return the sentence with the chassis' name in place of its BMC's address, which is not everybody's to know."""
    origin = urlsplit(chassis.url)
    for address in (chassis.url, origin.netloc, origin.hostname or ""):
        if address:
            sentence = re.sub(rf"(?<![\w.-]){re.escape(address)}(?![\w-])", lambda _: chassis.name, sentence)
    return sentence


def _now() -> str:
    moment: datetime = timezone.now()
    return moment.isoformat()
