"""Leases of chassis in a real Valkey: whose each is, how fairly they are shared, and what a death or a stop does."""

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
    """A machine that stands still for a moment ends no lease, and nobody waits for anybody to come."""
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


def look_shortly(worker: ChassisClaims, chassis: Iterable[int]) -> None:
    """Let a worker look a last time: what it holds is over soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "CLAIM_SECONDS", SHORT)
        worker.look(list(chassis))


def settle(workers: list[ChassisClaims], chassis: range, looks: int = 3) -> dict[str, ClaimShare]:
    """Let each look in turn, and give back what is too much, as a poller does."""
    shares = {}
    for _ in range(looks):
        for worker in workers:
            share = shares[worker.name] = worker.look(chassis)
            worker.give_back(sorted(share.held)[share.keep :])
    return {worker.name: worker.look(chassis) for worker in workers}


def test_chassis_are_shared_fairly_and_stay_where_they_are(client: redis.Redis) -> None:
    workers = [ChassisClaims(client, name) for name in "abc"]
    first = settle(workers, range(1, 11))
    assert sorted(len(share.held) for share in first.values()) == [3, 3, 4]
    assert Counter(pk for share in first.values() for pk in share.held) == Counter(range(1, 11))
    assert settle(workers, range(1, 11)) == first


def test_who_joins_gets_a_share_and_who_leaves_hands_it_on(client: redis.Redis) -> None:
    a, b = ChassisClaims(client, "a"), ChassisClaims(client, "b")
    assert len(a.look(range(1, 101)).held) == 100
    shares = settle([a, b], range(1, 101))
    assert [len(share.held) for share in shares.values()] == [50, 50]
    b.leave()
    assert not b.holds(next(iter(shares["b"].held)))
    assert len(a.look(range(1, 101)).held) == 100


def test_what_was_given_back_while_a_look_was_waiting_is_not_claimed_back(client: redis.Redis) -> None:
    a, b = ChassisClaims(client, "a"), ChassisClaims(client, "b")
    a.look(range(1, 5))
    b.look(range(1, 5))
    a.give_back([1, 2])  # a poller had 2 on its way out when it asked for the look, which came after this
    assert a.look(range(1, 5), leaving=[2]).held == {3, 4}
    # What is on its way out is not had for long: another may be claimed for it.
    assert a.look(range(1, 5), leaving=[3]).held == {1, 3, 4}


def test_a_worker_that_dies_at_each_start_moves_nothing(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "SETTLED_SECONDS", 60.0)
    a = ChassisClaims(client, "a")
    held = a.look(range(1, 11)).held
    for number in range(3):
        ChassisClaims(client, f"b{number}").look(range(1, 11))
        share = a.look(range(1, 11))
        assert share.held == held
        assert share.keep == 10


def test_workers_that_start_together_share_from_the_first(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "LULL_SECONDS", 0.3)
    monkeypatch.setattr(claims, "GATHERING_SECONDS", 60.0)
    workers = [ChassisClaims(client, name) for name in "abc"]
    first = [worker.look(range(1, 1001)) for worker in workers]
    assert [(len(share.held), share.is_gathering) for share in first] == [(0, True)] * 3
    time.sleep(0.3)
    shares = [worker.look(range(1, 1001)) for worker in workers]
    assert sorted(len(share.held) for share in shares) == [333, 333, 334]
    assert all(len(share.held) <= share.keep and not share.is_gathering for share in shares)


def test_one_that_keeps_coming_lets_chassis_wait_for_no_longer_than_a_while(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "LULL_SECONDS", 60.0)
    monkeypatch.setattr(claims, "GATHERING_SECONDS", 0.3)
    first = ChassisClaims(client, "first")
    assert first.look([1]).is_gathering
    time.sleep(0.3)
    ChassisClaims(client, "newcomer").look([])
    assert first.look([1]).held == {1}


def test_where_somebody_is_there_from_before_nobody_waits(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "LULL_SECONDS", 60.0)
    monkeypatch.setattr(claims, "GATHERING_SECONDS", 0.2)
    old, dead = ChassisClaims(client, "old"), ChassisClaims(client, "dead")
    old.look([])
    time.sleep(0.2)
    assert len(dead.look(range(1, 11)).held) == 5
    dead.leave()
    newcomer = ChassisClaims(client, "newcomer")
    assert len(newcomer.look(range(1, 11)).held) == 5
    assert len(old.look(range(1, 11)).held) == 5


def test_what_a_dead_worker_held_is_taken_once_its_lease_is_over(client: redis.Redis) -> None:
    dead, other = ChassisClaims(client, "dead"), ChassisClaims(client, "other")
    settle([dead, other], range(1, 11))
    assert len(other.look(range(1, 11)).held) == 5
    look_shortly(dead, range(1, 11))
    wait_for(lambda: len(other.look(range(1, 11)).held) == 10)


def test_a_worker_that_was_stopped_knows_that_its_lease_is_over_without_asking(client: redis.Redis) -> None:
    stopped, other = ChassisClaims(client, "stopped"), ChassisClaims(client, "other")
    stopped.look([1])
    assert stopped.holds(1)
    look_shortly(stopped, [1])
    wait_for(lambda: not stopped.holds(1))
    wait_for(lambda: other.look([1]).held == {1})
    assert stopped.look([1]).held == frozenset()
    stopped.give_back([1])  # what it does not hold it cannot give away
    assert client.get("polling:1") == b"other"


def test_after_redis_lost_its_memory_everybody_keeps_what_was_theirs(client: redis.Redis) -> None:
    a, b = ChassisClaims(client, "a"), ChassisClaims(client, "b")
    before = settle([a, b], range(1, 11))
    forget(client)
    after = settle([b, a], range(1, 11))
    assert {name: share.held for name, share in after.items()} == {name: share.held for name, share in before.items()}


def test_a_thousand_chassis_are_one_round_trip(client: redis.Redis) -> None:
    worker = ChassisClaims(client, "a")
    worker.look(range(1, 1001))
    connection: Any = client.connection_pool.get_connection()
    sent: list[bytes] = []
    packed = connection.send_packed_command

    def counted(command: list[bytes], **more: Any) -> None:
        sent.extend(command)
        packed(command, **more)

    connection.send_packed_command = counted
    client.connection_pool.release(connection)
    assert len(worker.look(range(1, 1001)).held) == 1000
    assert b"".join(sent).count(b"EVALSHA") == 1
    assert sum(b"polling:" in one for one in sent) == 0  # no key by itself


STEPS = st.lists(
    st.tuples(st.sampled_from(["look", "leave", "die", "forget", "fewer", "more"]), st.integers(0, 3)), max_size=30
)


@given(STEPS)
def test_whatever_happens_nobody_holds_what_another_holds(steps: list[tuple[str, int]]) -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        forget(client)
        chassis = range(1, 8)
        workers = [ChassisClaims(client, f"{number}") for number in range(4)]
        for step, number in steps:
            if step == "look":
                share = workers[number].look(chassis)
                workers[number].give_back(sorted(share.held)[share.keep :])
            elif step == "leave":
                workers[number].leave()
            elif step == "die":
                client.zrem("polling:workers", f"{number}")
                for pk in chassis:
                    if client.get(f"polling:{pk}") == workers[number].name.encode():
                        client.delete(f"polling:{pk}")
                workers[number] = ChassisClaims(client, f"{number}")
            elif step == "forget":
                # Everybody who is there has looked again before anybody new comes.
                forget(client)
                for worker in workers:
                    worker.look(chassis)
            else:
                chassis = range(1, 4 if step == "fewer" else 12)
            held = Counter(pk for worker in workers for pk in range(1, 12) if worker.holds(pk) and pk in chassis)
            assert all(times == 1 for times in held.values()), held
        client.delete("polling:forgotten")  # its time is over
        ended = settle(workers, chassis, looks=8)
        assert sorted(pk for share in ended.values() for pk in share.held) == list(chassis)
        sizes = [len(share.held) for share in ended.values()]
        assert max(sizes) - min(sizes) <= 1
        forget(client)
