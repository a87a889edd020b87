"""Addresses of the fabric."""

from __future__ import annotations

from django.urls import path
from django.views.generic import RedirectView

from fabric import views

app_name = "fabric"
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="fabric:fabric"), name="overview"),
    path("fabric/", views.fabric, name="fabric"),
    path("chassis/<int:pk>/", views.chassis, name="chassis"),
    path("devices/<int:pk>/", views.device, name="device"),
    path("ports/<int:pk>/", views.port, name="port"),
    path("hosts/<int:pk>/", views.host, name="host"),
    path("operations/", views.operations, name="operations"),
    path("operations/<uuid:pk>/", views.operation, name="operation"),
]
