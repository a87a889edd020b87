"""Every address of the site but /healthz, which a middleware answers; each room owns its own."""

from __future__ import annotations

from django.urls import include, path

handler500 = "falconweb.views.server_error"
urlpatterns = [
    path("api/v1/", include("falconweb.api.urls")),
    path("", include("accounts.urls")),
    path("", include("fabric.urls")),
    path("", include("telemetry.urls")),
]
