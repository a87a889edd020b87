"""Four people and nobody, against every address that the routers know: a new one without an entry fails."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone
from msgspec import to_builtins

from accounts.audit.actions import Action
from accounts.audit.services import audit_record, target_of
from accounts.models import AuditEntry, Role, Tenant, User
from benchmarks.runs.composition import Composition
from benchmarks.runs.models import Run
from benchmarks.sweeps.models import Point, Sweep
from benchmarks.workloads.catalogue import spec_of
from fabric.models import (
    Attachment,
    Chassis,
    Device,
    Drawer,
    Drift,
    Host,
    HostAgent,
    HostPort,
    Lease,
    LeaseItem,
    Operation,
    Plan,
    Port,
    Proof,
    Slot,
    Switch,
    Tenure,
)
from fabric.planning import Wanted
from fabric.services.plans import plan_create
from hostwire.shapes import HostReport, Trainer
from telemetry.alerts.models import Alert, Delivery, Route, Rule, Silence
from telemetry.events.models import SavedView
from telemetry.events.services import event_record
from telemetry.exports.models import ExportRun
from telemetry.exports.options import Wanted as WantedExport
from telemetry.exports.running import run_go_on
from telemetry.exports.runs import run_request
from telemetry.exports.services import export_add
from telemetry.routing import websocket_urlpatterns

PEOPLE = ("administrator", "owner", "member", "stranger", "nobody")
SWEPT = ("running", "paused", "completed")
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
SECRETS = ("SN-OWNED", "SN-OTHER", "GPU owned", "GPU other", "node-owned", "node-other")


@dataclass
class Lab:
    """Rows of two tenants in one chassis."""

    clients: dict[str, Client]
    arguments: dict[str, list[object]]
    device: Device
    host_port: HostPort


def names(patterns: list[URLPattern | URLResolver], space: str = "") -> Iterator[str]:
    """Yield every named address of the routers."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from names(pattern.url_patterns, f"{pattern.namespace}:" if pattern.namespace else space)
        else:
            yield f"{space}{pattern.name}"


def part(  # noqa: PLR0917 - one call, read in order
    chassis: Chassis, drawer: Drawer, switch: Switch, number: int, tenant: Tenant, word: str
) -> tuple[Device, HostPort]:
    """Make one slot with a device, attached to a host port of its own, granted to a tenant."""
    ports = [
        Port.objects.create(chassis=chassis, uri=f"/port/{kind}{number}", name=f"{kind}{number}", switch=switch)
        for kind in ("slot", "H")
    ]
    host = Host.objects.create(name=f"node-{word}", identity=word)
    host_port = HostPort.objects.create(
        chassis=chassis, uri=f"/zone/{number}", name=f"H{number}", endpoint_uri=f"/e/h{number}", drawer=drawer,
        port=ports[1], host=host, tenant=tenant, label=f"H{number}", number=number,
    )  # fmt: skip
    slot = Slot.objects.create(
        chassis=chassis, uri=f"/slot/{number}", name=f"slot {number}", drawer=drawer, port=ports[0], number=number
    )
    device = Device.objects.create(
        chassis=chassis, uri=f"/device/{number}", name=f"GPU {word}", serial_number=f"SN-{word.upper()}", slot=slot,
        host_port=host_port, tenant=tenant, kind="gpu", endpoint_uri=f"/e/{number}",
    )  # fmt: skip
    return device, host_port


def drifted(device: Device, approved: HostPort) -> Drift:
    """Let a device be elsewhere than approved, and have a history: both name the hosts of either tenant."""
    port = device.host_port
    assert port is not None
    Device.objects.filter(pk=device.pk).update(approved_host_port=approved, approved_at=timezone.now())
    Attachment.objects.create(
        chassis=device.chassis, device=device, slot=device.slot, host_port=approved, tenant=device.tenant,
        device_name=device.name, host_port_label=approved.label, host_name=str(approved.host),
        since=timezone.now(), until=timezone.now(), origin="outside", ending="outside",
    )  # fmt: skip
    return Drift.objects.create(
        chassis=device.chassis, kind="attachment", uri=device.uri, device=device, what=device.name,
        noticed_at=timezone.now(), expected=str(approved.pk), expected_words=f"{approved.host} ({approved.label})",
        found=str(port.pk), found_words=f"{port.host} ({port.label})",
    )  # fmt: skip


