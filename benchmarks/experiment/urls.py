"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from benchmarks.experiment import views

app_name = "experiment"
urlpatterns = [
    path("", views.experiment, name="experiment"),
    path("<slug:slug>/", views.experiment_figure_page, name="figure"),
    path("<slug:slug>/csv/", views.experiment_csv, name="figure_csv"),
]
