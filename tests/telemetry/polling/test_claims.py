"""Claims of chassis in a real Valkey: how fairly they are shared, and what a death or a stop does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import redis
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from telemetry.polling import claims
from telemetry.polling.claims import ChassisClaims, ClaimShare
from tests.waiting import wait_for

SHORT = 0.3  # s


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stops for a moment loses no claim, and no worker waits for others to join."""
    monkeypatch.setattr(claims, "CLAIM_SECONDS", 60.0)
    monkeypatch.setattr(claims, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(claims, "LULL_SECONDS", 0.0)


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        forget(client)
        yield client
        forget(client)


def forget(client: redis.Redis) -> None:
    if keys := list(client.scan_iter("polling:*")):
        client.delete(*keys)


def renew_shortly(worker: ChassisClaims, chassis: Iterable[int]) -> None:
    """Let a worker renew a last time: its claims expire soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "CLAIM_SECONDS", SHORT)
        worker.renew(list(chassis))


def settle(workers: list[ChassisClaims], chassis: range, renewals: int = 3) -> dict[str, ClaimShare]:
    """Let each worker renew in turn, and release what is above its share, as a poller does."""
    shares = {}
    for _ in range(renewals):
        for worker in workers:
            share = shares[worker.name] = worker.renew(chassis)
            worker.release(sorted(share.claimed)[share.keep :])
    return {worker.name: worker.renew(chassis) for worker in workers}


def test_chassis_are_shared_fairly_and_stay_where_they_are(client: redis.Redis) -> None:
    workers = [ChassisClaims(client, name) for name in "abc"]
    first = settle(workers, range(1, 11))
    assert sorted(len(share.claimed) for share in first.values()) == [3, 3, 4]
    assert Counter(pk for share in first.values() for pk in share.claimed) == Counter(range(1, 11))
    assert settle(workers, range(1, 11)) == first


def test_who_joins_gets_a_share_and_who_leaves_hands_it_on(client: redis.Redis) -> None:
    a, b = ChassisClaims(client, "a"), ChassisClaims(client, "b")
    assert len(a.renew(range(1, 101)).claimed) == 100
    shares = settle([a, b], range(1, 101))
    assert [len(share.claimed) for share in shares.values()] == [50, 50]
    b.deregister()
    assert not b.is_claimed(next(iter(shares["b"].claimed)))
    assert len(a.renew(range(1, 101)).claimed) == 100


def test_chassis_released_while_a_renewal_was_waiting_are_not_claimed_again(client: redis.Redis) -> None:
    a, b = ChassisClaims(client, "a"), ChassisClaims(client, "b")
    a.renew(range(1, 5))
    b.renew(range(1, 5))
    a.release([1, 2])  # a poller was releasing 2 when it requested the renewal, which came after this
    assert a.renew(range(1, 5), releasing=[2]).claimed == {3, 4}
    # A chassis that is being released does not count: another may be claimed for it.
    assert a.renew(range(1, 5), releasing=[3]).claimed == {1, 3, 4}


def test_a_worker_that_dies_at_each_start_moves_nothing(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "SETTLED_SECONDS", 60.0)
    a = ChassisClaims(client, "a")
    claimed = a.renew(range(1, 11)).claimed
    for number in range(3):
        ChassisClaims(client, f"b{number}").renew(range(1, 11))
        share = a.renew(range(1, 11))
        assert share.claimed == claimed
        assert share.keep == 10


def test_workers_that_start_together_share_from_the_first(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "LULL_SECONDS", 0.3)
    monkeypatch.setattr(claims, "GATHERING_SECONDS", 60.0)
    workers = [ChassisClaims(client, name) for name in "abc"]
    first = [worker.renew(range(1, 1001)) for worker in workers]
    assert [(len(share.claimed), share.is_gathering) for share in first] == [(0, True)] * 3
    time.sleep(0.3)
    shares = [worker.renew(range(1, 1001)) for worker in workers]
    assert sorted(len(share.claimed) for share in shares) == [333, 333, 334]
    assert all(len(share.claimed) <= share.keep and not share.is_gathering for share in shares)


def test_one_that_keeps_coming_lets_chassis_wait_for_no_longer_than_a_while(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LULL_SECONDS", 60.0)
    monkeypatch.setattr(claims, "GATHERING_SECONDS", 0.3)
    first = ChassisClaims(client, "first")
    assert first.renew([1]).is_gathering
    time.sleep(0.3)
    ChassisClaims(client, "newcomer").renew([])
    assert first.renew([1]).claimed == {1}


def test_where_somebody_is_there_from_before_nobody_waits(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "LULL_SECONDS", 60.0)
    monkeypatch.setattr(claims, "GATHERING_SECONDS", 0.2)
    old, dead = ChassisClaims(client, "old"), ChassisClaims(client, "dead")
    old.renew([])
    time.sleep(0.2)
    assert len(dead.renew(range(1, 11)).claimed) == 5
    dead.deregister()
    newcomer = ChassisClaims(client, "newcomer")
    assert len(newcomer.renew(range(1, 11)).claimed) == 5
    assert len(old.renew(range(1, 11)).claimed) == 5


def test_the_chassis_of_a_dead_worker_are_claimed_once_its_claim_has_expired(client: redis.Redis) -> None:
    dead, other = ChassisClaims(client, "dead"), ChassisClaims(client, "other")
    settle([dead, other], range(1, 11))
    assert len(other.renew(range(1, 11)).claimed) == 5
    renew_shortly(dead, range(1, 11))
    wait_for(lambda: len(other.renew(range(1, 11)).claimed) == 10)


def test_a_suspended_worker_knows_without_redis_that_its_claim_has_expired(client: redis.Redis) -> None:
    stopped, other = ChassisClaims(client, "stopped"), ChassisClaims(client, "other")
    stopped.renew([1])
    assert stopped.is_claimed(1)
    renew_shortly(stopped, [1])
    wait_for(lambda: not stopped.is_claimed(1))
    wait_for(lambda: other.renew([1]).claimed == {1})
    assert stopped.renew([1]).claimed == frozenset()
    stopped.release([1])  # it cannot release the claim of another
    assert client.get("polling:1") == b"other"


def test_after_redis_lost_its_memory_everybody_keeps_what_was_theirs(client: redis.Redis) -> None:
    a, b = ChassisClaims(client, "a"), ChassisClaims(client, "b")
    before = settle([a, b], range(1, 11))
    forget(client)
    after = settle([b, a], range(1, 11))
    for name, share in after.items():
        assert share.claimed == before[name].claimed


def test_a_thousand_chassis_are_one_round_trip(client: redis.Redis) -> None:
    worker = ChassisClaims(client, "a")
    worker.renew(range(1, 1001))
    connection: Any = client.connection_pool.get_connection()
    sent: list[bytes] = []
    packed = connection.send_packed_command

    def counted(command: list[bytes], **more: Any) -> None:
        sent.extend(command)
        packed(command, **more)

    connection.send_packed_command = counted
    client.connection_pool.release(connection)
    assert len(worker.renew(range(1, 1001)).claimed) == 1000
    assert b"".join(sent).count(b"EVALSHA") == 1
    assert sum(b"polling:" in one for one in sent) == 0  # no key by itself


STEPS = st.lists(
    st.tuples(st.sampled_from(["renew", "deregister", "die", "forget", "fewer", "more"]), st.integers(0, 3)),
    max_size=30,
)


@given(STEPS)
def test_whatever_happens_a_chassis_has_one_claim_at_most(steps: list[tuple[str, int]]) -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        forget(client)
        chassis = range(1, 8)
        workers = [ChassisClaims(client, f"{number}") for number in range(4)]
        for step, number in steps:
            if step == "renew":
                share = workers[number].renew(chassis)
                workers[number].release(sorted(share.claimed)[share.keep :])
            elif step == "deregister":
                workers[number].deregister()
            elif step == "die":
                client.zrem("polling:workers", f"{number}")
                for pk in chassis:
                    if client.get(f"polling:{pk}") == workers[number].name.encode():
                        client.delete(f"polling:{pk}")
                workers[number] = ChassisClaims(client, f"{number}")
            elif step == "forget":
                # Every worker has renewed before a new one joins.
                forget(client)
                for worker in workers:
                    worker.renew(chassis)
            else:
                chassis = range(1, 4 if step == "fewer" else 12)
            claimed = Counter(
                pk for worker in workers for pk in range(1, 12) if worker.is_claimed(pk) and pk in chassis
            )
            assert all(times == 1 for times in claimed.values()), claimed
        client.delete("polling:forgotten")  # its time is over
        ended = settle(workers, chassis, renewals=8)
        assert sorted(pk for share in ended.values() for pk in share.claimed) == list(chassis)
        sizes = [len(share.claimed) for share in ended.values()]
        assert max(sizes) - min(sizes) <= 1
        forget(client)


def test_a_clock_that_was_set_back_lets_a_dead_worker_keep_its_chassis_no_longer(client: redis.Redis) -> None:
    dead, other = ChassisClaims(client, "dead"), ChassisClaims(client, "other")
    settle([dead, other], range(1, 11))
    # What an hour less does to times of Redis: they lie an hour further ahead.
    for key in ("polling:workers", "polling:since"):
        for name in ("dead", "other"):
            client.zincrby(key, 3_600_000, name)
    for pk in range(1, 11):
        client.pexpire(f"polling:{pk}", 3_600_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "CLAIM_SECONDS", SHORT)
        patch.setattr(claims, "LULL_SECONDS", 0.001)
        wait_for(lambda: len(other.renew(range(1, 11)).claimed) == 10, seconds=10)
        assert other.renew(range(1, 11)).workers == 1
