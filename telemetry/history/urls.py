"""Addresses of history."""

from __future__ import annotations

from django.urls import path

from telemetry.history import views

app_name = "history"
urlpatterns = [
    path("", views.telemetry, name="telemetry"),
    path("throughput/", views.throughput, name="throughput"),
    path("throughput.csv", views.throughput_csv, name="throughput_csv"),
    path("heat-map/", views.heat, name="heat_map"),
    path("dashboards/", views.dashboards, name="dashboards"),
    path("dashboards/<int:pk>/", views.dashboard, name="dashboard"),
    path("dashboards/<int:pk>/removal/", views.remove_dashboard, name="dashboard_remove"),
    path("dashboards/<int:pk>/panels/<int:panel>/", views.change_panel, name="dashboard_panel"),
]
