"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from benchmarks.records import views

app_name = "records"
urlpatterns = [
    path("import/", views.record_import, name="import"),
    path("runs.jsonl", views.runs_download, {"kind": "jsonl"}, name="runs_jsonl"),
    path("runs.csv", views.runs_download, {"kind": "summary"}, name="runs_csv"),
    path("<uuid:pk>.jsonl", views.run_download, {"kind": "jsonl"}, name="run_jsonl"),
    path("<uuid:pk>.csv", views.run_download, {"kind": "csv"}, name="run_csv"),
]
