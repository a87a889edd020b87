"""Addresses of version 1."""

from __future__ import annotations

from django.urls import path, re_path

from accounts import api as accounts_api
from accounts.audit import api as audit_api
from benchmarks.deploy import api as deploy_api
from benchmarks.figures import api as figures_api
from benchmarks.recommend import api as recommend_api
from benchmarks.records import api as records_api
from benchmarks.runs import api as runs_api
from benchmarks.sweeps import api as sweeps_api
from fabric.allocation import api as allocation_api
from fabric.drift import api as drift_api
from fabric.history import api as fabric_history_api
from fabric.inventory import api as inventory_api
from fabric.leases import api as leases_api
from fabric.leases import grants_api
from fabric.operations import api as operations_api
from fabric.plans import api as plans_api
from fabric.topology import api as topology_api
from falconweb.api import schema
from telemetry.alerts import api as alerts_api
from telemetry.alerts import rules_api
from telemetry.events import api as events_api
from telemetry.exports import api as exports_api
from telemetry.history import api as telemetry_history_api
from telemetry.links import api as links_api
from telemetry.live import api as live_api
from telemetry.pipeline import api as pipeline_api

app_name = "api"
urlpatterns = [
    *topology_api.urlpatterns,
    *live_api.urlpatterns,
    *inventory_api.urlpatterns,
    *operations_api.urlpatterns,
    *grants_api.urlpatterns,
    *plans_api.urlpatterns,
    *allocation_api.urlpatterns,
    *drift_api.urlpatterns,
    *fabric_history_api.urlpatterns,
    *telemetry_history_api.urlpatterns,
    *accounts_api.urlpatterns,
    *leases_api.urlpatterns,
    *links_api.urlpatterns,
    *alerts_api.urlpatterns,
    *rules_api.urlpatterns,
    *audit_api.urlpatterns,
    *events_api.urlpatterns,
    *pipeline_api.urlpatterns,
    *exports_api.urlpatterns,
    *runs_api.urlpatterns,
    *sweeps_api.urlpatterns,
    *deploy_api.urlpatterns,
    *recommend_api.urlpatterns,
    *records_api.urlpatterns,
    *figures_api.urlpatterns,
    path("schema/", schema.SchemaView.as_view(), name="schema"),
    path("docs/", schema.reference, name="docs"),
    # The last: whatever is no address gets a problem document too. Those without the last slash are sent on by Django.
    re_path(r"^(?:.*/)?$", schema.UnknownAddress.as_view(), name="nothing"),
]