def happened(*devices: Device) -> int:
    """Let something happen to devices of each tenant; return the number of the first one's event."""
    made = [
        event_record(
            source="bmc", message_id="Fabric.1.0.PortDown", severity="Critical", text=f"{device.name} is gone.",
            at=timezone.now(), chassis_id=device.chassis_id, device_id=device.pk, person_name=device.serial_number,
        )
        for device in devices
    ]  # fmt: skip
    assert made[0] is not None
    return made[0].pk


def leased(tenant: Tenant, *things: Device | HostPort) -> Lease:
    """Make an active lease of these things that is asked to be longer, or, without any, a request for one."""
    now = timezone.now()
    lease = Lease.objects.create(
        tenant=tenant, tenant_name=tenant.name, state="active" if things else "requested", starts_at=now,
        ends_at=now + timedelta(days=3), extension_to=now + timedelta(days=9) if things else None,
        asked_by_name="owner", wishes=[{"kind": "gpu", "count": 1, "chassis": None}],
    )  # fmt: skip
    for one in things:
        about = {"device": one} if isinstance(one, Device) else {"host_port": one}
        LeaseItem.objects.create(lease=lease, kind="gpu", name=one.name, taken_at=now, **about)
        Tenure.objects.create(tenant=tenant, tenant_name=tenant.name, kind="gpu", name=one.name, began_at=now, **about)
    return lease


def recorded(*tenants: Tenant) -> dict[str, list[object]]:
    """Let each tenant have a run that has ended; return the first one's id for the addresses of records."""
    words = ("owned", "other")
    runs = [
        Run.objects.create(
            title=f"A run on node-{word}", state="completed", workload="resnet50", provenance="measured",
            requested_by_name=word, tenant=tenant,
        )
        for word, tenant in zip(words, tenants, strict=True)
    ]  # fmt: skip
    return {name: [runs[0].pk] for name in ("run_jsonl", "run_csv")}


def benchmarked(tenant: Tenant, drafted: Plan, device: Device, host_port: HostPort) -> dict[str, list[object]]:
    """Make runs in each state that an address is for, on a host whose agent can run some, and return their ids."""
    host = host_port.host
    assert host is not None
    trainer = Trainer(executors=("simulated",))
    report = HostReport(host=host.identity, number=1, started=1.0, sent=1.0, version="1", trainer=trainer)
    HostAgent.objects.create(
        host=host, digest="f" * 32, key_encrypted="-", reported_at=timezone.now() + timedelta(hours=1),
        report=to_builtins(report),
    )  # fmt: skip
    composition = Composition(host=host.pk, cpu=True)
    spec = spec_of("mnist_cnn", "tiny", {})
    words = {
        "workload": "mnist_cnn", "provenance": "simulated", "executor": "simulated", "requested_by_name": "owner",
        "spec": to_builtins(spec), "spec_hash": spec.hash, "composition": composition.as_json(), "host": host,
    }  # fmt: skip
    done = Run.objects.create(title="Done", state="completed", tenant=tenant, **words)
    queued = Run.objects.create(title="Queued", state="queued", tenant=tenant, **words)
    brought = ended(drafted, device, "done")
    brought.wanted = Wanted(attachments={device.pk: host_port.pk}).as_json()
    brought.base = {**drafted.base, "attachments": {str(device.pk): None}}
    brought.save()
    owing = Run.objects.create(title="Owing", state="completed", plan=brought, **words)
    made: dict[str, list[object]] = {
        name: [done.pk] for name in ("run", "run_log", "run_series", "run_retry", "run_delete")
    }
    made |= {"run_cancel": [queued.pk], "run_return": [owing.pk]}
    return made


