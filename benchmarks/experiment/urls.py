"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from benchmarks.experiment import views

app_name = "experiment"
urlpatterns = [
    path("", views.experiment, name="experiment"),
    path("play/<slug:executor>/", views.play, name="play"),
    path("<slug:slug>/", views.experiment_figure_page, name="experiment_figure"),
    path("<slug:slug>/csv/", views.experiment_csv, name="experiment_csv"),
]
