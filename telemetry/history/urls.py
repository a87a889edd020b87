"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from telemetry.history import dashboard_views, views

app_name = "history"
urlpatterns = [
    path("", views.telemetry, name="telemetry"),
    path("throughput/", views.throughput, name="throughput"),
    path("throughput.csv", views.throughput_csv, name="throughput_csv"),
    path("heat-map/", views.heat, name="heat_map"),
    path("dashboards/", dashboard_views.dashboards, name="dashboards"),
    path("dashboards/<int:pk>/", dashboard_views.change, name="dashboard_change"),
    path("dashboards/<int:pk>/removal/", dashboard_views.remove, name="dashboard_remove"),
]
