"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from telemetry.exports import run_views, views

app_name = "exports"
urlpatterns = [
    path("", views.exports, name="exports"),
    path("csv/", views.exports_csv, name="exports_csv"),
    path("add/", views.export_new, name="export_add"),
    path("preview/", views.export_preview, name="export_preview"),
    path("test/", views.export_test, name="export_test"),
    path("runs/", run_views.runs, name="export_runs"),
    path("runs/csv/", run_views.runs_csv, name="export_runs_csv"),
    path("runs/<int:pk>/", run_views.run, name="export_run"),
    path("runs/<int:pk>/cancel/", run_views.cancel, name="export_run_cancel"),
    path("runs/<int:pk>/resume/", run_views.resume, name="export_run_resume"),
    path("runs/<int:pk>/file/", run_views.file, name="export_run_file"),
    path("<int:pk>/", views.export, name="export"),
    path("<int:pk>/edit/", views.export_change, name="export_edit"),
    path("<int:pk>/switch/", views.export_turn, name="export_switch"),
    path("<int:pk>/run/", views.export_run, name="export_start"),
    path("<int:pk>/remove/", views.export_gone, name="export_remove"),
]
