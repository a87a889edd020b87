"""Entries come with what they tell of, in one chain that shows every tampering."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from accounts.audit import refusal_limits, triggers
from accounts.audit.actions import Action, Outcome
from accounts.audit.chain import digest_of
from accounts.audit.context import Origin, bind_origin, unbind_origin
from accounts.audit.models import AppendOnlyError, AuditEntry, AuditHead
from accounts.audit.services import Target, attempt, audit_batch, audit_record, audited, refusals_summarise, target_of
from accounts.audit.verification import anchor_path, audit_reseal, audit_verify, chain_check
from accounts.models import Role, Tenant, User
from accounts.services import person_add, person_edit, tenant_add, tenant_edit, tenant_remove
from accounts.token_services import token_create
from core.errors import Conflict, Forbidden, Invalid

pytestmark = pytest.mark.usefixtures("fresh_log")
THING = Target("thing", "7", "Thing seven")


@pytest.fixture
def ada(db: None) -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password="x")


def record(**more: Any) -> None:
    audit_record(**({"action": Action.REQUEST, "actor": None, "target": THING} | more))


def kept() -> list[tuple[str, str]]:
    return list(AuditEntry.objects.order_by("sequence").values_list("action", "outcome"))


def tamper(statement: str, *values: str) -> None:
    """Do what somebody with the database can do: the tests' has no triggers."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def test_a_change_and_its_entry_are_kept_together_or_not_at_all(ada: User) -> None:
    def add() -> None:
        with audited(Action.TENANT_ADD, actor=ada):
            Tenant.objects.create(name="One")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        add()
    assert not Tenant.objects.exists()
    assert kept() == [("tenant.add", "failed")]
    tenant_add(by=ada, name="One")
    assert kept()[1:] == [("tenant.add", "done")]


def test_without_a_log_nothing_changes(ada: User) -> None:
    tamper("ALTER TABLE accounts_audithead RENAME TO elsewhere")
    try:
        with pytest.raises(DatabaseError), transaction.atomic():
            tenant_add(by=ada, name="One")
    finally:
        tamper("ALTER TABLE elsewhere RENAME TO accounts_audithead")
    assert not Tenant.objects.exists()


def test_what_is_refused_is_kept_though_its_transaction_is_undone(ada: User) -> None:
    tenant = tenant_add(by=ada, name="One")
    bob = User.objects.create_user("bob", role=Role.USER, tenant=tenant)
    with pytest.raises(Forbidden):
        tenant_edit(by=bob, tenant=tenant, name="Mine")
    with pytest.raises(Conflict):
        tenant_remove(by=ada, tenant=tenant)
    first, second = AuditEntry.objects.filter(outcome=Outcome.REFUSED).order_by("sequence")
    assert (first.action, first.actor_name, first.actor_role, first.actor_tenant) == (
        "tenant.edit", "bob", "user", "One",
    )  # fmt: skip
    assert (first.target_kind, first.target_id, first.target_name) == ("tenant", str(tenant.pk), "One")
    assert first.sentence == "This is for administrators. Ask one of them for what you need."
    assert (second.status, second.after) == (409, None)
    assert "still has 1 person" in second.sentence


def test_before_and_after_stand_side_by_side(ada: User) -> None:
    tenant = tenant_add(by=ada, name="One")
    bob, _ = person_add(by=ada, username="bob", full_name="Bob", email="", role=Role.USER, tenant=tenant)
    person_edit(
        by=ada, person=bob, username="bob", full_name="Bob B.", email="", role=Role.VIEWER, tenant=tenant, active=True
    )
    entry = AuditEntry.objects.get(action=Action.PERSON_EDIT)
    assert entry.before is not None
    assert entry.after is not None
    assert {name for name in entry.after if entry.before[name] != entry.after[name]} == {"full name", "role"}
    assert entry.after["tenant"] == "One"


def test_services_inside_of_others_append_at_the_end_of_the_outermost(ada: User) -> None:
    with audited(Action.GRANTS_SET, actor=ada):
        tenant_add(by=ada, name="One")
        with pytest.raises(Conflict), attempt(Action.CHASSIS_EDIT, actor=ada):
            raise Conflict("Not this.")
        assert kept() == []
    assert kept() == [("tenant.add", "done"), ("chassis.edit", "refused"), ("grant.set", "done")]


