"""What all processes of a site share of one BMC: when a password is tried again, and its concurrent requests.

The poller of a chassis, of which there is one, has POLLER_REQUESTS of the BMC's four to itself, and asks nobody. All
others (operations, commands, pages) share SHARED_REQUESTS by keys of Redis, one a request under way:

    bmc:<digest of the origin>:<number>   a random token; expires by itself where its process was killed
    bmc:<digest of the origin>:wanted     somebody looks for one, and found none free

Requests that follow one another at once keep theirs, for LONGEST_KEEP at least, and until somebody else looks for one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import redis
import redis.asyncio
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Q
from django.utils import timezone

from accounts.access import require_administrator
from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.models import User
from core.errors import Conflict
from core.language import _
from core.threads import run_in_thread
from fabric.bmc.addresses import BmcAddress
from fabric.bmc.client import CONNECTIONS_PER_OPERATION, REQUEST_SECONDS, BmcClient
from fabric.bmc.errors import SignInRefused, TimedOut
from fabric.bmc.sign_in import SharedAccess
from fabric.bmc.transport import MAX_CONNECTIONS
from fabric.inventory.models import Chassis
from fabric.signals import sign_in_due

logger = logging.getLogger(__name__)

# Within the quarter of an hour in which many BMCs count refusals, fewer than the five that lock an account.
FIRST_RETRY = timedelta(minutes=5)
MAX_RETRY = timedelta(hours=6)
POLLER_REQUESTS = 2  # a reading, and one request of the inventory
SHARED_REQUESTS = MAX_CONNECTIONS - POLLER_REQUESTS
SLOT_PAUSE = 0.05  # s between looks for a free one
WANTED_PAUSES = 3  # after which somebody who looked for one looks no more
MAX_SLOT_WAIT = 60.0
NEXT_REQUEST = 0.03  # s in which the next request of an operation follows, a look at a link included
LONGEST_KEEP = 1.0  # s; then others that wait get their turn, who look for one each SLOT_PAUSE
UNCOUNTED_SECONDS = 60.0  # after Redis did not answer
SLOT_MARGIN = 5.0  # s beyond the timeout of a request, for its process to say that it has ended

# Takes a free key, of all but the last one, which says that there was none. One that never expires, or later than it
# may, was written by somebody else.
TAKE_SCRIPT = """
local wanted = table.remove(KEYS)
for _, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  if left == -1 or left > tonumber(ARGV[3]) then redis.call('PEXPIRE', key, ARGV[3]) end
  if redis.call('SET', key, ARGV[1], 'NX', 'PX', ARGV[2]) then redis.call('DEL', wanted) return key end
end
redis.call('SET', wanted, '', 'PX', ARGV[4])
return false
"""
# Keeps a key for longer, or gives it where somebody looks for one.
KEEP_SCRIPT = """
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return false end
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('DEL', KEYS[1]) return false end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
GIVE_SCRIPT = "if redis.pcall('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"
LONGEST_SLOT = 120.0  # s
REDIS_SECONDS = 3.0
PROBE_REQUEST_SECONDS = 5.0  # somebody waits for it
# The state of a password that was not refused yet, or is to be tried anew; since when it was refused is another matter.
NO_REFUSAL: dict[str, Any] = {"next_sign_in_at": None, "refusals": 0, "uses_basic": False}


@dataclass(frozen=True)
class _Slot:
    """One of the concurrent requests of a BMC, for requests of up to `seconds`; `keep_until` by the loop's time."""

    key: str
    token: str
    seconds: float
    keep_until: float


