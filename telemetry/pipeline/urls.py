"""Addresses of the pipeline's own health."""

from __future__ import annotations

from django.urls import path

from telemetry.pipeline import views

app_name = "pipeline"
urlpatterns = [
    path("", views.pipeline, name="pipeline"),
    path("chassis.csv", views.chassis_csv, name="chassis_csv"),
    path("counts.csv", views.counts_csv, name="counts_csv"),
]