def test_what_was_done_inside_is_undone_with_the_outermost_and_what_was_refused_stays(ada: User) -> None:
    def set_grants() -> None:
        with audited(Action.GRANTS_SET, actor=ada):
            tenant_add(by=ada, name="One")
            with pytest.raises(Conflict), attempt(Action.CHASSIS_EDIT, actor=ada):
                raise Conflict("Not this.")
            raise Conflict("Nor that.")

    with pytest.raises(Conflict):
        set_grants()
    assert kept() == [("chassis.edit", "refused"), ("grant.set", "refused")]
    assert not Tenant.objects.exists()


def add_together(by: User, *names: str) -> None:
    with audit_batch():
        for name in names:
            tenant_add(by=by, name=name)


def test_several_actions_in_one_transaction_append_at_its_end_and_a_part_may_be_undone(ada: User) -> None:
    with audit_batch():
        add_together(ada, "One")
        with pytest.raises(Invalid):
            add_together(ada, "Two", "One")
        assert kept() == []
    assert kept() == [("tenant.add", "done"), ("tenant.add", "refused")]
    assert [tenant.name for tenant in Tenant.objects.all()] == ["One"]


def test_what_is_refused_in_a_transaction_of_several_actions_is_kept_though_all_of_it_is_undone(ada: User) -> None:
    with pytest.raises(Invalid):
        add_together(ada, "One", "One")
    assert kept() == [("tenant.add", "refused")]
    assert not Tenant.objects.exists()


def test_what_is_carried_out_later_carries_the_id_of_the_request(ada: User) -> None:
    record(request_id="0123456789abcdef")
    entry = AuditEntry.objects.get()
    assert (entry.request_id, entry.via, entry.method) == ("0123456789abcdef", "command", "")


def test_secrets_that_are_shown_once_are_not_in_the_log(ada: User) -> None:
    tenant = tenant_add(by=ada, name="One")
    bob, password = person_add(by=ada, username="bob", full_name="", email="", role=Role.USER, tenant=tenant)
    _, secret = token_create(person=bob, name="job", scope="write", days=1)
    bob.refresh_from_db()
    text = json.dumps([entry.record() for entry in AuditEntry.objects.all()])
    assert "job" in text
    assert password not in text
    assert secret not in text
    assert bob.password not in text


def test_the_model_refuses_to_change_and_delete(ada: User) -> None:
    record()
    entry = AuditEntry.objects.get()
    for refused in (
        entry.save, entry.delete, AuditEntry.objects.all().delete, partial(AuditEntry.objects.update, sentence="x"),
        AuditHead.objects.get().delete, partial(AuditEntry.objects.bulk_update, [entry], ["sentence"]),
        AuditEntry(sequence=9).save,
    ):  # fmt: skip
        with pytest.raises(AppendOnlyError):
            refused()


@pytest.mark.django_db(transaction=True)
def test_the_database_refuses_to_change_and_delete(ada: User) -> None:
    record()
    record()
    triggers.install(connection)
    try:
        for statement in (
            "UPDATE accounts_auditentry SET sentence = 'x'",
            "DELETE FROM accounts_auditentry",
            "DELETE FROM accounts_audithead",
            "INSERT OR REPLACE INTO accounts_auditentry SELECT * FROM accounts_auditentry WHERE sequence = 1"
            if connection.vendor == "sqlite"
            else "TRUNCATE accounts_auditentry",
        ):
            with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
                tamper(statement)
        record()
        assert chain_check().entries == 3
    finally:
        triggers.lift(connection)


def test_the_migration_installs_the_triggers() -> None:
    steps = import_module("accounts.migrations.0001_initial").Migration.operations
    assert [step.code for step in steps if hasattr(step, "code")] == [triggers.install_by_migration]


def test_a_whole_log_verifies_and_says_so_in_itself(ada: User) -> None:
    for _ in range(3):
        record()
    verdict = audit_verify(actor=ada)
    assert (verdict.entries, verdict.broken) == (3, None)
    entry = AuditEntry.objects.latest("sequence")
    assert (entry.action, entry.outcome, entry.sentence) == ("audit.verify", "done", "The log is whole: 3 entries.")
    assert chain_check().entries == 4