class RequestSlots(SharedAccess):
    """The concurrent requests of one BMC that all processes but its poller share; without Redis nobody waits."""

    def __init__(self, url: str) -> None:
        digest = hashlib.blake2b(url.casefold().encode(), digest_size=8).hexdigest()
        self._keys = [f"bmc:{digest}:{number}" for number in range(SHARED_REQUESTS)]
        self._wanted = f"bmc:{digest}:wanted"
        self._client: redis.asyncio.Redis | None = None
        self._counts = True
        self._uncounted_until = 0.0  # by the loop's time
        self._kept: _Slot | None = None  # by the request before
        self._until_given: asyncio.TimerHandle | None = None
        self._giving: asyncio.Task[None] | None = None

    def request(self, host: str, seconds: float) -> AbstractAsyncContextManager[None]:
        """Hold one of them for at most so many s; raises TimedOut where none gets free within MAX_SLOT_WAIT."""
        return self._hold(host, seconds) if self._counts else nullcontext()

    @asynccontextmanager
    async def _hold(self, host: str, seconds: float) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        slot = self._unkept()
        if slot is not None and seconds > slot.seconds:
            await self._give(slot)
            slot = None
        elif slot is not None and loop.time() > slot.keep_until:
            slot = await self._keep_or_give(slot)
        if slot is None:
            slot = await self._take(seconds, host)
        try:
            yield
        finally:
            if slot is not None and self._kept is None:
                self._kept = slot
                self._until_given = loop.call_later(NEXT_REQUEST, self._give_kept)
            elif slot is not None:
                await self._give(slot)

    def _unkept(self) -> _Slot | None:
        """Return the slot that the request before has kept, and keep it no longer."""
        slot, self._kept = self._kept, None
        if self._until_given is not None:
            self._until_given.cancel()
        return slot

    def _give_kept(self) -> None:
        if (slot := self._unkept()) is not None:
            self._giving = asyncio.create_task(self._give(slot))

    async def _keep_or_give(self, slot: _Slot) -> _Slot | None:
        """Return a slot that was kept for as long as it may, for as long again; None where others had their turn."""
        if await self._ask(KEEP_SCRIPT, 2, slot.key, self._wanted, slot.token, _expiry(slot.seconds)):
            return replace(slot, keep_until=asyncio.get_running_loop().time() + LONGEST_KEEP)
        await asyncio.sleep(1.2 * SLOT_PAUSE)
        return None

    async def _give(self, slot: _Slot) -> None:
        await self._ask(GIVE_SCRIPT, 1, slot.key, slot.token)

    async def _take(self, seconds: float, host: str) -> _Slot | None:
        """Return a slot for this client; None where they are not counted."""
        now = asyncio.get_running_loop().time
        end = now() + MAX_SLOT_WAIT
        token = secrets.token_hex(8)
        keys = (*self._keys, self._wanted)
        times = (_expiry(seconds), round(LONGEST_SLOT * 1000), round(WANTED_PAUSES * SLOT_PAUSE * 1000))
        while now() >= self._uncounted_until:
            taken = await self._ask(TAKE_SCRIPT, len(keys), *keys, token, *times)
            if isinstance(taken, bytes):
                return _Slot(taken.decode(), token, seconds, now() + LONGEST_KEEP)
            if now() > end:
                raise TimedOut(f"{host} is busy with other requests of this site.")
            await asyncio.sleep(SLOT_PAUSE)
        return None

    async def _ask(self, script: str, count: int, *arguments: object) -> Any:
        if self._client is None:
            self._client = redis.asyncio.Redis.from_url(
                settings.REDIS_URL,
                socket_timeout=REDIS_SECONDS,
                socket_connect_timeout=REDIS_SECONDS,
                driver_info=None,  # looking up its version takes longer than ten requests
            )
        try:
            answer: Awaitable[Any] = self._client.eval(script, count, *arguments)  # type: ignore[assignment,arg-type]
            return await answer
        except (redis.RedisError, OSError) as error:
            logger.info("requests to a BMC are not counted: %r", error)
            self._uncounted_until = asyncio.get_running_loop().time() + UNCOUNTED_SECONDS
            return None

    async def rest(self) -> None:
        if (slot := self._unkept()) is not None:
            await self._give(slot)
        if self._giving is not None:
            await self._giving

    async def close(self) -> None:
        await self.rest()
        if self._client is not None:
            await self._client.aclose()
            self._client = None


def _expiry(seconds: float) -> int:
    """Return after how many ms the key of a slot for requests of up to so many s expires."""
    return round(min(seconds + SLOT_MARGIN, LONGEST_SLOT) * 1000)


class ChassisAccess(RequestSlots):
    """What the site's clients of one chassis share; that of the poller takes no requests of the others."""

    def __init__(self, chassis: Chassis, *, is_poller: bool = False) -> None:
        super().__init__(chassis.url)
        self._chassis = chassis.pk
        self._stored = {name: getattr(chassis, name) for name in ("url", "username", "password_encrypted")}
        self._counts = not is_poller

    async def begin_sign_in(self, host: str) -> tuple[bool, bool]:
        """Return whether to try a session, and Basic; raises SignInRefused while no try is due.

        Basic is tried once for an address and a password, unless it is what this BMC is signed in with.
        """
        try:
            found: tuple[bool, bool] = await run_in_thread(_begin_sign_in, self._chassis, self._stored, host)
        except DatabaseError as error:
            logger.warning("refused passwords of chassis %s are not known: %s", self._chassis, error)
            return True, True
        return found

    async def end_sign_in(self, *, accepted: bool | None, by_basic: bool = False) -> None:
        """Store the result of a try; one that the BMC did not answer is made again after FIRST_RETRY."""
        try:
            await run_in_thread(_end_sign_in, self._chassis, self._stored, accepted=accepted, by_basic=by_basic)
        except DatabaseError as error:
            logger.warning("the sign-in at chassis %s was not stored: %s", self._chassis, error)


