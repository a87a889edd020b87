"""Addresses of version 1."""

from __future__ import annotations

from importlib import import_module

from django.urls import path, re_path

from falconweb.api import schema

FEATURES = (
    "telemetry.history.api",  # the first: programs ask for charts most often
    "fabric.topology.api",
    "telemetry.live.api",
    "fabric.inventory.api",
    "fabric.operations.api",
    "fabric.maintenance.api",
    "fabric.leases.grants_api",
    "fabric.plans.api",
    "fabric.allocation.api",
    "fabric.drift.api",
    "fabric.failures.api",
    "fabric.history.api",
    "accounts.api",
    "accounts.token_api",
    "fabric.leases.api",
    "telemetry.links.api",
    "telemetry.alerts.api",
    "telemetry.alerts.rules_api",
    "accounts.approvals.api",
    "accounts.audit.api",
    "accounts.identity_providers.api",
    "telemetry.events.api",
    "telemetry.pipeline.api",
    "telemetry.exports.api",
    "benchmarks.runs.api",
    "benchmarks.sweeps.api",
    "benchmarks.deploy.api",
    "benchmarks.recommend.api",
    "benchmarks.records.api",
    "benchmarks.traces.api",
    "benchmarks.figures.api",
    "benchmarks.experiment.api",
)

app_name = "api"
urlpatterns = [
    *(pattern for feature in FEATURES for pattern in import_module(feature).urlpatterns),
    path("schema/", schema.SchemaView.as_view(), name="schema"),
    path("docs/", schema.reference, name="docs"),
    # The last: an unknown address gets a problem document too. Django redirects those without the last slash.
    re_path(r"^(?:.*/)?$", schema.UnknownAddress.as_view(), name="nothing"),
]
