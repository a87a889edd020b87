"""Who waits for whom, what is noted of runs that were not alone, and who is told."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from django.apps import apps
from django.db import connection

from accounts.models import Tenant, User
from benchmarks.runs.claims import holds_acquire, queue_status
from benchmarks.runs.isolation import run_overlaps, shown_overlaps
from benchmarks.runs.models import Hold, Run
from benchmarks.runs.requests import RunRequest
from benchmarks.runs.results import observations
from benchmarks.runs.rules import (
    Composition,
    HoldOwner,
    HostShare,
    RunNeeds,
    acquirable_keys,
    held_key,
    stored_key,
    waiting_reason,
)
from hostwire.training import Spec
from tests.benchmarks.runs.lab import Lab
from tests.turns import at_night

pytestmark = pytest.mark.process
BEGIN = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
ME = HoldOwner("me", None)


def needs(*, host: int = 1, device: int = 11, switch: int = 5, may_share: bool = False) -> RunNeeds:
    place = Composition(host=host, devices={device: 7})
    return RunNeeds(composition=place, own_gpus={}, switches=frozenset({f"switch/{switch}"}), may_share=may_share)


def reason(mine: RunNeeds, *, held: RunNeeds | None = None, ahead: RunNeeds | None = None) -> str:
    owner = HoldOwner("first", None)
    sentence = waiting_reason(
        mine,
        ME,
        held=dict.fromkeys((acquirable_keys(held, ()) or set()) if held else (), owner),
        ahead=dict.fromkeys(ahead.keys if ahead else (), owner),
        labels={"host/1": "node-a", "switch/5": "the switch of Drawer 1"},
    )
    if held is not None:
        assert (acquirable_keys(mine, acquirable_keys(held, ()) or ()) is None) == bool(sentence)
    return sentence


OTHER_HOST = {"host": 2, "device": 12}
ELSEWHERE = {**OTHER_HOST, "switch": 6}


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ({}, {"device": 12}, "Waiting for node-a, which ‘first’ has to itself."),
        ({}, {"device": 12, "may_share": True}, "Waiting for node-a, which ‘first’ has to itself."),
        ({"may_share": True}, {"device": 12}, "Waiting for node-a, which ‘first’ uses."),
        ({"may_share": True}, {"device": 12, "may_share": True}, ""),
        ({}, OTHER_HOST, "Waiting for the switch of Drawer 1, which ‘first’ has to itself."),
        ({"may_share": True}, {**OTHER_HOST, "may_share": True}, ""),
        ({}, ELSEWHERE, ""),
    ],
)
def test_a_run_has_its_host_and_switches_to_itself_unless_both_may_share(
    first: dict[str, Any], second: dict[str, Any], says: str
) -> None:
    assert reason(needs(**second), held=needs(**first)) == says


def test_a_run_over_two_hosts_has_both() -> None:
    place = Composition(host=2, others=(HostShare(host=1, local_gpus=1),))
    both = RunNeeds(composition=place, own_gpus={1: 2, 2: 0})
    assert acquirable_keys(both, ()) == {"host/1", "host/2", "host/1/gpu/0"}
    assert reason(both, held=needs()) == "Waiting for node-a, which ‘first’ has to itself."
    assert reason(needs(switch=9), held=both) == "Waiting for node-a, which ‘first’ has to itself."


def test_who_may_share_does_not_overtake_who_waits_to_be_alone() -> None:
    waits, later = needs(), needs(device=12, may_share=True)
    assert reason(later, ahead=waits) == "Waiting for node-a, behind ‘first’."
    assert reason(later, ahead=needs(may_share=True)) == ""


def test_a_stored_hold_of_a_shared_place_is_of_one_run() -> None:
    one, other = uuid4(), uuid4()
    stored = {stored_key(key, run) for key in needs(may_share=True).places for run in (one, other)}
    assert len(stored) == 4
    assert {held_key(key) for key in stored} == {"host/1/shared", "switch/5/shared"}
    assert max(map(len, (stored_key(f"chassis/{10**9}/shared", one), *stored))) <= 60


@pytest.mark.parametrize("seed", [0, *at_night(*range(1, 20))])
def test_a_queue_by_chance_ends_and_nobody_meets_who_is_alone(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    queue = [
        needs(
            host=chance.randint(1, 3), device=chance.randint(1, 9), switch=chance.randint(1, 3),
            may_share=chance.random() < 0.5,
        )
        for _ in range(60)
    ]  # fmt: skip
    running: list[tuple[RunNeeds, set[str]]] = []
    together = 0
    while queue or running:
        if running:
            running.pop(chance.randrange(len(running)))
        ahead: set[str] = set()
        for one in list(queue):
            held = {key for _, keys in running for key in keys}
            if waiting_reason(one, ME, held=dict.fromkeys(held, ME), ahead=dict.fromkeys(ahead, ME), labels={}):
                ahead |= one.keys
                continue
            keys = acquirable_keys(one, held)
            assert keys is not None
            queue.remove(one)
            for other, _ in running:
                same = {f"host/{other.composition.host}", *other.switches} & {
                    f"host/{one.composition.host}", *one.switches,
                }  # fmt: skip
                assert not same or (one.may_share and other.may_share)
                together += bool(same)
            running.append((one, keys))
        assert running or not queue
    assert together > 5


def was(lab: Lab, *slots: int, at: tuple[float, float | None], **more: Any) -> Run:
    """Return a run that was on its host for this span (s)."""
    run = lab.ask(lab.place(*slots), **more)
    begin, end = (None if one is None else BEGIN + timedelta(seconds=one) for one in at)
    state = "running" if end is None else "completed"
    Run.objects.filter(pk=run.pk).update(started_at=begin, ended_at=end, finished_at=end, state=state)
    run.refresh_from_db()
    return run


@pytest.mark.django_db
def test_a_queued_run_waits_to_be_alone_and_who_may_share_does_not(lab: Lab) -> None:
    alone, other, sharing, along = (
        lab.ask(lab.place(slot), title=f"run {slot}", may_share=may) for slot, may in enumerate((0, 0, 1, 1), 1)
    )
    assert [sentence for _, sentence in queue_status()][:2] == [
        "", f"Waiting for {lab.host.name}, which ‘run 1’ has to itself.",
    ]  # fmt: skip
    assert [holds_acquire(run) for run in (alone, other, sharing)] == [True, False, False]
    alone.holds.all().delete()
    assert [holds_acquire(run) for run in (sharing, along, other)] == [True, True, False]
    assert Hold.objects.filter(key__startswith=f"host/{lab.host.pk}/shared/").count() == 2
    Run.objects.filter(pk__in=[alone.pk, sharing.pk, along.pk]).delete()
    assert queue_status() == [(other, "")]


@pytest.mark.parametrize(
    ("workload", "asked", "shares"),
    [("resnet50", None, False), ("resnet50", True, True), ("command", None, True), ("command", False, False)],
)
def test_a_command_shares_its_host_unless_said_otherwise(workload: str, asked: bool | None, shares: bool) -> None:
    request = RunRequest(
        spec=Spec(workload=workload), composition=Composition(host=1), executor="torch", may_share=asked
    )
    assert request.is_sharing is shares


@pytest.mark.django_db
def test_what_used_the_same_host_and_switch_meanwhile_is_noted_with_its_seconds(lab: Lab) -> None:
    run = was(lab, 1, at=(0, 100))
    inside = was(lab, 2, at=(40, 70))
    going = was(lab, 3, at=(90, None))
    was(lab, 4, at=(100.5, 200))  # began later
    was(lab, 4, at=(99.5, 200))  # less than a second
    cpu = was(lab, 4, at=(-50, 5))
    Run.objects.filter(pk=cpu.pk).update(topology={"uplinks": {}}, composition={"host": lab.host.pk, "cpu": True})
    elsewhere = was(lab, 5, at=(0, 100))
    Run.objects.filter(pk=elsewhere.pk).update(topology={}, composition={"host": lab.host.pk + 1})
    imported = was(lab, 6, at=(0, 100))
    Run.objects.filter(pk=imported.pk).update(executor="")
    found = {one.run: (one.shared, one.seconds) for one in run_overlaps(run)}
    everything = ("host", "uplink", "switch")
    assert found == {
        str(inside.pk): (everything, 30.0), str(going.pk): (everything, 10.0), str(cpu.pk): (("host",), 5.0),
    }  # fmt: skip
    assert run_overlaps(Run.objects.get(pk=inside.pk))[0].run == str(run.pk)


@pytest.mark.django_db
def test_runs_on_two_hosts_of_a_drawer_share_its_switch(lab: Lab) -> None:
    run, other = was(lab, 1, at=(0, 100)), was(lab, 2, at=(0, 100))
    theirs = {"uplinks": {name.replace("H1", "H2"): link for name, link in other.topology["uplinks"].items()}}
    Run.objects.filter(pk=other.pk).update(topology=theirs, composition={"host": lab.host.pk + 1})
    assert [one.shared for one in run_overlaps(run)] == [("switch",)]
    both = {"host": lab.host.pk + 1, "others": [{"host": lab.host.pk}]}
    Run.objects.filter(pk=other.pk).update(topology={}, composition=both)
    assert [one.shared for one in run_overlaps(run)] == [("host",)]


@pytest.mark.django_db
def test_a_tenant_learns_that_somebody_was_there_and_not_who_nor_how_many(lab: Lab) -> None:
    tenants = [Tenant.objects.create(name=name) for name in ("Vision", "Language")]
    bob, mallory = (
        User.objects.create_user(name, password="a-long-password-1", role="member", tenant=tenant)
        for name, tenant in zip(("bob", "mallory"), tenants, strict=True)
    )
    run, own, *others = [was(lab, slot, at=(0, 10.0 * slot), title=f"secret {slot}") for slot in range(1, 5)]
    Run.objects.filter(pk__in=[run.pk, own.pk]).update(tenant=tenants[0])
    Run.objects.filter(pk__in=[one.pk for one in others]).update(tenant=tenants[1])
    Run.objects.filter(pk=run.pk).update(overlaps=[
        {"run": str(one.pk), "shared": ["host"], "seconds": 10.0 + place} for place, one in enumerate((own, *others))
    ])  # fmt: skip
    run.refresh_from_db()
    assert [(one.title, one.seconds) for one in shown_overlaps(bob, run)] == [("", 12.0), ("secret 2", 10.0)]
    assert [one.title for one in shown_overlaps(lab.person, run)] == ["secret 4", "secret 3", "secret 2"]
    own.delete()
    assert [(one.title, one.run) for one in shown_overlaps(bob, run)] == [("", None)]
    assert [one.title for one in shown_overlaps(mallory, run)] == ["secret 4", "secret 3", ""]


@pytest.mark.django_db
def test_the_model_learns_from_runs_that_were_alone(lab: Lab) -> None:
    run = was(lab, 1, at=(0, 100))
    steps = {"value": 0.1, "low": 0.1, "high": 0.1, "unit": "s", "count": 12}
    Run.objects.filter(pk=run.pk).update(provenance="measured", results={"step_seconds": steps})
    assert [one.run for one in observations(lab.person)] == [str(run.pk)]
    Run.objects.filter(pk=run.pk).update(overlaps=[{"shared": ["host"], "seconds": 3.0}])
    assert observations(lab.person) == []


@pytest.mark.django_db
def test_runs_of_before_are_marked_by_their_times(lab: Lab) -> None:
    runs = [was(lab, 1, at=at) for at in ((0, 100), (10, 20), (15, 50), (100, 200))]
    with connection.schema_editor() as editor:
        import_module("benchmarks.runs.migrations.0003_overlaps").note_overlaps(apps, editor)
    noted = [Run.objects.get(pk=run.pk).overlaps for run in runs]
    assert [[one["seconds"] for one in overlaps] for overlaps in noted] == [[35.0, 10.0], [10.0, 5.0], [35.0, 5.0], []]
    assert noted[1][1]["run"] == str(runs[2].pk)
    assert noted[0] == msgspec.json.decode(msgspec.json.encode(run_overlaps(runs[0])))
