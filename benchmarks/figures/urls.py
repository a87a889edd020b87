"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from benchmarks.figures import views

app_name = "figures"
urlpatterns = [
    path("", views.figures, name="figures"),
    path("compare/", views.compare, name="compare"),
    path("<slug:name>/", views.figure, name="figure"),
    path("<slug:name>/csv/", views.figure_csv, name="figure_csv"),
]