def swept(host: Host, other: Host, *tenants: Tenant) -> dict[str, list[object]]:
    """Let each tenant have a sweep that goes on, and the first one others in further states; return their ids."""
    found: list[Sweep] = []
    for state, place, tenant in (("running", other, tenants[1]), *((one, host, tenants[0]) for one in SWEPT)):
        sweep = Sweep.objects.create(
            title=f"Sweep of {place.name}", state=state, requested_by_name="owner", tenant=tenant,
            grid={"workload": ["resnet50"], "host": [place.pk], "batch": [8, 16]},
        )  # fmt: skip
        for position in (0, 1):
            Point.objects.create(
                sweep=sweep, position=position, values={"host": place.pk, "placement": "local", "batch": 8},
                composition={"host": place.pk, "local_gpus": 1}, state="skipped" if position else "waiting",
                attempts=position,
            )  # fmt: skip
        found.append(sweep)
    ids: list[list[object]] = [[one.pk] for one in found[1:]]
    running, paused, ended = ids
    arguments = dict.fromkeys(("points_csv", "sweep_points", "pause", "halt", "retry"), running)
    arguments |= dict.fromkeys(("sweep_pause", "sweep_halt", "sweep_retry"), running)
    arguments |= dict.fromkeys(("resume", "sweep_resume"), paused)
    arguments |= dict.fromkeys(("sweep", "delete"), ended)
    return arguments


def planned(person: User, device: Device) -> Plan:
    """Make the draft of a plan that detaches a device."""
    return plan_create(person=person, wanted=Wanted(attachments={device.pk: None}), title="Free it", origin="api")


def ended(drafted: Plan, device: Device, state: str) -> Plan:
    """Make a plan as a drafted one, applied and come to this state by an operation on a device."""
    plan, now = Plan.objects.get(pk=drafted.pk), timezone.now()
    plan.pk, plan.state, plan.applied_at = uuid.uuid4(), state, now
    plan.save(force_insert=True)
    Operation.objects.create(
        kind="detach", state="done", chassis=device.chassis, device=device, plan=plan, position=1, attempts=1,
        finished_at=now, requested_by_name="owner",
    )  # fmt: skip
    return plan


def exported(by: User) -> dict[str, list[object]]:
    """Make exports and runs of them in each state that an address is for: with a file, to cancel, to resume, none."""
    done, going, failed, idle = (
        export_add(by=by, wanted=WantedExport(name, format="csv", target="download")) for name in ("a", "b", "c", "d")
    )
    runs = [run_request(by=by, definition=one) for one in (done, going, failed)]
    assert not run_go_on(runs[0].pk, worker="lab")
    ExportRun.objects.filter(pk=runs[2].pk).update(state="failed", ended_at=timezone.now())
    found: dict[str, list[object]] = {
        name: [idle.pk] for name in (
            "export", "export_edit", "export_remove", "export_switch", "export_start", "export_try",
        )
    }  # fmt: skip
    found |= {name: [runs[0].pk] for name in ("export_run", "export_run_file")}
    return found | {"export_run_cancel": [runs[1].pk], "export_run_resume": [runs[2].pk]}


def rung(*devices: Device) -> dict[str, list[object]]:
    """Let an alert fire of each device, and make a rule, a silence, and a route with a delivery that waits."""
    now = timezone.now()
    alerts = [
        Alert.objects.create(
            chassis=device.chassis, cause="sensor_critical:upper", series_key=f"device/{device.pk}/x", title="Too hot",
            severity="Critical", rank=2, state="firing", object="device", subject_name=device.name, device=device,
            threshold=device.serial_number, since=now, fired_at=now,
        )
        for device in devices
    ]  # fmt: skip
    rule = Rule.objects.create(name="Hot", metric="temperature_celsius", condition="above", value=80)
    silence = Silence.objects.create(ends_at=now + timedelta(hours=1), made_by_name="administrator", why="Fans")
    route = Route.objects.create(name="Hook", kind="webhook", address="https://hook.example/")
    delivery = Delivery.objects.create(route=route, number=1, summary="Too hot", content={"kind": "test"})
    made: dict[str, list[object]] = {"alert": [alerts[0].pk]}
    made |= {name: [rule.pk] for name in ("rule", "rule_switch", "rule_remove", "alert_rule")}
    made |= {name: ["fan_failed"] for name in ("built_in", "alert_built_in")}
    made |= {name: [silence.pk] for name in ("silence_end", "alert_silence_end")}
    routes = ("route", "route_remove", "route_test", "alert_route", "alert_route_test")
    made |= {name: [route.pk] for name in routes}
    return made | {name: [delivery.pk] for name in ("delivery_retry", "alert_delivery_retry")}


