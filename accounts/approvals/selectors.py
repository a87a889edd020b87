"""Reads of the policy and of requests for an approval."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, Value, When

from accounts.approvals.models import ApprovalPolicy, ApprovalRequest, Danger
from accounts.models import Role, User


def chosen_dangers() -> set[str]:
    """Return the dangers that administrators have put into the policy."""
    row = ApprovalPolicy.objects.filter(pk=1).first()
    return set(row.dangers) & set(Danger.values) if row else set()


def guarded_dangers() -> set[str]:
    """Return the dangers that need a second person, loosening a policy that names any included."""
    chosen = chosen_dangers()
    return chosen | {Danger.POLICY} if chosen else chosen


def approval_rows(person: User, state: str | None = None) -> Any:
    """Return the requests that a person may see, those that wait first."""
    rows = ApprovalRequest.objects.visible_to(person)
    if state:
        rows = rows.filter(state=state)
    waits_first = Case(When(state=ApprovalRequest.State.WAITING, then=Value(0)), default=Value(1))
    return rows.order_by(waits_first, "-pk")


def waiting_count() -> int:
    """Return how many requests wait for an administrator."""
    return ApprovalRequest.objects.filter(state=ApprovalRequest.State.WAITING).count()


def administrators_but(person: User | None) -> Any:
    """Return the active administrators other than a person."""
    rows = User.objects.filter(role=Role.ADMINISTRATOR, is_active=True)
    return rows if person is None else rows.exclude(pk=person.pk)
