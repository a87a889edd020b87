"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from telemetry.history import views
from telemetry.history import views as history_views

app_name = "history"
urlpatterns = [
    path("", views.telemetry, name="telemetry"),
    path("throughput/", views.throughput, name="throughput"),
    path("throughput.csv", views.throughput_csv, name="throughput_csv"),
    path("heat-map/", views.heat, name="heat_map"),
    path("dashboards/", history_views.dashboards, name="dashboards"),
    path("dashboards/<int:pk>/", history_views.change_dashboard, name="dashboard_change"),
    path("dashboards/<int:pk>/removal/", history_views.remove_dashboard, name="dashboard_remove"),
]
