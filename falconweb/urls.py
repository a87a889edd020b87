"""Every address of the site; each room owns its own."""

from __future__ import annotations

from django.urls import include, path

from falconweb.health import healthz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("api/v1/", include("falconweb.api.urls")),
    path("", include("accounts.urls")),
    path("", include("fabric.urls")),
    path("", include("telemetry.urls")),
]
