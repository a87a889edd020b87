"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from benchmarks.deploy import views

app_name = "deploy"
urlpatterns = [path("", views.deployment, name="deploy")]
