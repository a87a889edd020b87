"""Claims of workers on chassis in Redis, shared fairly.

    polling:<chassis>   the name of the worker that reads it, for CLAIM_SECONDS
    polling:workers     sorted set: each worker and the moment (ms of Redis' clock) until which it counts as there
    polling:since       sorted set: each worker and the moment since which it is there
    polling:forgotten   there for CLAIM_SECONDS after Redis lost its memory: each takes what was theirs, no more

One round trip a look, however many chassis there are. A lease ends in Redis by itself; the worker knows its own end by
the monotonic clock, which also goes on while the process is stopped.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import redis

CLAIM_SECONDS = 3.0
# A worker that just came gets nothing from others yet: one that dies at each start must not move chassis about.
SETTLED_SECONDS = 2.0
# Workers that start together share from the first: nobody takes anything until so long nobody came any more. But not
# for longer than the second, since chassis wait; and only where nobody is there from before, whose chassis these are.
LULL_SECONDS = 1.0
GATHERING_SECONDS = 4.0

# Gives back how many leases the worker may keep, and those that it holds afterwards. Nobody is asked for more than
# what is above the fair share: the whole part of it for each, and one more for as many as the rest allows.
CLAIM_SCRIPT = """
local name, lease, settled, leaving = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[6])
local known, first = {}, 8 + tonumber(ARGV[7])
for place = 8, first - 1 do known[ARGV[place]] = true end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', 'polling:workers', '-inf', now)) do
  redis.call('ZREM', 'polling:workers', gone)
  redis.call('ZREM', 'polling:since', gone)
end
if first > 8 and redis.call('ZCARD', 'polling:workers') == 0 then
  redis.call('SET', 'polling:forgotten', 1, 'NX', 'PX', lease)
end
local forgotten = redis.call('EXISTS', 'polling:forgotten') == 1
redis.call('ZADD', 'polling:workers', now + lease, name)
redis.call('ZADD', 'polling:since', 'NX', now, name)
local joined = redis.call('ZRANGE', 'polling:since', 0, -1, 'WITHSCORES')
local gathering = now - joined[#joined] < tonumber(ARGV[4]) and now - joined[2] < tonumber(ARGV[5])
local count, total = {}, #ARGV - first + 1
local mine, free = {}, {}
for place = first, #ARGV do
  local holder = redis.call('GET', 'polling:' .. ARGV[place])
  if holder == name then
    redis.call('PEXPIRE', 'polling:' .. ARGV[place], lease)
    mine[#mine + 1] = ARGV[place]
  elseif holder then
    count[holder] = (count[holder] or 0) + 1
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
  if #mine - leaving >= take then break end
  redis.call('SET', 'polling:' .. chassis, name, 'PX', lease)
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
    """What a look found: the chassis that this worker holds, how many it may keep, and how many workers there are.

    `is_gathering`: all of them have just come, and wait for each other before they take anything.
    """

    held: frozenset[int]
    keep: int
    workers: int
    is_gathering: bool = False


class ChassisClaims:
    """The leases of one worker. `look` and what gives back block; `holds` may be asked from any thread, at any rate."""

    def __init__(self, client: redis.Redis, name: str) -> None:
        self.name = name
        self._client = client
        self._look: Any = client.register_script(CLAIM_SCRIPT)
        self._release: Any = client.register_script(RELEASE_SCRIPT)
        self._held: frozenset[int] = frozenset()
        self._until = 0.0

    def holds(self, chassis: int) -> bool:
        """Tell whether the lease of a chassis is this worker's for sure; false once its end has passed."""
        return chassis in self._held and time.monotonic() < self._until

    @property
    def are_in_force(self) -> bool:
        """Whether the end of what was held at the last look is still to come."""
        return time.monotonic() < self._until

    def look(self, chassis: Collection[int], *, leaving: int = 0) -> ClaimShare:
        """Renew what is held and take what is free, up to the fair share; raises RedisError.

        `leaving` is how many of those held are about to be given back.
        """
        began = time.monotonic()
        seconds = (CLAIM_SECONDS, SETTLED_SECONDS, LULL_SECONDS, GATHERING_SECONDS)
        milliseconds = (round(one * 1000) for one in seconds)
        held = sorted(self._held)
        arguments = [self.name, *milliseconds, leaving, len(held), *held, *sorted(chassis)]
        keep, workers, mine, gathering = self._look(args=arguments)
        self._held = frozenset(map(int, mine))
        self._until = began + CLAIM_SECONDS
        return ClaimShare(held=self._held, keep=int(keep), workers=int(workers), is_gathering=bool(gathering))

    def give_back(self, chassis: Iterable[int]) -> None:
        """Let others have chassis that this worker reads no more; raises RedisError."""
        left = set(chassis)
        self._held -= left
        if left:
            self._release(args=[self.name, *left])

    def leave(self) -> None:
        """Give everything back and count as a worker no more; raises RedisError."""
        self.give_back(self._held)
        self._client.zrem("polling:workers", self.name)
        self._client.zrem("polling:since", self.name)