def test_an_empty_log_is_whole(db: None) -> None:
    assert chain_check().broken is None


def test_tampering_is_found_and_named(ada: User) -> None:
    for _ in range(9):
        record()
    whole = chain_check()
    for statements, sequence, words in (
        (["UPDATE accounts_auditentry SET actor_name = 'eve' WHERE sequence = 4"], 4, "was changed"),
        (["UPDATE accounts_auditentry SET after = '{}' WHERE sequence = 1"], 1, "was changed"),
        (["DELETE FROM accounts_auditentry WHERE sequence = 4"], 4, "Entry 4 is missing"),
        (["DELETE FROM accounts_auditentry WHERE sequence < 3"], 1, "Entries 1 to 2 are missing"),
        (["DELETE FROM accounts_auditentry WHERE sequence > 7"], 8, "ends at entry 7, and its end was sealed at 9"),
        (["UPDATE accounts_auditentry SET sequence = 40 WHERE sequence = 4"], 4, "missing"),
        (["UPDATE accounts_audithead SET sequence = 8",
          "UPDATE accounts_audithead SET digest = (SELECT digest FROM accounts_auditentry WHERE sequence = 8)",
          "DELETE FROM accounts_auditentry WHERE sequence > 8"], 8, "seal of the end is not the site's"),
        (["DELETE FROM accounts_auditentry"], 1, "cut off"),
    ):  # fmt: skip
        with transaction.atomic():
            for statement in statements:
                tamper(statement)
            verdict = chain_check()
            transaction.set_rollback(True)
        assert (verdict.broken, words in verdict.sentence) == (sequence, True), verdict
    assert chain_check() == whole


def test_a_history_that_was_written_anew_is_not_sealed_by_the_next_entry(ada: User) -> None:
    for _ in range(3):
        record()
    # Somebody who knows the recipe, but not the key, rewrites entry 3 and the end.
    forged = AuditEntry.objects.get(sequence=3)
    forged.actor_name = "eve"
    digest = digest_of(forged.record())
    tamper("UPDATE accounts_auditentry SET actor_name = 'eve', digest = %s WHERE sequence = 3", digest)
    tamper("UPDATE accounts_audithead SET digest = %s", digest)
    record()
    verdict = chain_check()
    assert verdict.broken == 4
    assert "records that the end of the log had been replaced before it" in verdict.sentence
    audit_reseal(actor=None, reason="The key was lost.")
    assert chain_check().broken is None


def test_an_old_copy_of_database_and_end_is_found_by_what_lies_beside_it(ada: User) -> None:
    for _ in range(3):
        record()
    head = AuditHead.objects.get()
    for _ in range(3):
        record()
    audit_verify(actor=None)
    assert anchor_path().stat().st_mode & 0o777 == 0o600
    tamper("DELETE FROM accounts_auditentry WHERE sequence > 3")
    tamper("UPDATE accounts_audithead SET sequence = 3, digest = %s, seal = %s", head.digest, head.seal)
    verdict = chain_check()
    assert (verdict.broken, "it ends at entry 3, and had 6 entries before" in verdict.sentence) == (4, True)
    # Then it grows again.
    for _ in range(5):
        record()
    assert "Entry 6 differs from the one" in chain_check().sentence
    audit_reseal(actor=None, reason="The backup of yesterday was put back.")
    assert chain_check().broken is None


def test_an_end_that_was_taken_away_is_told_of(ada: User) -> None:
    record()
    tamper("DELETE FROM accounts_audithead")
    assert chain_check().broken is not None
    record()
    assert chain_check().broken == 2


@pytest.mark.django_db(transaction=True)
def test_many_at_once_make_one_chain_without_gaps(ada: User) -> None:
    together = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            together.wait(60)
            for turn in range(5):
                tenant_add(by=ada, name=f"Tenant {number} {turn}")
                with pytest.raises(Forbidden):
                    tenant_add(by=User(username="nobody", role=Role.VIEWER), name="No")
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert Tenant.objects.count() == 40
    assert chain_check().entries == 80
    assert chain_check().broken is None