@pytest.fixture
def lab(db: None) -> Lab:
    """An owner and a member (viewer) of one tenant, a stranger of another that holds nothing here."""
    tenant, others, strangers = (Tenant.objects.create(name=name) for name in ("One", "Two", "Three"))
    people = {
        "administrator": User.objects.create_superuser("administrator", password="x"),
        "owner": User.objects.create_user("owner", password="x", role=Role.USER, tenant=tenant),
        "member": User.objects.create_user("member", password="x", role=Role.VIEWER, tenant=tenant),
        "stranger": User.objects.create_user("stranger", password="x", role=Role.USER, tenant=strangers),
    }
    chassis = Chassis.objects.create(
        name="falcon", url="https://127.0.0.1:1", dialect="zone_patch", last_error="secret host"
    )
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1, mode="Advanced")
    switch = Switch.objects.create(chassis=chassis, uri="/s", name="Switch", drawer=drawer)
    device, host_port = part(chassis, drawer, switch, 1, tenant, "owned")
    other, elsewhere = part(chassis, drawer, switch, 2, others, "other")
    drift = drifted(device, elsewhere)
    drifted(other, host_port)
    operation = Operation.objects.create(
        kind="detach",
        state="done",
        chassis=chassis,
        device=device,
        summary="Detach GPU owned",
        requested_by_name="owner",
    )
    clients = {name: Client() for name in PEOPLE}
    for name, person in people.items():
        clients[name].force_login(person)
    arguments: dict[str, list[object]] = {
        "chassis": [chassis.pk], "series": [chassis.pk], "readings": [chassis.pk], "device": [device.pk],
        "host": [host_port.host_id], "operation": [operation.pk], "port": [device.slot.port_id if device.slot else 0],
        "drawer": [drawer.pk], "slot": [device.slot_id],
    }  # fmt: skip
    arguments |= {name: [chassis.pk] for name in ("chassis_edit", "chassis_remove", "chassis_settings")}
    arguments |= {name: [people["owner"].pk] for name in ("person", "person_password")}
    arguments |= {name: [tenant.pk] for name in ("tenant", "tenant_grants", "tenant_removal")}
    arguments |= {name: [1] for name in ("token_revoke", "my_token")}
    arguments |= {name: [1] for name in ("my_dashboard", "dashboard_change", "dashboard_remove")}
    # Of an operation, so that a tenant could find its own name in it.
    audit_record(action=Action.OPERATION_REQUEST, actor=people["owner"], target=target_of(device))
    arguments |= {"audit_entry": [AuditEntry.objects.latest("sequence").pk]}
    arguments |= {name: [device.slot_id] for name in ("slot_history", "slot_history_csv")}
    arguments |= {name: [device.pk] for name in ("device_history", "device_history_csv")}
    arguments |= {"drift": [drift.pk]}
    arguments |= exported(people["administrator"])
    arguments |= {"event": [happened(device, other)]}
    view = SavedView.objects.create(person=people["administrator"], name="Of the administrator").pk
    arguments |= {name: [view] for name in ("my_event_view", "saved_change", "saved_remove")}
    link: list[object] = [device.slot.port_id if device.slot else 0]
    arguments |= dict.fromkeys(("link", "states_csv", "counter_reset", "link_states", "link_counter_reset"), link)
    arguments |= {name: ["resources"] for name in ("figure", "figure_csv")}
    arguments |= {"switch": [switch.pk], "host_port": [host_port.pk], "drawer_mode": [drawer.pk]}
    arguments |= {"device_tenant": [device.pk], "host_port_tenant": [host_port.pk]}
    arguments |= {"person_tokens": [people["owner"].pk], "person_token": [people["owner"].pk, 1]}
    Proof.objects.create(operation=operation, sentence="Nobody else was touched.", untouched=True)
    arguments |= {"operation_proof": [operation.pk]}
    arguments |= {"operation_cancel": [operation.pk], "host_agent": [host_port.host_id]}
    drafted = planned(people["owner"], device)
    arguments |= {f"plan_{name}": [drafted.pk] for name in ("title", "anew", "discard")}
    arguments |= {"plan": [drafted.pk], "plan_apply": [drafted.pk], "plan_undo": [ended(drafted, device, "done").pk]}
    arguments |= {name: [ended(drafted, device, "stopped").pk] for name in ("plan_cancel", "plan_resume")}
    held, asked = leased(tenant, device, host_port), leased(tenant)
    leased(others, other, elsewhere)
    arguments |= {f"lease{name}": [held.pk] for name in ("", "_extension", "_extension_decline", "_return")}
    arguments |= {f"lease_{name}": [asked.pk] for name in ("decision", "approval", "decline", "withdrawal")}
    arguments |= {name: [tenant.pk] for name in ("quotas", "tenant_quotas")}
    arguments |= rung(device, other)
    arguments |= recorded(tenant, others)
    arguments |= swept(Host.objects.get(identity="owned"), Host.objects.get(identity="other"), tenant, others)
    arguments |= benchmarked(tenant, drafted, device, host_port)
    return Lab(clients, arguments, device, host_port)


