"""Addresses of benchmarks; each room owns its own."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("sweeps/", include("benchmarks.sweeps.urls")),
    path("records/", include("benchmarks.records.urls")),
    path("traces/", include("benchmarks.traces.urls")),
    path("figures/", include("benchmarks.figures.urls")),
    path("experiment/", include("benchmarks.experiment.urls")),
    path("recommend/", include("benchmarks.recommend.urls")),
    path("deploy/", include("benchmarks.deploy.urls")),
    path("", include("benchmarks.runs.urls")),
]
