"""Every address of the site but /healthz and /readyz, which a middleware answers; each room owns its own."""

from __future__ import annotations

from django.conf import settings
from django.urls import include, path

from falconweb.metrics import Metrics
from falconweb.patterns import patterns
from falconweb.texts import Texts
from falconweb.views import notices, search_results, tour

handler500 = "falconweb.views.server_error"
urlpatterns = [
    path("api/v1/", include("falconweb.api.urls")),
    path("texts.js", Texts.as_view(), name="texts"),
    path("notices/", notices, name="notices"),
    path("tour/", tour, name="tour"),
    path("search/", search_results, name="search"),
    path("metrics", Metrics.as_view(), name="metrics"),
    path("", include("accounts.urls")),
    path("", include("fabric.urls")),
    path("", include("telemetry.urls")),
    path("benchmarks/", include("benchmarks.urls")),
]
if settings.DEBUG:
    urlpatterns.append(path("patterns/", patterns, name="patterns"))
