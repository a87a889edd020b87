"""Four people and nobody, against every address that the routers know: a new one without an entry fails."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from accounts.models import Tenant
from core.downloads import Download
from fabric.inventory.models import Device
from fabric.leases.models import Lease, LeaseItem
from telemetry.live.consumers import websocket_urlpatterns
from tests.access.lab import PEOPLE, Lab, address, lab, made_lab
from tests.pages import page_text

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db

# What each gets from GET, in the order of PEOPLE.
GETS: dict[str, tuple[int, int, int, int, int]] = {
    "accounts:sign_in": (302, 302, 302, 302, 200),
    "accounts:sign_out": (405, 405, 405, 405, 302),
    "accounts:people": (200, 403, 403, 403, 302),
    "accounts:person_add": (200, 403, 403, 403, 302),
    "accounts:person": (200, 403, 403, 403, 302),
    "accounts:person_password": (405, 405, 405, 405, 302),
    "accounts:tenants": (200, 403, 403, 403, 302),
    "accounts:tenant_add": (200, 403, 403, 403, 302),
    "accounts:account": (200, 200, 200, 200, 302),
    "accounts:account_password": (405, 405, 405, 405, 302),
    "accounts:token_add": (405, 405, 405, 405, 302),
    "accounts:token_revoke": (405, 405, 405, 405, 302),
    "accounts:audit": (200, 403, 403, 403, 302),
    "accounts:audit_entry": (200, 403, 403, 403, 302),
    "accounts:audit_export": (200, 403, 403, 403, 302),
    "accounts:audit_verification": (405, 405, 405, 405, 302),
    "fabric:overview": (200, 200, 200, 200, 302),
    "fabric:fabric": (200, 200, 200, 200, 302),
    "fabric:devices_csv": (200, 200, 200, 200, 302),
    "fabric:allocation": (200, 200, 200, 200, 302),
    "fabric:allocation_export": (200, 200, 200, 200, 302),
    "fabric:chassis": (200, 200, 200, 404, 302),
    "fabric:chassis_add": (200, 403, 403, 403, 302),
    "fabric:chassis_edit": (200, 403, 403, 403, 302),
    "fabric:chassis_remove": (200, 403, 403, 403, 302),
    "fabric:drawer": (200, 200, 200, 404, 302),
    "fabric:slot": (200, 200, 200, 404, 302),
    "fabric:device": (200, 200, 200, 404, 302),
    "fabric:port": (200, 200, 200, 404, 302),
    "fabric:host": (200, 200, 200, 404, 302),
    "fabric:hosts": (200, 200, 200, 200, 302),
    "fabric:drifts": (200, 200, 200, 200, 302),
    "fabric:drift": (200, 200, 200, 404, 302),
    "fabric:drift_accept": (405, 405, 405, 405, 302),
    "fabric:drift_reapply": (405, 405, 405, 405, 302),
    "fabric:slot_history": (200, 200, 200, 404, 302),
    "fabric:slot_history_csv": (200, 200, 200, 404, 302),
    "fabric:device_history": (200, 200, 200, 404, 302),
    "fabric:device_history_csv": (200, 200, 200, 404, 302),
    "fabric:operations": (200, 200, 200, 200, 302),
    "fabric:operation": (200, 200, 200, 404, 302),
    "fabric:operation_cancel": (405, 405, 405, 405, 302),
    "fabric:draft": (200, 200, 200, 200, 302),
    "fabric:plans": (200, 200, 200, 200, 302),
    "fabric:plan": (200, 200, 200, 404, 302),
    "fabric:plan_title": (405, 405, 405, 405, 302),
    "fabric:plan_anew": (405, 405, 405, 405, 302),
    "fabric:plan_apply": (405, 405, 405, 405, 302),
    "fabric:plan_cancel": (405, 405, 405, 405, 302),
    "fabric:plan_resume": (405, 405, 405, 405, 302),
    "fabric:plan_undo": (405, 405, 405, 405, 302),
    "fabric:plan_discard": (405, 405, 405, 405, 302),
    "fabric:host_agent": (405, 405, 405, 405, 302),
    "fabric:tenant": (200, 403, 403, 403, 302),
    "fabric:tenant_grants": (405, 405, 405, 405, 302),
    "fabric:tenant_removal": (405, 405, 405, 405, 302),
    "fabric:quotas": (200, 403, 403, 403, 302),
    "fabric:leases": (200, 200, 200, 200, 302),
    "fabric:lease_request": (302, 200, 200, 200, 302),
    "fabric:lease_give": (200, 403, 403, 403, 302),
    "fabric:lease_calendar": (200, 200, 200, 200, 302),
    "fabric:lease_usage": (200, 200, 200, 200, 302),
    "fabric:lease_usage_csv": (200, 200, 200, 200, 302),
    "fabric:lease": (200, 200, 200, 404, 302),
    "fabric:lease_decision": (200, 403, 403, 403, 302),
    "fabric:lease_withdrawal": (405, 405, 405, 405, 302),
    "fabric:lease_extension": (405, 405, 405, 405, 302),
    "fabric:lease_extension_decline": (405, 405, 405, 405, 302),
    "fabric:lease_return": (405, 405, 405, 405, 302),
    "fabric:system": (200, 403, 403, 403, 302),
    "links:links": (200, 200, 200, 200, 302),
    "links:links_csv": (200, 200, 200, 200, 302),
    "links:link": (200, 200, 200, 404, 302),
    "links:states_csv": (200, 200, 200, 404, 302),
    "links:counter_reset": (405, 405, 405, 405, 302),
    "api:links": (200, 200, 200, 200, 401),
    "api:link": (200, 200, 200, 404, 401),
    "api:link_states": (200, 200, 200, 404, 401),
    "api:link_counter_reset": (405, 405, 405, 405, 401),
    "history:telemetry": (200, 200, 200, 200, 302),
    "history:throughput": (200, 200, 200, 200, 302),
    "history:throughput_csv": (200, 200, 200, 404, 302),
    "history:heat_map": (200, 200, 200, 200, 302),
    "history:dashboards": (200, 200, 200, 200, 302),
    "history:dashboard_change": (405, 405, 405, 405, 302),
    "history:dashboard_remove": (405, 405, 405, 405, 302),
    "metrics": (200, 200, 200, 200, 401),
    "events:events": (200, 200, 200, 200, 302),
    "events:events_csv": (200, 200, 200, 200, 302),
    "events:catalogue": (200, 200, 200, 200, 302),
    "events:catalogue_csv": (200, 200, 200, 200, 302),
    "events:newest": (200, 200, 200, 200, 302),
    "events:news": (200, 200, 200, 200, 302),
    "events:event": (200, 200, 200, 404, 302),
    "events:saved": (405, 405, 405, 405, 302),
    "events:saved_change": (405, 405, 405, 405, 302),
    "events:saved_remove": (405, 405, 405, 405, 302),
    "pipeline:pipeline": (200, 403, 403, 403, 302),
    "pipeline:chassis_csv": (200, 403, 403, 403, 302),
    "pipeline:counts_csv": (200, 403, 403, 403, 302),
    "api:chassis_list": (200, 200, 200, 200, 401),
    "api:chassis": (200, 200, 200, 404, 401),
    "api:chassis_settings": (200, 403, 403, 403, 401),
    "api:series": (200, 200, 200, 404, 401),
    "api:readings": (200, 200, 200, 404, 401),
    "api:drawers": (200, 200, 200, 200, 401),
    "api:drawer": (200, 200, 200, 404, 401),
    "api:slots": (200, 200, 200, 200, 401),
    "api:slot": (200, 200, 200, 404, 401),
    "api:devices": (200, 200, 200, 200, 401),
    "api:device": (200, 200, 200, 404, 401),
    "api:ports": (200, 200, 200, 200, 401),
    "api:port": (200, 200, 200, 404, 401),
    "api:host_ports": (200, 200, 200, 200, 401),
    "api:host_port": (200, 200, 200, 404, 401),
    "api:hosts": (200, 200, 200, 200, 401),
    "api:host": (200, 200, 200, 404, 401),
    "api:switches": (200, 200, 200, 200, 401),
    "api:switch": (200, 200, 200, 404, 401),
    "api:drawer_mode": (405, 405, 405, 405, 401),
    "api:device_tenant": (405, 405, 405, 405, 401),
    "api:host_port_tenant": (405, 405, 405, 405, 401),
    "api:operations": (200, 200, 200, 200, 401),
    "api:operation": (200, 200, 200, 404, 401),
    "api:operation_proof": (200, 403, 403, 403, 401),
    "api:operation_cancel": (405, 405, 405, 405, 401),
    "api:plans": (200, 200, 200, 200, 401),
    "api:plan": (200, 200, 200, 404, 401),
    "api:plan_apply": (405, 405, 405, 405, 401),
    "api:plan_cancel": (405, 405, 405, 405, 401),
    "api:plan_resume": (405, 405, 405, 405, 401),
    "api:plan_undo": (405, 405, 405, 405, 401),
    "api:drifts": (200, 200, 200, 200, 401),
    "api:drift": (200, 200, 200, 404, 401),
    "api:drift_accept": (405, 405, 405, 405, 401),
    "api:drift_reapply": (405, 405, 405, 405, 401),
    "api:history": (200, 200, 200, 200, 401),
    "api:allocation": (200, 200, 200, 200, 401),
    "api:allocation_schema": (200, 200, 200, 200, 401),
    "api:me": (200, 200, 200, 200, 401),
    "api:my_tokens": (200, 200, 200, 200, 401),
    "api:my_token": (404, 404, 404, 404, 401),
    "api:my_dashboards": (200, 200, 200, 200, 401),
    "api:my_dashboard": (404, 404, 404, 404, 401),
    "api:telemetry": (400, 400, 400, 400, 401),
    "api:telemetry_table": (400, 400, 400, 400, 401),
    "api:telemetry_raw": (400, 400, 400, 400, 401),
    "api:telemetry_heat_map": (400, 400, 400, 400, 401),
    "api:telemetry_throughput": (400, 400, 400, 400, 401),
    "api:telemetry_catalogue": (200, 200, 200, 200, 401),
    "api:people": (200, 403, 403, 403, 401),
    "api:person": (200, 403, 403, 403, 401),
    "api:person_password": (405, 403, 403, 403, 401),
    "api:person_tokens": (200, 403, 403, 403, 401),
    "api:person_token": (405, 403, 403, 403, 401),
    "api:tenants": (200, 403, 403, 403, 401),
    "api:tenant": (200, 403, 403, 403, 401),
    "api:tenant_grants": (200, 403, 403, 403, 401),
    "api:audit": (200, 403, 403, 403, 401),
    "api:audit_entry": (200, 403, 403, 403, 401),
    "api:audit_export": (200, 403, 403, 403, 401),
    "api:audit_verification": (200, 403, 403, 403, 401),
    "api:tenant_quotas": (200, 403, 403, 403, 401),
    "api:leases": (200, 200, 200, 200, 401),
    "api:leases_given": (405, 403, 403, 403, 401),
    "api:lease_calendar": (200, 200, 200, 200, 401),
    "api:lease": (200, 200, 200, 404, 401),
    "api:lease_approval": (405, 403, 403, 403, 401),
    "api:lease_decline": (405, 403, 403, 403, 401),
    "api:lease_withdrawal": (405, 405, 405, 405, 401),
    "api:lease_extension": (405, 405, 405, 405, 401),
    "api:lease_extension_decline": (405, 403, 403, 403, 401),
    "api:lease_return": (405, 405, 405, 405, 401),
    "api:usage": (200, 200, 200, 200, 401),
    "api:pipeline": (200, 403, 403, 403, 401),
    "api:events": (200, 200, 200, 200, 401),
    "api:events_pull": (200, 200, 200, 200, 401),
    "api:events_catalogue": (200, 200, 200, 200, 401),
    "api:event": (200, 200, 200, 404, 401),
    "api:my_event_views": (200, 200, 200, 200, 401),
    "api:my_event_view": (200, 404, 404, 404, 401),
    "exports:exports": (200, 403, 403, 403, 302),
    "exports:exports_csv": (200, 403, 403, 403, 302),
    "exports:export_add": (200, 403, 403, 403, 302),
    "exports:export_preview": (405, 405, 405, 405, 302),
    "exports:export_test": (405, 405, 405, 405, 302),
    "exports:export_runs": (200, 403, 403, 403, 302),
    "exports:export_runs_csv": (200, 403, 403, 403, 302),
    "exports:export": (200, 403, 403, 403, 302),
    "exports:export_edit": (200, 403, 403, 403, 302),
    "exports:export_remove": (200, 403, 403, 403, 302),
    "exports:export_switch": (405, 405, 405, 405, 302),
    "exports:export_start": (405, 405, 405, 405, 302),
    "exports:export_run": (200, 403, 403, 403, 302),
    "exports:export_run_cancel": (405, 405, 405, 405, 302),
    "exports:export_run_resume": (405, 405, 405, 405, 302),
    "exports:export_run_file": (200, 403, 403, 403, 302),
    "api:exports": (200, 403, 403, 403, 401),
    "api:export": (200, 403, 403, 403, 401),
    "api:export_preview": (405, 403, 403, 403, 401),
    "api:export_try": (405, 403, 403, 403, 401),
    "api:export_start": (405, 403, 403, 403, 401),
    "api:export_runs": (200, 403, 403, 403, 401),
    "api:export_run": (200, 403, 403, 403, 401),
    "api:export_run_cancel": (405, 403, 403, 403, 401),
    "api:export_run_resume": (405, 403, 403, 403, 401),
    "api:export_run_file": (200, 403, 403, 403, 401),
    "alerts:alerts": (200, 200, 200, 200, 302),
    "alerts:alerts_csv": (200, 200, 200, 200, 302),
    "alerts:alert": (200, 200, 200, 404, 302),
    "alerts:badge": (200, 200, 200, 200, 302),
    "alerts:acknowledge": (405, 405, 405, 405, 302),
    "alerts:rules": (200, 403, 403, 403, 302),
    "alerts:rule_add": (200, 403, 403, 403, 302),
    "alerts:rule_preview": (200, 403, 403, 403, 302),
    "alerts:rule": (200, 403, 403, 403, 302),
    "alerts:rule_switch": (405, 405, 405, 405, 302),
    "alerts:rule_remove": (405, 405, 405, 405, 302),
    "alerts:built_in": (405, 405, 405, 405, 302),
    "alerts:silences": (200, 403, 403, 403, 302),
    "alerts:silence_add": (200, 403, 403, 403, 302),
    "alerts:silence_end": (405, 405, 405, 405, 302),
    "alerts:routes": (200, 403, 403, 403, 302),
    "alerts:route_add": (200, 403, 403, 403, 302),
    "alerts:route": (200, 403, 403, 403, 302),
    "alerts:route_remove": (405, 405, 405, 405, 302),
    "alerts:route_test": (405, 405, 405, 405, 302),
    "alerts:deliveries": (200, 403, 403, 403, 302),
    "alerts:delivery_retry": (405, 405, 405, 405, 302),
    "api:alerts": (200, 200, 200, 200, 401),
    "api:alert": (200, 200, 200, 404, 401),
    "api:alert_acknowledge": (405, 405, 405, 405, 401),
    "api:alert_rules": (200, 403, 403, 403, 401),
    "api:alert_rule": (200, 403, 403, 403, 401),
    "api:alert_rule_preview": (400, 403, 403, 403, 401),
    "api:alert_built_ins": (200, 403, 403, 403, 401),
    "api:alert_built_in": (405, 403, 403, 403, 401),
    "api:alert_silences": (200, 403, 403, 403, 401),
    "api:alert_silence_end": (405, 403, 403, 403, 401),
    "api:alert_routes": (200, 403, 403, 403, 401),
    "api:alert_route": (200, 403, 403, 403, 401),
    "api:alert_route_test": (405, 403, 403, 403, 401),
    "api:alert_deliveries": (200, 403, 403, 403, 401),
    "api:alert_delivery_retry": (405, 403, 403, 403, 401),
    "deploy:deploy": (200, 200, 200, 200, 302),
    "api:deployments": (405, 405, 405, 405, 401),
    "records:import": (200, 200, 200, 200, 302),
    "records:runs_jsonl": (200, 200, 200, 200, 302),
    "records:runs_csv": (200, 200, 200, 200, 302),
    "records:run_jsonl": (200, 200, 200, 404, 302),
    "records:run_csv": (200, 200, 200, 404, 302),
    "runs:catalogue": (200, 200, 200, 200, 302),
    "runs:runs": (200, 200, 200, 200, 302),
    "runs:runs_csv": (200, 200, 200, 200, 302),
    "runs:runs_cancel": (405, 405, 405, 405, 302),
    "runs:run_new": (200, 200, 403, 200, 302),
    "runs:run_from_file": (200, 200, 403, 200, 302),
    "runs:run": (200, 200, 200, 404, 302),
    "runs:run_log": (200, 200, 200, 404, 302),
    "runs:run_series": (200, 200, 200, 404, 302),
    "runs:run_cancel": (405, 405, 405, 405, 302),
    "runs:run_retry": (405, 405, 405, 405, 302),
    "runs:run_return": (405, 405, 405, 405, 302),
    "runs:run_delete": (405, 405, 405, 405, 302),
    "api:workloads": (200, 200, 200, 200, 401),
    "api:runs": (200, 200, 200, 200, 401),
    "api:run": (200, 200, 200, 404, 401),
    "api:run_cancel": (405, 405, 405, 405, 401),
    "api:run_retry": (405, 405, 405, 405, 401),
    "api:run_return": (405, 405, 405, 405, 401),
    "api:run_series": (200, 200, 200, 404, 401),
    "api:run_log": (200, 200, 200, 404, 401),
    "api:records": (200, 200, 200, 200, 401),
    "figures:figures": (200, 200, 200, 200, 302),
    "figures:compare": (200, 200, 200, 200, 302),
    "figures:figure": (200, 200, 200, 200, 302),
    "figures:figure_csv": (200, 200, 200, 200, 302),
    "api:figures": (200, 200, 200, 200, 401),
    "api:figure": (200, 200, 200, 200, 401),
    "api:comparison": (400, 400, 400, 400, 401),
    "api:records_schema": (200, 200, 200, 200, 401),
    "recommend:recommend": (200, 200, 200, 200, 302),
    "recommend:recommend_csv": (400, 400, 400, 400, 302),
    "recommend:recommend_plan": (405, 405, 405, 405, 302),
    "recommend:recommend_run": (405, 405, 405, 405, 302),
    "api:recommendations": (405, 405, 405, 405, 401),
    "api:recommendation_plan": (405, 405, 405, 405, 401),
    "api:recommendation_run": (405, 405, 405, 405, 401),
    "sweeps:sweeps": (200, 200, 200, 200, 302),
    "sweeps:sweeps_csv": (200, 200, 200, 200, 302),
    "sweeps:sweep_add": (200, 200, 403, 200, 302),
    "sweeps:count": (200, 200, 403, 200, 302),
    "sweeps:manifest": (200, 200, 403, 200, 302),
    "sweeps:sweep": (200, 200, 200, 404, 302),
    "sweeps:points_csv": (200, 200, 200, 404, 302),
    "sweeps:pause": (405, 405, 405, 405, 302),
    "sweeps:resume": (405, 405, 405, 405, 302),
    "sweeps:halt": (405, 405, 405, 405, 302),
    "sweeps:retry": (405, 405, 405, 405, 302),
    "sweeps:delete": (405, 405, 405, 405, 302),
    "api:sweeps": (200, 200, 200, 200, 401),
    "api:sweep_preview": (405, 405, 405, 405, 401),
    "api:sweep": (200, 200, 200, 404, 401),
    "api:sweep_points": (200, 200, 200, 404, 401),
    "api:sweep_pause": (405, 405, 405, 405, 401),
    "api:sweep_resume": (405, 405, 405, 405, 401),
    "api:sweep_halt": (405, 405, 405, 405, 401),
    "api:sweep_retry": (405, 405, 405, 405, 401),
    "api:schema": (200, 200, 200, 200, 401),
    "api:docs": (200, 200, 200, 200, 302),
    "api:nothing": (404, 404, 404, 404, 401),
}
SOCKETS = {"ws/live/"}
OTHERS = ("SN-OTHER", "GPU other", "node-other", "secret host")
HIDDEN = {"owner": OTHERS, "member": OTHERS} | dict.fromkeys(
    ("stranger", "nobody"), ("SN-OWNED", "GPU owned", "node-owned", *OTHERS)
)


def names(patterns: list[URLPattern | URLResolver], space: str = "") -> Iterator[str]:
    """Yield every named address of the routers."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from names(pattern.url_patterns, f"{pattern.namespace}:" if pattern.namespace else space)
        else:
            yield f"{space}{pattern.name}"


