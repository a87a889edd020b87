"""Addresses of the catalogue and of runs."""

from __future__ import annotations

from django.urls import path

from benchmarks.runs import views

app_name = "runs"
urlpatterns = [
    path("", views.catalogue, name="catalogue"),
    path("runs/", views.runs, name="runs"),
    path("runs/csv/", views.runs_csv, name="runs_csv"),
    path("runs/cancel/", views.runs_cancel, name="runs_cancel"),
    path("runs/new/", views.run_new, name="run_new"),
    path("runs/new/file/", views.run_from_file, name="run_from_file"),
    path("runs/<uuid:pk>/", views.run, name="run"),
    path("runs/<uuid:pk>/log/", views.run_log, name="run_log"),
    path("runs/<uuid:pk>/series/", views.run_series, name="run_series"),
    path("runs/<uuid:pk>/cancel/", views.cancel, name="run_cancel"),
    path("runs/<uuid:pk>/retry/", views.retry, name="run_retry"),
    path("runs/<uuid:pk>/resume/", views.resume, name="run_resume"),
    path("runs/<uuid:pk>/give-back/", views.return_devices, name="run_return"),
    path("runs/<uuid:pk>/delete/", views.delete, name="run_delete"),
]