def chassis_client(
    chassis: Chassis,
    address: BmcAddress,
    *,
    timeout: float | None = None,
    before_write: Callable[[], Awaitable[None]] | None = None,
    settle_seconds: float | None = None,
) -> BmcClient:
    """Return a client of a chassis, at its `address` with the password, for one request at a time; see BmcClient."""
    return BmcClient(
        address,
        timeout=timeout or REQUEST_SECONDS,
        at_a_time=CONNECTIONS_PER_OPERATION,
        before_write=before_write,
        settle_seconds=settle_seconds,
        access=ChassisAccess(chassis),
    )


def probe_client(address: BmcAddress) -> BmcClient:
    """Return a client of an address that is not, or not yet, that of a chassis."""
    return BmcClient(address, timeout=PROBE_REQUEST_SECONDS, at_a_time=1, access=RequestSlots(address.url))


def poller_client(chassis: Chassis, address: BmcAddress) -> BmcClient:
    """Return the client of the one poller of a chassis."""
    return BmcClient(address, at_a_time=POLLER_REQUESTS, access=ChassisAccess(chassis, is_poller=True))


def retry_delay(refusals: int) -> timedelta:
    """Return the time until a password is tried again after so many refusals in a row."""
    doubled: int = 2 ** max(0, min(refusals - 1, 10))
    return min(FIRST_RETRY * doubled, MAX_RETRY)


def _begin_sign_in(pk: int, stored: dict[str, str], host: str) -> tuple[bool, bool]:
    rows = Chassis.objects.filter(pk=pk)
    found = rows.values(*stored, "next_sign_in_at", "refusals", "uses_basic").first()
    if found is None:
        return True, True
    if any(found[name] != value for name, value in stored.items()):
        raise SignInRefused(f"The stored address or password of {host} was changed meanwhile.", answered=401)
    due: datetime | None = found["next_sign_in_at"]
    if due is not None:
        now = timezone.now()
        # One process takes the turn.
        if now < due or not rows.filter(next_sign_in_at=due).update(
            next_sign_in_at=now + retry_delay(found["refusals"])
        ):
            raise SignInRefused(f"{host} refuses this name and password.", answered=401)
    uses_basic: bool = found["uses_basic"]
    return not uses_basic, uses_basic or not found["refusals"]


def _end_sign_in(pk: int, stored: dict[str, str], *, accepted: bool | None, by_basic: bool) -> None:
    rows = Chassis.objects.filter(pk=pk, **stored)  # an edit meanwhile has begun anew
    if accepted is None:
        rows.filter(refusals__gt=0).update(next_sign_in_at=timezone.now() + FIRST_RETRY)
        return
    if accepted:
        known = Q(refused_at=None, next_sign_in_at=None, refusals=0, uses_basic=by_basic)
        if rows.exclude(known).exists():
            rows.update(refused_at=None, next_sign_in_at=None, refusals=0, uses_basic=by_basic)
        return
    with transaction.atomic():
        for row in rows.select_for_update():
            row.refusals += 1
            row.refused_at = row.refused_at or timezone.now()
            row.next_sign_in_at = timezone.now() + retry_delay(row.refusals)
            row.save(update_fields=["refusals", "refused_at", "next_sign_in_at"])


def sign_in_retry(*, person: User, chassis: Chassis) -> None:
    """Have the stored password of a chassis tried now, for administrators; raises Conflict where it is not polled."""
    with audited(Action.CHASSIS_SIGN_IN, actor=person, target=target_of(chassis)):
        require_administrator(person)
        if not chassis.enabled:
            raise Conflict(_("{name} is not polled: nothing is sent to it.", name=chassis.name))
        Chassis.objects.filter(pk=chassis.pk).update(**NO_REFUSAL)
        transaction.on_commit(lambda: sign_in_due.send(Chassis, chassis_id=chassis.pk), robust=True)
