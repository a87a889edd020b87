"""Two administrators at once."""

from __future__ import annotations

import threading

import pytest
from django.db import connections
from django.test import Client

from accounts.approvals.models import ApprovalPolicy, ApprovalRequest
from accounts.approvals.services import approval_approve
from accounts.audit.models import AuditEntry
from accounts.models import User
from core.errors import Conflict


@pytest.mark.django_db(transaction=True)
def test_of_two_approvals_at_once_one_carries_it_out() -> None:
    ada, ben, cleo = (User.objects.create_superuser(name, password="x") for name in ("ada", "ben", "cleo"))
    ApprovalPolicy.objects.create(pk=1, dangers=["force", "mode"])
    client = Client()
    client.force_login(ada)
    client.put("/api/v1/approvals/policy/", {"dangers": ["mode"]}, content_type="application/json")
    row = ApprovalRequest.objects.get()
    begin, ends = threading.Barrier(2), []

    def approve(by: User) -> None:
        begin.wait(10)
        try:
            ends.append(approval_approve(by=by, approval=row).state)
        except Conflict as error:
            ends.append(error.code)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=approve, args=(by,)) for by in (ben, cleo)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert sorted(map(str, ends)) == ["conflict", "done"]
    assert AuditEntry.objects.filter(action="approval.policy", outcome="done").count() == 1
