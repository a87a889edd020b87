"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from benchmarks.recommend import views

app_name = "recommend"
urlpatterns = [
    path("", views.recommend_page, name="recommend"),
    path("csv/", views.recommend_csv, name="recommend_csv"),
    path("plan/", views.recommend_plan, name="recommend_plan"),
    path("run/", views.recommend_run, name="recommend_run"),
]
