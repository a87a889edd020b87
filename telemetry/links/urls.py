"""Addresses of links."""

from __future__ import annotations

from django.urls import path

from telemetry.links import views

app_name = "links"
urlpatterns = [
    path("", views.links, name="links"),
    path("links.csv", views.links_csv, name="links_csv"),
    path("<int:pk>/", views.link, name="link"),
    path("<int:pk>/states.csv", views.states_csv, name="states_csv"),
    path("<int:pk>/counter-reset/", views.counter_reset, name="counter_reset"),
]
