"""The bell in the header: what fires, and how a person's own work has ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from accounts.approvals.models import ApprovalRequest
from accounts.models import User
from benchmarks.runs.models import Run
from fabric.inventory.models import Chassis
from fabric.operations.models import Operation, Plan
from tests.access.lab import Lab, lab, made_lab

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(lab: Lab) -> User:
    """The owner, of whose work nothing is new yet."""
    lab.clients["owner"].post(reverse("notices"))
    return User.objects.get(username="owner")


def ended(person: User, summary: str, state: str = "done", **values: Any) -> Operation:
    """Make an operation of a person that has just ended."""
    return Operation.objects.create(
        kind="attach", state=state, chassis=Chassis.objects.get(), summary=summary, requested_by=person,
        requested_by_name=person.username, tenant=person.tenant, finished_at=timezone.now(), **values,
    )  # fmt: skip


def shown(client: Client) -> dict[str, Any]:
    """Return what the bell shows."""
    found: dict[str, Any] = client.get(reverse("notices")).json()
    return found


def test_own_work_that_has_ended_is_new_until_it_is_seen(lab: Lab, owner: User) -> None:
    ended(owner, "Attach GPU 1 to node-a", "failed")
    Run.objects.create(title="A long run", state="completed", provenance="measured", workload="x", tenant=owner.tenant,
                       requested_by=owner, finished_at=timezone.now() + timedelta(minutes=1))  # fmt: skip
    found = shown(lab.clients["owner"])
    assert found["unseen"] == 2
    assert [(one["words"], one["state"], one["look"], one["is_new"]) for one in found["work"][:2]] == [
        ("A long run", "Completed", "done", True),
        ("Attach GPU 1 to node-a", "Failed", "failed", True),
    ]
    User.objects.filter(pk=owner.pk).update(notices_seen_at=timezone.now() + timedelta(minutes=2))
    assert shown(lab.clients["owner"])["unseen"] == 0
    assert shown(lab.clients["owner"])["work"][0]["words"] == "A long run"


def test_to_see_them_is_one_post_and_each_persons_own(lab: Lab, owner: User) -> None:
    ended(owner, "Attach GPU 1 to node-a")
    ended(User.objects.get(username="administrator"), "Attach GPU 2 to node-b")
    before = shown(lab.clients["administrator"])["unseen"]
    assert lab.clients["owner"].post(reverse("notices")).json()["unseen"] == 0
    assert shown(lab.clients["administrator"])["unseen"] == before > 0


def test_to_see_them_to_take_the_tour_or_to_choose_a_zone_checks_the_access_of_no_socket(
    lab: Lab, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    client = lab.clients["owner"]
    with django_capture_on_commit_callbacks() as committed:
        client.post(reverse("notices"))
        client.post(reverse("tour"), {"step": "2"})
        client.post(reverse("accounts:account_locale"), {"zone": "Asia/Tokyo"})
    assert committed == []
    with django_capture_on_commit_callbacks() as committed:
        User.objects.get(username="owner").save(update_fields=["role"])
    assert len(committed) == 1


@pytest.mark.parametrize("person", ["member", "stranger", "administrator"])
def test_nobody_is_told_of_the_work_of_others(lab: Lab, owner: User, person: str) -> None:
    ended(owner, "Attach GPU 1 to node-a")
    assert "node-a" not in lab.clients[person].get(reverse("notices")).content.decode()


def test_steps_of_plans_and_plans_of_the_site_are_left_out_and_a_stopped_plan_is_not(lab: Lab, owner: User) -> None:
    values = {"requested_by": owner, "requested_by_name": "owner", "tenant": owner.tenant}
    plan = Plan.objects.create(title="Stopped half way", state="stopped", applied_at=timezone.now(), **values)
    Plan.objects.create(title="Of the site", state="done", finished_at=timezone.now(), by_site=True, **values)
    ended(owner, "A step of it", plan=plan)
    assert [one["words"] for one in shown(lab.clients["owner"])["work"] if one["is_new"]] == ["Stopped half way"]


def test_approvals_that_wait_are_told_to_administrators_who_may_decide(lab: Lab) -> None:
    administrator = User.objects.get(username="administrator")
    other = User.objects.create_user("second", role="administrator")
    for by in (administrator, other):
        ApprovalRequest.objects.create(
            dangers=[], sentence=f"Delete all, says {by}", service="x", parameters={}, facts={}, requested_by=by,
            requested_by_name=by.username, requested_at=timezone.now(), expires_at=timezone.now(), request_digest="",
        )  # fmt: skip
    words = [one["words"] for one in shown(lab.clients["administrator"])["work"]]
    assert "Delete all, says second" in words
    assert "Delete all, says administrator" not in words


def test_the_bell_takes_as_many_queries_however_much_has_ended(
    lab: Lab, owner: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(50):
        ended(owner, f"Attach {number}")
    with django_assert_max_num_queries(23):
        found = shown(lab.clients["owner"])
    assert len(found["work"]) == 20