def test_every_address_of_the_routers_has_its_line() -> None:
    assert set(names(get_resolver().url_patterns)) == set(GETS)
    assert {str(pattern.pattern) for pattern in websocket_urlpatterns} == SOCKETS


@pytest.mark.parametrize("space", sorted({name.partition(":")[0] for name in GETS}))
def test_each_person_gets_what_the_line_says_and_nothing_that_is_not_granted_to_them(lab: Lab, space: str) -> None:
    for name in (one for one in GETS if one.partition(":")[0] == space):
        answers: dict[str, Any] = {person: lab.clients[person].get(address(lab, name)) for person in PEOPLE}
        assert tuple(answers[person].status_code for person in PEOPLE) == GETS[name], name
        # What Django streams by itself is first made as a whole: a day of readings is gigabytes.
        streamed = [one for one in answers.values() if one.streaming and not one.is_async]
        assert all(isinstance(one, Download) for one in streamed), name
        texts = {who: page_text(one) for who, one in answers.items()}
        for person, hidden in HIDDEN.items():
            assert not [word for word in hidden if word in texts[person]], (name, person)
        if GETS[name][0] == 405 and not name.startswith("api:"):
            # An address that only takes forms says so on a page.
            assert "POST" in answers["administrator"]["Allow"]
            assert "Nothing was changed." in texts["administrator"], name
            assert '<nav aria-label="Main"' in texts["administrator"], name


