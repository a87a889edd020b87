"""Sweeps are deleted by whoever may manage them, once they have ended: with their runs, or without."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.audit.actions import Action
from accounts.audit.models import AuditEntry
from accounts.models import Role, Tenant, User
from benchmarks.runs.models import Chunk, LogPart, Run, Series
from benchmarks.sweeps.models import Point, Sweep
from benchmarks.sweeps.scheduler import sweep_advance
from benchmarks.sweeps.services import sweep_delete
from core.errors import Conflict, Forbidden, NotFound
from tests.benchmarks.records.making import sampled_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    """A tenant."""
    return Tenant.objects.create(name="Vision")


def person(name: str, tenant: Tenant | None, role: str = Role.USER) -> User:
    """Make a person."""
    return User.objects.create_user(name, password="a-long-password-1", role=role, tenant=tenant)


@pytest.fixture
def owner(tenant: Tenant) -> User:
    """Who asked for the sweep."""
    return person("owner", tenant)


@pytest.fixture
def sweep(owner: User) -> Sweep:
    """A completed sweep with three runs, that of the first point the oldest."""
    sweep = Sweep.objects.create(
        title="Over batches", state="completed", requested_by=owner, requested_by_name="owner", tenant=owner.tenant,
        grid={"workload": ["resnet50"], "host": [1], "batch": [8, 16, 32]}, finished_at=timezone.now(),
    )  # fmt: skip
    for position in range(3):
        values = {"workload": "resnet50", "batch": 8 << position}
        Point.objects.create(
            sweep=sweep, position=position, values=values, composition={"host": 1, "cpu": True}, state="begun"
        )
        sampled_run(
            owner.tenant, sweep=sweep, position=position, point=values, requested_by=owner,
            queued_at=timezone.now() - timedelta(minutes=3 - position),
        )  # fmt: skip
    return sweep


def client_of(person: User) -> Client:
    """Return a browser of a person."""
    client = Client()
    client.force_login(person)
    return client


def left() -> dict[str, int]:
    """Return how many rows there are of a sweep and of what its runs recorded."""
    models: tuple[Any, ...] = (Sweep, Point, Run, Series, Chunk, LogPart)
    return {model.__name__: model._default_manager.count() for model in models}


def test_its_runs_stay_as_runs_of_their_own(owner: User, sweep: Sweep) -> None:
    before = left()
    sweep_delete(person=owner, sweep=sweep)
    assert left() == {**before, "Sweep": 0, "Point": 0}
    assert set(Run.objects.values_list("sweep", flat=True)) == {None}
    assert Run.objects.filter(point__batch=32).get().results
    page = client_of(owner).get(reverse("runs:run", args=[Run.objects.all()[0].pk]))
    assert page.status_code == 200
    entry = AuditEntry.objects.get(action=Action.SWEEP_DELETE)
    assert (entry.outcome, entry.target_name, entry.target_id) == ("done", "Over batches", str(sweep.pk))
    assert entry.before == {"state": "completed", "runs": 3, "deleted": 0}
    with pytest.raises(NotFound):
        sweep_delete(person=owner, sweep=sweep)
    # A worker that was told of it before finds nothing to do.
    sweep_advance(str(sweep.pk), worker="tests")


def test_its_runs_go_with_it_and_all_that_they_recorded(owner: User, sweep: Sweep) -> None:
    assert left()["Chunk"] > 0
    sweep_delete(person=owner, sweep=sweep, runs=True)
    assert set(left().values()) == {0}
    entries = AuditEntry.objects.filter(outcome="done")
    assert entries.filter(action=Action.RUN_DELETE).count() == 3
    assert entries.get(action=Action.SWEEP_DELETE).before == {"state": "completed", "runs": 3, "deleted": 3}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"state": "running"}, "Halt it first"),
        ({"state": "paused"}, "Halt it first"),
        ({"settled": False}, "devices are not back"),
    ],
)
def test_one_that_has_not_ended_or_has_not_given_back_is_kept(
    owner: User, sweep: Sweep, given: dict[str, Any], sentence: str
) -> None:
    Sweep.objects.filter(pk=sweep.pk).update(**given)
    before = left()
    for runs in (False, True):
        with pytest.raises(Conflict, match=sentence):
            sweep_delete(person=owner, sweep=sweep, runs=runs)
    assert left() == before
    assert "sure-delete" not in client_of(owner).get(reverse("sweeps:sweep", args=[sweep.pk])).content.decode()


def test_one_with_a_run_that_goes_on_is_kept(owner: User, sweep: Sweep) -> None:
    Run.objects.filter(sweep=sweep, position=1).update(state="returning")
    with pytest.raises(Conflict, match="Not all of its runs have ended"):
        sweep_delete(person=owner, sweep=sweep)
    assert Sweep.objects.exists()


def test_nothing_is_deleted_where_one_of_its_runs_cannot_be(owner: User, sweep: Sweep) -> None:
    # The oldest, which comes last: what was deleted before it is there again.
    Run.objects.filter(position=0).update(tenant=Tenant.objects.create(name="Another"))
    before = left()
    with pytest.raises(NotFound):
        sweep_delete(person=owner, sweep=sweep, runs=True)
    assert left() == before
    assert Run.objects.filter(sweep=sweep).count() == 3
    outcomes = AuditEntry.objects.values_list("action", "outcome")
    assert (Action.SWEEP_DELETE, "refused") in outcomes
    assert "done" not in {outcome for _, outcome in outcomes}


def test_who_may_delete_it_and_whose_runs(owner: User, sweep: Sweep, tenant: Tenant) -> None:
    colleague, viewer = person("colleague", tenant), person("viewer", tenant, Role.VIEWER)
    stranger = person("stranger", Tenant.objects.create(name="Another"))
    for who, error in ((viewer, Forbidden), (stranger, NotFound)):
        with pytest.raises(error):
            sweep_delete(person=who, sweep=sweep)
    with pytest.raises(Forbidden, match="Others requested 3 of its runs"):
        sweep_delete(person=colleague, sweep=sweep, runs=True)
    page = client_of(colleague).get(reverse("sweeps:sweep", args=[sweep.pk])).content.decode()
    assert "others requested 3 of them" in page
    assert 'name="runs"' not in page
    assert "sure-delete" not in client_of(viewer).get(reverse("sweeps:sweep", args=[sweep.pk])).content.decode()
    assert Sweep.objects.exists()
    sweep_delete(person=colleague, sweep=sweep)
    assert Run.objects.filter(requested_by=owner, sweep=None).count() == 3


def test_the_page_asks_first_and_the_list_goes_on(owner: User, sweep: Sweep) -> None:
    client = client_of(owner)
    other = Sweep.objects.create(title="Another", state="halted", requested_by=owner, tenant=owner.tenant)
    Run.objects.filter(position=2).update(sweep=other)
    address = reverse("sweeps:delete", args=[sweep.pk])
    page = client.get(reverse("sweeps:sweep", args=[sweep.pk])).content.decode()
    assert "The records of its 2 runs stay, under Runs, unless they go too." in page
    assert client.get(address).status_code == 405
    answer = client.post(address, follow=True)
    assert answer.redirect_chain == [(reverse("sweeps:sweeps"), 302)]
    told = answer.content.decode()
    assert "‘Over batches’ was deleted." in told
    assert "1 sweep" in told
    table = b"".join(client.get(reverse("sweeps:sweeps_csv"))).decode()
    assert [row[1] for row in csv.reader(io.StringIO(table))][:2] == ["title", "Another"]
    answer = client.post(reverse("sweeps:delete", args=[other.pk]), {"runs": "1"}, follow=True)
    assert "‘Another’ was deleted with its runs." in answer.content.decode()
    assert "No sweeps yet" in answer.content.decode()
    assert sorted(Run.objects.values_list("position", flat=True)) == [0, 1]


def test_the_api_deletes_alike(owner: User, sweep: Sweep) -> None:
    client = client_of(owner)
    address = reverse("api:sweep", args=[sweep.pk])
    for wrong in ("?runs=some", "?run=1"):
        assert client.delete(address + wrong).status_code == 400
    assert client.delete(address, '{"runs": true}', content_type="application/json").status_code == 400
    Sweep.objects.update(state="running")
    assert client.delete(address + "?runs=1").status_code == 409
    Sweep.objects.update(state="halted")
    assert Run.objects.filter(sweep=sweep).count() == 3
    assert client.delete(address + "?runs=1").status_code == 204
    assert client.delete(address).status_code == 404
    assert set(left().values()) == {0}