def address(lab: Lab, name: str) -> str:
    return reverse(name, args=lab.arguments.get(name.rsplit(":", maxsplit=1)[-1], []))


def test_every_address_of_the_routers_has_its_line() -> None:
    assert set(names(get_resolver().url_patterns)) == set(GETS)
    assert {str(pattern.pattern) for pattern in websocket_urlpatterns} == SOCKETS


@pytest.mark.parametrize("name", GETS)
def test_each_person_gets_what_the_line_says(lab: Lab, name: str) -> None:
    got = tuple(lab.clients[person].get(address(lab, name)).status_code for person in PEOPLE)
    assert got == GETS[name]


@pytest.mark.parametrize("name", GETS)
def test_no_answer_shows_a_tenant_what_is_not_granted_to_it(lab: Lab, name: str) -> None:
    for person, hidden in (
        ("owner", ("SN-OTHER", "GPU other", "node-other", "secret host")),
        ("member", ("SN-OTHER", "GPU other", "node-other", "secret host")),
        ("stranger", (*SECRETS, "secret host")),
        ("nobody", (*SECRETS, "secret host")),
    ):
        answer = lab.clients[person].get(address(lab, name))
        text = (answer.getvalue() if answer.streaming else answer.content).decode()
        assert not [word for word in hidden if word in text]


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
        text = lab.clients[person].get(address(lab, name)).content.decode()
        assert 'aria-label="Drawer 1 slot 2, in the pool: you may ask for it"' in text
        assert not [word for word in ("SN-OTHER", "GPU other", "node-other") if word in text]
    listed = lab.clients[person].get(reverse("fabric:fabric"), {"view": "list"}).content.decode()
    assert '<td colspan="8" class="faint">in the pool</td>' in listed
    assert "node-other" not in listed
    assert lab.clients[person].get(reverse("api:slots")).json()["count"] == 1
    # The calendar says the same of it, now.
    calendar = lab.clients[person].get(reverse("fabric:lease_calendar")).content.decode()
    assert "Slot 2" in calendar
    # Who sees everything sees the device, and has no use for the word.
    text = lab.clients["administrator"].get(reverse("fabric:fabric")).content.decode()
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
