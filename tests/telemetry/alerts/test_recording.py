"""What engines find out becomes rows, once, whoever tells of it; and what people say of them is not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from accounts.audit.models import AuditEntry
from core.errors import Conflict, Forbidden, Invalid, NotFound
from fabric.inventory.models import Device
from fabric.leases.models import Tenure
from telemetry.alerts.engine import FIRING, PENDING
from telemetry.alerts.facts import open_alert_states
from telemetry.alerts.models import Alert, Rule
from telemetry.alerts.rule_services import RuleValues, rule_add, rule_edit, rule_remove, rule_switch, rule_values
from telemetry.alerts.services import (
    NOT_MEASURED,
    RULE_ENDED,
    AcknowledgeResult,
    alerts_acknowledge,
    alerts_end,
    transitions_record,
)
from telemetry.events.models import Event
from tests.telemetry.alerts.conftest import Lab, check_of, fire, record, resolve, turn

pytestmark = pytest.mark.django_db


def alert_events(lab: Lab) -> list[tuple[str, str]]:
    return list(Event.objects.filter(source="alert").order_by("pk").values_list("message", "severity"))


def test_an_alert_goes_from_pending_to_resolved_with_its_values_and_events(lab: Lab) -> None:
    began = datetime(2026, 3, 1, 12, tzinfo=UTC)
    Device.objects.filter(pk=lab.device.pk).update(tenant_since=began - timedelta(days=1))
    check, at = check_of(lab.device), began.timestamp()
    record([turn(check, "pending", at=at, value=86.0)], lab.chassis)
    row = Alert.objects.get()
    assert (row.state, row.since.timestamp()) == ("pending", at - 3)
    assert alert_events(lab) == []
    record([turn(check, "firing", at=at + 3, value=90.0)], lab.chassis)
    row.refresh_from_db()
    assert (row.state, row.value, row.threshold) == ("firing", 90.0, "above 85 °C for 3 s")
    assert (row.since.timestamp(), row.fired_at.timestamp() if row.fired_at else 0) == (at - 3, at + 3)
    record([turn(check, "resolved", at=at + 60, value=97.0)], lab.chassis)
    row.refresh_from_db()
    assert (row.state, row.worst_value, row.resolved_because) == ("resolved", 97.0, "")
    assert alert_events(lab) == [("FalconWeb.AlertFiring", "Critical"), ("FalconWeb.AlertResolved", "OK")]
    event = Event.objects.filter(source="alert").order_by("pk")[0]
    assert (event.device_id, event.tenant_id, event.link) == (lab.device.pk, lab.tenant.pk, f"/alerts/{row.pk}/")


def test_what_is_kept_late_is_an_event_of_who_held_the_device_when_it_turned(lab: Lab) -> None:
    """The database was away for an hour, and the device went to the others before it was back."""
    now = timezone.now()
    named = {"device": lab.device, "kind": "gpu", "name": "GPU 1"}
    handed = now - timedelta(minutes=10)
    Tenure.objects.create(
        tenant=lab.tenant, tenant_name="One", began_at=now - timedelta(days=1), ended_at=handed, **named
    )
    Tenure.objects.create(tenant=lab.others, tenant_name="Two", began_at=handed, **named)
    Device.objects.filter(pk=lab.device.pk).update(tenant=lab.others, tenant_since=handed)
    check, at = check_of(lab.device), now.timestamp()
    record([turn(check, "firing", at=at - 3600), turn(check, "resolved", at=at - 60)], lab.chassis)
    told = dict(Event.objects.filter(source="alert").values_list("message", "tenant_name"))
    assert told == {"FalconWeb.AlertFiring": "One", "FalconWeb.AlertResolved": "Two"}


def test_what_is_pending_and_goes_leaves_nothing(lab: Lab) -> None:
    check = check_of(lab.device)
    record([turn(check, "pending"), turn(check, "gone")], lab.chassis)
    assert not Alert.objects.exists()
    assert alert_events(lab) == []


def test_what_two_workers_tell_rings_once(lab: Lab) -> None:
    check = check_of(lab.device)
    for _ in range(2):
        record([turn(check, "pending"), turn(check, "firing")], lab.chassis)
    assert Alert.objects.count() == 1
    for _ in range(2):
        record([turn(check, "resolved")], lab.chassis)
    assert [one[0] for one in alert_events(lab)] == ["FalconWeb.AlertFiring", "FalconWeb.AlertResolved"]
    record([turn(check, "firing")], lab.chassis)
    assert Alert.objects.filter(state="firing").count() == 1
    assert Alert.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_one_bad_turn_does_not_take_the_others_along(lab: Lab) -> None:
    good, other = check_of(lab.device), check_of(lab.other)
    bad = replace(other, subject=replace(other.subject, device=10**9))  # a device that was removed in this moment
    record([turn(bad, "firing"), turn(good, "firing")], lab.chassis)
    assert [alert.device_id for alert in Alert.objects.all()] == [lab.device.pk]


def test_a_chassis_that_was_removed_is_no_error(lab: Lab) -> None:
    check = check_of(lab.device)
    pk = lab.chassis.pk
    lab.chassis.delete()
    transitions_record(chassis_id=pk, changes=[turn(check, "firing")])
    assert not Alert.objects.exists()


def test_states_are_read_back_from_the_rows(lab: Lab) -> None:
    hot, warm = check_of(lab.device), check_of(lab.other)
    record([turn(hot, "firing", at=1000.0), turn(warm, "pending", at=2000.0)], lab.chassis)
    states = open_alert_states(lab.chassis.pk)
    assert (states[hot.identity].state, states[hot.identity].since) == (FIRING, 997.0)
    assert (states[warm.identity].state, states[warm.identity].since) == (PENDING, 1997.0)
    alerts_acknowledge(person=lab.administrator, alerts=[Alert.objects.get(state="firing").pk])
    assert open_alert_states(lab.chassis.pk)[hot.identity].state == FIRING


def test_who_acknowledges_is_kept_with_the_note_and_only_the_first_counts(lab: Lab) -> None:
    alert = fire(lab.device)
    (result,) = alerts_acknowledge(person=lab.user, alerts=[alert.pk], note="I look at the fans. ")
    assert result == AcknowledgeResult(alert.pk, "Too hot: GPU 1")
    with pytest.raises(Conflict) as refused:
        alerts_acknowledge(person=lab.administrator, alerts=[alert.pk], note="Mine")
    assert "bob acknowledged it at" in refused.value.sentence
    alert.refresh_from_db()
    assert (alert.state, alert.acknowledged_by_name, alert.acknowledged_note) == (
        "acknowledged",
        "bob",
        "I look at the fans.",
    )
    assert alert_events(lab)[-1] == ("FalconWeb.AlertAcknowledged", "OK")
    assert [one.outcome for one in AuditEntry.objects.filter(action="alert.acknowledge").order_by("sequence")] == [
        "done",
        "refused",
    ]
    resolve(alert)
    alert.refresh_from_db()
    assert (alert.state, alert.acknowledged_by_name) == ("resolved", "bob")


def test_of_many_each_is_told_what_became_of_it(lab: Lab) -> None:
    mine, also = fire(lab.device), fire(lab.other)
    resolve(also)
    results = alerts_acknowledge(person=lab.administrator, alerts=[mine.pk, also.pk])
    assert [bool(one.sentence) for one in results] == [False, True]
    assert "over" in results[1].sentence


def test_who_may_not_acknowledge_is_refused(lab: Lab) -> None:
    alert = fire(lab.device)
    for person, error in ((lab.viewer, Forbidden), (lab.stranger, NotFound)):
        with pytest.raises(error):
            alerts_acknowledge(person=person, alerts=[alert.pk])
    with pytest.raises(Invalid):
        alerts_acknowledge(person=lab.user, alerts=[])
    alert.refresh_from_db()
    assert alert.state == "firing"


@pytest.mark.django_db(transaction=True)
def test_of_two_who_acknowledge_at_once_one_is_first(lab: Lab) -> None:
    alert = fire(lab.device)
    ended: list[object] = []
    start = threading.Barrier(2)

    def acknowledge(person: object) -> None:
        start.wait()
        try:
            ended.append(alerts_acknowledge(person=person, alerts=[alert.pk])[0].sentence)  # type: ignore[arg-type]
        except Conflict as error:
            ended.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=acknowledge, args=(person,)) for person in (lab.user, lab.administrator)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(isinstance(one, Conflict) for one in ended) == [False, True]
    assert Event.objects.filter(message="FalconWeb.AlertAcknowledged").count() == 1


RULE = RuleValues(name="Hot", metric="temperature_celsius", condition="above", value=80.0)


def test_a_rule_that_is_switched_off_changed_so_or_deleted_ends_its_alerts(lab: Lab) -> None:
    ends: tuple[Callable[[Rule], object], ...] = (
        lambda rule: rule_switch(person=lab.administrator, rule=rule, enabled=False),
        lambda rule: rule_edit(
            person=lab.administrator,
            rule=rule,
            values=RuleValues(**{**vars(rule_values(rule)), "enabled": False}),
        ),
        lambda rule: rule_remove(person=lab.administrator, rule=rule),
    )
    for number, end in enumerate(ends):
        values = RuleValues(**{**vars(RULE), "name": f"Hot {number}"})
        rule = rule_add(person=lab.administrator, values=values)
        alert = fire(lab.device, cause=f"rule-{rule.pk}", rule=rule.pk)
        end(rule)
        alert.refresh_from_db()
        assert (alert.state, alert.resolved_because) == ("resolved", RULE_ENDED)
        # A worker that has not heard of it yet raises nothing by it.
        record([turn(check_of(lab.device, cause=f"rule-{rule.pk}", rule=rule.pk), "firing")], lab.chassis)
        assert not Alert.objects.filter(state="firing").exists()


def test_what_is_measured_no_more_ends_and_what_was_pending_goes(lab: Lab) -> None:
    hot, warm = check_of(lab.device), check_of(lab.other)
    record([turn(hot, "firing"), turn(warm, "pending")], lab.chassis)
    assert alerts_end(chassis_id=lab.chassis.pk, identities={hot.identity, warm.identity}, because=NOT_MEASURED) == 1
    assert list(Alert.objects.values_list("state", "resolved_because")) == [("resolved", NOT_MEASURED)]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": " "}, "name"),
        ({"metric": "; drop"}, "metric"),
        ({"metric": ""}, "metric"),
        ({"condition": "near"}, "condition"),
        ({"value": None}, "value"),
        ({"value": float("nan")}, "value"),
        ({"value": float("inf")}, "value"),
        ({"clear_value": 90.0}, "clear_value"),
        ({"condition": "below", "clear_value": 70.0}, "clear_value"),
        ({"hold_seconds": -1.0}, "hold_seconds"),
        ({"hold_seconds": float("nan")}, "hold_seconds"),
        ({"hold_seconds": 8 * 86400.0}, "hold_seconds"),
        ({"severity": "OK"}, "severity"),
        ({"scope": "moon"}, "scope"),
        ({"scope": "device"}, "scope_id"),
        ({"scope": "device", "scope_id": 10**9}, "scope_id"),
        ({"scope": "device_kind", "device_kind": "toaster"}, "device_kind"),
        ({"note": "x" * 5000}, "note"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_its_field(lab: Lab, wrong: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        rule_add(person=lab.administrator, values=RuleValues(**{**vars(RULE), **wrong}))
    assert field in refused.value.details["errors"]
    assert not Rule.objects.exists()


def test_rules_are_administrators_and_their_names_are_one_of_a_kind(lab: Lab) -> None:
    with pytest.raises(Forbidden):
        rule_add(person=lab.user, values=RULE)
    rule_add(person=lab.administrator, values=RULE)
    with pytest.raises(Conflict):
        rule_add(person=lab.administrator, values=RULE)


def test_a_tenant_sees_what_rings_of_its_own_and_nothing_of_the_time_before(lab: Lab) -> None:
    from telemetry.alerts.selectors import alert_rows, alert_views

    old, other = fire(lab.device), fire(lab.other)
    resolve(old)
    still = fire(lab.device)
    alerts_acknowledge(person=lab.user, alerts=[still.pk], note="said by those before")
    assert set(alert_rows(lab.user).values_list("pk", flat=True)) == {old.pk, still.pk}
    assert list(alert_rows(lab.stranger).values_list("pk", flat=True)) == [other.pk]
    # The device goes to the others: what lasts they see, what was before they do not, nor what was said of it.
    lab.device.tenant, lab.device.tenant_since = lab.others, timezone.now() + timedelta(seconds=1)
    lab.device.save()
    assert set(alert_rows(lab.stranger).values_list("pk", flat=True)) == {other.pk, still.pk}
    view = next(one for one in alert_views(lab.stranger, alert_rows(lab.stranger)) if one.id == still.pk)
    assert (view.acknowledged_by_name, view.acknowledged_note, view.value, view.value_words) == ("", "", None, "")
    assert view.since == lab.device.tenant_since
    assert not alert_rows(lab.user).exists()
