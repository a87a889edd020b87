"""Addresses of the fabric."""

from __future__ import annotations

from django.urls import path

from fabric import admin_views, chassis_views, views

app_name = "fabric"
urlpatterns = [
    path("", views.overview, name="overview"),
    path("fabric/", views.fabric, name="fabric"),
    path("fabric/devices.csv", views.devices_csv, name="devices_csv"),
    path("chassis/add/", chassis_views.chassis_add, name="chassis_add"),
    path("chassis/<int:pk>/", views.chassis, name="chassis"),
    path("chassis/<int:pk>/edit/", chassis_views.chassis_edit, name="chassis_edit"),
    path("chassis/<int:pk>/remove/", chassis_views.chassis_remove, name="chassis_remove"),
    path("drawers/<int:pk>/", views.drawer, name="drawer"),
    path("slots/<int:pk>/", views.slot, name="slot"),
    path("devices/<int:pk>/", views.device, name="device"),
    path("ports/<int:pk>/", views.port, name="port"),
    path("hosts/", views.hosts, name="hosts"),
    path("hosts/<int:pk>/", views.host, name="host"),
    path("operations/", views.operations, name="operations"),
    path("operations/<uuid:pk>/", views.operation, name="operation"),
    path("tenants/<int:pk>/", admin_views.tenant, name="tenant"),
    path("tenants/<int:pk>/grants/", admin_views.tenant_grants, name="tenant_grants"),
    path("tenants/<int:pk>/removal/", admin_views.tenant_removal, name="tenant_removal"),
    path("system/", admin_views.system, name="system"),
]
