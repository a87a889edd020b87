"""Claims of workers on chassis in Redis, shared fairly.

    polling:<chassis>   the name of the worker that polls it; expires after CLAIM_SECONDS
    polling:workers     sorted set: each worker and the time (ms of Redis' clock) at which its presence expires
    polling:since       sorted set: each worker and the time at which it joined
    polling:forgotten   set for CLAIM_SECONDS after Redis lost its data: workers claim only what they had before

One round trip a renewal, for any number of chassis. A claim expires in Redis by itself; the worker computes the expiry
with the monotonic clock, which also runs while the process is suspended. After Redis' clock was set back, no claim and
no presence lasts for longer than CLAIM_SECONDS from then on; after it was set forward, all of them have expired, and
the workers that had claims have them again as after a loss of data. What somebody else writes at these keys ends after
CLAIM_SECONDS, too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import redis

CLAIM_SECONDS = 3.0
# Others release no chassis to a worker that has just joined: one that dies at each start must not move chassis.
SETTLED_SECONDS = 2.0
# Workers that start together share from the start: none claims anything until no other has joined for LULL_SECONDS. But
# for GATHERING_SECONDS at most, since chassis wait; and only without an older worker.
LULL_SECONDS = 1.0
GATHERING_SECONDS = 4.0

# Returns how many claims the worker may keep, and those that it has afterwards. A worker releases only claims above the
# fair share: the integer part for each, and one more for as many workers as the remainder allows.
CLAIM_SCRIPT = """
local name, duration, settled, releasing = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[6])
local known, first = {}, 8 + tonumber(ARGV[7])
for place = 8, first - 1 do known[ARGV[place]] = true end
for _, key in ipairs({'polling:workers', 'polling:since'}) do
  if redis.call('TYPE', key).ok ~= 'zset' then redis.call('DEL', key) end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', 'polling:workers', '(' .. now + duration, '+inf')) do
  redis.call('ZADD', 'polling:workers', now + duration, ahead)
end
for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', 'polling:since', '(' .. now, '+inf')) do
  redis.call('ZADD', 'polling:since', now - settled, ahead)
end
local function limit(key)
  local left = redis.call('PTTL', key)
  if left == -1 or left > duration then redis.call('PEXPIRE', key, duration) end
end
limit('polling:forgotten')
redis.call('ZREMRANGEBYSCORE', 'polling:workers', '-inf', now)
for _, one in ipairs(redis.call('ZRANGE', 'polling:since', 0, -1)) do
  if not redis.call('ZSCORE', 'polling:workers', one) then redis.call('ZREM', 'polling:since', one) end
end
if first > 8 and redis.call('ZCARD', 'polling:workers') == 0 then
  redis.call('SET', 'polling:forgotten', 1, 'NX', 'PX', duration)
end
local forgotten = redis.call('EXISTS', 'polling:forgotten') == 1
redis.call('ZADD', 'polling:workers', now + duration, name)
redis.call('ZADD', 'polling:since', 'NX', now, name)
local joined = redis.call('ZRANGE', 'polling:since', 0, -1, 'WITHSCORES')
local gathering = now - joined[#joined] < tonumber(ARGV[4]) and now - joined[2] < tonumber(ARGV[5])
local count, total = {}, #ARGV - first + 1
local mine, free = {}, {}
for place = first, #ARGV do
  local owner = redis.pcall('GET', 'polling:' .. ARGV[place])
  if type(owner) == 'table' then  -- it is of another type
    redis.call('DEL', 'polling:' .. ARGV[place])
    owner = false
  end
  if owner == name then
    redis.call('PEXPIRE', 'polling:' .. ARGV[place], duration)
    mine[#mine + 1] = ARGV[place]
  elseif owner then
    limit('polling:' .. ARGV[place])
    count[owner] = (count[owner] or 0) + 1
  elseif known[ARGV[place]] or not (forgotten or gathering) then
    free[#free + 1] = ARGV[place]
  end
end
local function share(workers)
  local whole, rest = math.floor(total / workers), total % workers
  for _, theirs in pairs(count) do
    if theirs > whole then rest = rest - 1 end
  end
  return rest > 0 and whole + 1 or whole
end
local there = redis.call('ZCARD', 'polling:workers')
local take = share(there)
for _, chassis in ipairs(free) do
  if #mine - releasing >= take then break end
  redis.call('SET', 'polling:' .. chassis, name, 'PX', duration)
  mine[#mine + 1] = chassis
end
local old = redis.call('ZCOUNT', 'polling:since', '-inf', now - settled)
local since = tonumber(redis.call('ZSCORE', 'polling:since', name))
if since > now - settled then old = old + 1 end
return {share(old), there, mine, gathering and 1 or 0}
"""

RELEASE_SCRIPT = """
for place = 2, #ARGV do
  if redis.call('GET', 'polling:' .. ARGV[place]) == ARGV[1] then
    redis.call('DEL', 'polling:' .. ARGV[place])
  end
end
"""


@dataclass(frozen=True)
class ClaimShare:
    """Result of a renewal: the claimed chassis, how many the worker may keep, and the number of workers.

    `is_gathering`: all workers have just joined, and wait for each other before they claim anything.
    """

    claimed: frozenset[int]
    keep: int
    workers: int
    is_gathering: bool = False


class ChassisClaims:
    """The claims of one worker. `renew`, `release` and `deregister` block; `is_claimed` is fast and thread-safe."""

    def __init__(self, client: redis.Redis, name: str) -> None:
        self.name = name
        self._client = client
        self._renew: Any = client.register_script(CLAIM_SCRIPT)
        self._release: Any = client.register_script(RELEASE_SCRIPT)
        self._claimed: frozenset[int] = frozenset()
        self._until = 0.0

    def is_claimed(self, chassis: int) -> bool:
        """Return whether this worker's claim on a chassis is valid; False once it has expired."""
        return chassis in self._claimed and time.monotonic() < self._until

    @property
    def are_valid(self) -> bool:
        """Whether the claims of the last renewal have not expired."""
        return time.monotonic() < self._until

    def renew(self, chassis: Collection[int], *, releasing: Iterable[int] = ()) -> ClaimShare:
        """Renew claims and claim free chassis, up to the fair share; raises RedisError.

        `releasing` are the chassis whose claims are about to be released; those that have been are not counted.
        """
        began = time.monotonic()
        seconds = (CLAIM_SECONDS, SETTLED_SECONDS, LULL_SECONDS, GATHERING_SECONDS)
        milliseconds = (round(one * 1000) for one in seconds)
        known = sorted(self._claimed)
        still_claimed = sum(map(self.is_claimed, releasing))
        arguments = [self.name, *milliseconds, still_claimed, len(known), *known, *sorted(chassis)]
        keep, workers, mine, gathering = self._renew(args=arguments)
        self._claimed = frozenset(map(int, mine))
        self._until = began + CLAIM_SECONDS
        return ClaimShare(self._claimed, int(keep), int(workers), is_gathering=bool(gathering))

    def release(self, chassis: Iterable[int]) -> None:
        """Release chassis that this worker no longer polls; raises RedisError."""
        released = set(chassis)
        self._claimed -= released
        if released:
            self._release(args=[self.name, *released])

    def deregister(self) -> None:
        """Release all claims, and end the worker's presence; raises RedisError."""
        self.release(self._claimed)
        self._client.zrem("polling:workers", self.name)
        self._client.zrem("polling:since", self.name)