def test_others_slots_are_shown_as_in_use(lab: Lab) -> None:
    answer = lab.clients["owner"].get(reverse("api:chassis_list")).json()
    slots = answer[0]["drawers"][0]["slots"]
    assert [slot["state"] for slot in slots] == ["occupied", "in_use"]
    assert slots[1] == {"id": None, "number": 2, "state": "in_use", "device": None}
    assert "in use" in lab.clients["owner"].get(reverse("fabric:fabric")).content.decode()


def shown_of_slot_2(lab: Lab, person: str) -> dict[str, object]:
    """Return what the API tells a person of the slot that is not the owner's, the same by each of its answers."""
    client = lab.clients[person]
    (chassis,) = client.get(reverse("api:chassis_list")).json()
    slot: dict[str, object] = chassis["drawers"][0]["slots"][1]
    assert client.get(address(lab, "api:chassis")).json()["drawers"][0]["slots"][1] == slot
    assert client.get(address(lab, "api:drawer")).json()["slots"][1] == slot
    return slot


@pytest.mark.parametrize("person", ["owner", "member"])
def test_what_nobody_holds_is_shown_to_tenants_as_in_the_pool_and_nothing_else_of_it(lab: Lab, person: str) -> None:
    """The slot is attached to a host of others still: that is not told."""
    other = Device.objects.get(name="GPU other")
    Device.objects.filter(pk=other.pk).update(tenant=None)
    LeaseItem.objects.filter(device=other).update(released_at=timezone.now())
    assert shown_of_slot_2(lab, person) == {"id": None, "number": 2, "state": "in_pool", "device": None}
    for name in ("fabric:fabric", "fabric:chassis", "fabric:drawer"):
        text = page_text(lab.clients[person].get(address(lab, name)))
        assert 'aria-label="Drawer 1 slot 2, in the pool: you may ask for it"' in text
        assert not [word for word in ("SN-OTHER", "GPU other", "node-other") if word in text]
    listed = page_text(lab.clients[person].get(reverse("fabric:fabric"), {"view": "list"}))
    assert '<td colspan="8" class="faint"> in the pool </td>' in listed
    assert "node-other" not in listed
    assert lab.clients[person].get(reverse("api:slots")).json()["count"] == 1
    # The calendar says the same of it, now.
    calendar = page_text(lab.clients[person].get(reverse("fabric:lease_calendar")))
    assert "Slot 2" in calendar
    # Who sees everything sees the device, and has no use for the word.
    text = page_text(lab.clients["administrator"].get(reverse("fabric:fabric")))
    assert "GPU other" in text
    assert "in the pool" not in text
    assert lab.clients["stranger"].get(reverse("api:chassis_list")).json() == []


