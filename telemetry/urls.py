"""Addresses of what is measured and of what happened; each room owns its own."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("telemetry/pipeline/", include("telemetry.pipeline.urls")),
    path("telemetry/", include("telemetry.history.urls")),
    path("links/", include("telemetry.links.urls")),
    path("alerts/", include("telemetry.alerts.urls")),
    path("events/", include("telemetry.events.urls")),
    path("exports/", include("telemetry.exports.urls")),
]