@pytest.fixture
def stranger() -> Any:
    """A request of nobody, from one address."""

    def ask(address: str = "203.0.113.5") -> Origin:
        origin = Origin(request_id="r", via="page", address=address)
        token = bind_origin(origin)
        try:
            record(outcome=Outcome.REFUSED)
        finally:
            unbind_origin(token)
        return origin

    return ask


def test_a_flood_of_refusals_is_counted_and_told_of_once(ada: User, stranger: Any) -> None:
    asked = [stranger() for _ in range(refusal_limits.ADDRESS_LIMIT + 15)]
    assert AuditEntry.objects.count() == refusal_limits.ADDRESS_LIMIT
    assert [one.counted for one in asked] == [False] * refusal_limits.ADDRESS_LIMIT + [True] * 15
    stranger("203.0.113.6")
    assert AuditEntry.objects.count() == refusal_limits.ADDRESS_LIMIT + 1
    assert refusals_summarise() == 0  # the quarter of an hour has not ended
    later = time.time() + 2 * refusal_limits.PERIOD_SECONDS
    assert refusals_summarise(now=later) == 15
    assert refusals_summarise(now=later) == 0
    one, whole = AuditEntry.objects.filter(action=Action.AUDIT_MORE_REFUSALS).order_by("sequence")
    assert one.after == {"requests": 15, "address": "203.0.113.5"}
    assert "15 further refused requests of nobody who was signed in came from 203.0.113.5 between" in one.sentence
    assert whole.after == {"requests": 15, "from others": 0}


def test_what_is_refused_inside_of_something_counts_once(ada: User, stranger: Any) -> None:
    token = bind_origin(Origin(request_id="r", via="page", address="203.0.113.5"))
    try:
        with pytest.raises(Conflict), audited(Action.GRANTS_SET, actor=None), attempt(Action.CHASSIS_EDIT, actor=None):
            raise Conflict("Not this.")
    finally:
        unbind_origin(token)
    asked = [stranger() for _ in range(refusal_limits.ADDRESS_LIMIT - 1)]
    assert [one.counted for one in asked] == [False] * (refusal_limits.ADDRESS_LIMIT - 2) + [True]
    assert AuditEntry.objects.count() == refusal_limits.ADDRESS_LIMIT


def test_many_addresses_together_are_bounded_too(ada: User, stranger: Any) -> None:
    for number in range(refusal_limits.ANONYMOUS_LIMIT + 40):
        stranger(f"203.0.{number // 50}.{number % 50}")
    assert AuditEntry.objects.count() == refusal_limits.ANONYMOUS_LIMIT


def test_a_summary_is_not_written_twice_where_a_worker_died_in_between(ada: User, stranger: Any) -> None:
    for _ in range(refusal_limits.ADDRESS_LIMIT + 1):
        stranger()
    later = time.time() + 2 * refusal_limits.PERIOD_SECONDS
    (period,) = refusal_limits.ended_period_counts(later)
    refusals_summarise(now=later)
    entries = AuditEntry.objects.count()
    refusal_limits._count(period, "|203.0.113.5")  # as if it had not been forgotten
    refusals_summarise(now=later)
    assert AuditEntry.objects.count() == entries


def test_what_was_done_is_kept_however_much_it_is(ada: User) -> None:
    token = bind_origin(Origin(request_id="r", via="api", address="203.0.113.5"))
    try:
        for _ in range(refusal_limits.PERSON_LIMIT + 5):
            record(actor=ada)
        for _ in range(refusal_limits.PERSON_LIMIT + 5):
            record(actor=ada, outcome=Outcome.REFUSED)
    finally:
        unbind_origin(token)
    assert AuditEntry.objects.filter(outcome=Outcome.DONE).count() == refusal_limits.PERSON_LIMIT + 5
    assert AuditEntry.objects.filter(outcome=Outcome.REFUSED).count() == refusal_limits.PERSON_LIMIT


def test_the_first_administrator_is_in_the_log(db: None, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("bootstrap")
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target_name, entry.via) == ("person.add", "administrator", "command")


def test_a_row_is_named_by_its_kind(ada: User) -> None:
    assert target_of(ada) == Target("person", str(ada.pk), "ada")
