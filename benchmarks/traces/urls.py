"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from benchmarks.traces import views

app_name = "traces"
urlpatterns = [
    path("<uuid:pk>/", views.trace, name="trace"),
    path("<uuid:pk>/delete/", views.delete, name="trace_delete"),
]