def test_what_is_promised_from_now_on_or_is_not_there_is_not_in_the_pool(lab: Lab) -> None:
    """A free device that a lease which has begun is about: the calendar says 'in use'. Later ones do not count yet."""
    other = Device.objects.get(name="GPU other")
    Device.objects.filter(pk=other.pk).update(tenant=None)
    assert shown_of_slot_2(lab, "owner")["state"] == "in_use"
    Lease.objects.filter(items__device=other).update(
        starts_at=timezone.now() + timedelta(days=1), ends_at=timezone.now() + timedelta(days=2), state="approved"
    )
    assert shown_of_slot_2(lab, "owner")["state"] == "in_pool"
    Device.objects.filter(pk=other.pk).update(missing_since=timezone.now())
    assert shown_of_slot_2(lab, "owner") == {"id": None, "number": 2, "state": "empty", "device": None}
    Device.objects.filter(pk=other.pk).update(tenant=Tenant.objects.get(name="Two"))
    assert shown_of_slot_2(lab, "owner")["state"] == "in_use"


@pytest.mark.parametrize(
    ("person", "status"), [("administrator", 202), ("owner", 202), ("member", 403), ("stranger", 404), ("nobody", 401)]
)
def test_who_may_detach(lab: Lab, person: str, status: int) -> None:
    answer = lab.clients[person].post(
        reverse("api:operations"),
        {"device_id": lab.device.pk, "target_host_port_id": None},
        content_type="application/json",
    )
    assert answer.status_code == status
    if status == 202:
        assert answer["Location"].endswith(reverse("api:operation", args=[answer.json()["id"]]))
    else:
        assert answer["Content-Type"] == "application/problem+json"
        assert answer.json()["status"] == status


def test_a_made_up_operation_is_not_found(lab: Lab) -> None:
    assert lab.clients["owner"].get(reverse("fabric:operation", args=[uuid.uuid4()])).status_code == 404


def test_pages_carry_a_strict_policy_and_no_inline_script(lab: Lab) -> None:
    answer = lab.clients["administrator"].get(reverse("fabric:fabric"))
    assert "script-src 'self'" in answer["Content-Security-Policy"]
    assert "unsafe" not in answer["Content-Security-Policy"]
    text = answer.content.decode()
    assert "style=" not in text
    assert "onclick" not in text


def test_sign_in_is_closed_after_ten_wrong_passwords(lab: Lab) -> None:
    client = lab.clients["nobody"]
    for _ in range(9):
        client.post(reverse("accounts:sign_in"), {"username": "owner", "password": "wrong"})
    answer = client.post(reverse("accounts:sign_in"), {"username": "owner", "password": "wrong"})
    assert answer.status_code == 429
    assert client.post(reverse("accounts:sign_in"), {"username": "owner", "password": "x"}).status_code == 429
