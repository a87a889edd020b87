"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from benchmarks.sweeps import views

app_name = "sweeps"
urlpatterns = [
    path("", views.sweeps, name="sweeps"),
    path("csv/", views.sweeps_csv, name="sweeps_csv"),
    path("new/", views.sweep_add, name="sweep_add"),
    path("new/count/", views.sweep_count, name="count"),
    path("new/manifest/", views.manifest, name="manifest"),
    path("<uuid:pk>/", views.sweep, name="sweep"),
    path("<uuid:pk>/points/csv/", views.points_csv, name="points_csv"),
    path("<uuid:pk>/pause/", views.pause, name="pause"),
    path("<uuid:pk>/resume/", views.resume, name="resume"),
    path("<uuid:pk>/halt/", views.halt, name="halt"),
    path("<uuid:pk>/retry/", views.retry, name="retry"),
    path("<uuid:pk>/delete/", views.delete, name="delete"),
]
