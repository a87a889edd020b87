"""Addresses of the fabric."""

from __future__ import annotations

from django.urls import path

from fabric.agents import views as agents_views
from fabric.allocation import views as allocation_views
from fabric.compose import views as compose_views
from fabric.drift import views as drift_views
from fabric.failures import views as failures_views
from fabric.history import views as history_views
from fabric.inventory import views as inventory_views
from fabric.leases import views as leases_views
from fabric.maintenance import views as maintenance_views
from fabric.operations import views as operations_views
from fabric.plans import views as plans_views
from fabric.topology import device_views
from fabric.topology import views as topology_views

app_name = "fabric"
urlpatterns = [
    path("", topology_views.overview, name="overview"),
    path("fabric/", topology_views.fabric, name="fabric"),
    path("fabric/devices.csv", topology_views.devices_csv, name="devices_csv"),
    path("allocation/", allocation_views.allocation, name="allocation"),
    path("allocation/export/", allocation_views.allocation_export_file, name="allocation_export"),
    path("chassis/add/", inventory_views.chassis_add, name="chassis_add"),
    path("chassis/<int:pk>/", topology_views.chassis, name="chassis"),
    path("chassis/<int:pk>/edit/", inventory_views.chassis_edit, name="chassis_edit"),
    path("chassis/<int:pk>/remove/", inventory_views.chassis_remove, name="chassis_remove"),
    path("chassis/<int:pk>/sign-in/", inventory_views.chassis_sign_in, name="chassis_sign_in"),
    path("chassis/<int:pk>/locate/", inventory_views.chassis_locate, name="chassis_locate"),
    path("maintenance/", maintenance_views.maintenance, name="maintenance"),
    path("maintenance.csv", maintenance_views.maintenance_csv, name="maintenance_csv"),
    path("maintenance/images/", maintenance_views.firmware_images, name="firmware_images"),
    path("maintenance/images/<int:pk>/removal/", maintenance_views.firmware_image_remove, name="firmware_image_remove"),
    path("maintenance/<int:pk>/logs/", maintenance_views.logs_collect, name="logs_collect"),
    path("maintenance/logs/<int:pk>/", maintenance_views.collected_log, name="collected_log"),
    path("maintenance/logs/<int:pk>/removal/", maintenance_views.collected_log_remove, name="collected_log_remove"),
    path("maintenance/<int:pk>/drain/", maintenance_views.firmware_drain, name="firmware_drain"),
    path("maintenance/<int:pk>/", maintenance_views.managed_part, name="managed_part"),
    path("maintenance/<int:pk>/locate/", inventory_views.part_locate, name="part_locate"),
    path("chassis/<int:pk>/dialect/", operations_views.chassis_dialect, name="chassis_dialect"),
    path("chassis/<int:pk>/dialect/trial/", operations_views.dialect_trial, name="dialect_trial"),
    path("drawers/<int:pk>/", topology_views.drawer, name="drawer"),
    path("slots/<int:pk>/", topology_views.slot, name="slot"),
    path("devices/", device_views.devices, name="devices"),
    path("devices.csv", device_views.device_list_csv, name="device_list_csv"),
    path("devices/filters/", device_views.filter_save, name="device_filter_save"),
    path("devices/filters/<int:pk>/removal/", device_views.filter_remove, name="device_filter_remove"),
    path("devices/assignment/", device_views.devices_assign, name="devices_assign"),
    path("devices/<int:pk>/", topology_views.device, name="device"),
    path("ports/<int:pk>/", topology_views.port, name="port"),
    path("hosts/", topology_views.hosts, name="hosts"),
    path("hosts/<int:pk>/", topology_views.host, name="host"),
    path("drift/", drift_views.drifts, name="drifts"),
    path("drift/<int:pk>/", drift_views.drift, name="drift"),
    path("drift/acceptance/", drift_views.drift_accept, name="drift_accept"),
    path("drift/re-application/", drift_views.drift_reapply, name="drift_reapply"),
    path("failures/", failures_views.failures, name="failures"),
    path("failures.csv", failures_views.failures_csv, name="failures_csv"),
    path("failures/policy/", failures_views.failure_policy, name="failure_policy"),
    path("failures/<int:pk>/", failures_views.failure, name="failure"),
    path("failures/<int:pk>/replacement/", failures_views.failure_replace, name="failure_replace"),
    path("failures/<int:pk>/keeping/", failures_views.failure_keep, name="failure_keep"),
    path("slots/<int:pk>/history/", history_views.history, {"kind": "slot"}, name="slot_history"),
    path("slots/<int:pk>/history.csv", history_views.history_csv, {"kind": "slot"}, name="slot_history_csv"),
    path("devices/<int:pk>/history/", history_views.history, {"kind": "device"}, name="device_history"),
    path("devices/<int:pk>/history.csv", history_views.history_csv, {"kind": "device"}, name="device_history_csv"),
    path("hosts/<int:pk>/agent/", agents_views.host_agent, name="host_agent"),
    path("compose/", compose_views.compose, name="compose"),
    path("compose/give/", compose_views.give, name="give"),
    path("tasks/", compose_views.tasks, name="tasks"),
    path("operations/", operations_views.operations, name="operations"),
    path("operations/<uuid:pk>/", operations_views.operation, name="operation"),
    path("operations/<uuid:pk>/cancel/", operations_views.operation_cancel, name="operation_cancel"),
    path("draft/", plans_views.draft, name="draft"),
    path("plans/", plans_views.plans, name="plans"),
    path("plans/<uuid:pk>/", plans_views.plan, name="plan"),
    path("plans/<uuid:pk>/title/", plans_views.plan_title, name="plan_title"),
    path("plans/<uuid:pk>/anew/", plans_views.plan_replan, name="plan_anew"),
    path("plans/<uuid:pk>/application/", plans_views.plan_application, name="plan_apply"),
    path("plans/<uuid:pk>/cancellation/", plans_views.plan_cancellation, name="plan_cancel"),
    path("plans/<uuid:pk>/resumption/", plans_views.plan_resumption, name="plan_resume"),
    path("plans/<uuid:pk>/undoing/", plans_views.plan_undoing, name="plan_undo"),
    path("plans/<uuid:pk>/removal/", plans_views.plan_removal, name="plan_discard"),
    path("tenants/<int:pk>/", leases_views.tenant, name="tenant"),
    path("tenants/<int:pk>/grants/", leases_views.tenant_grants, name="tenant_grants"),
    path("tenants/<int:pk>/removal/", leases_views.tenant_removal, name="tenant_removal"),
    path("tenants/<int:pk>/quotas/", leases_views.quotas, name="quotas"),
    path("leases/", leases_views.leases, name="leases"),
    path("leases/request/", leases_views.lease_request_page, name="lease_request"),
    path("leases/give/", leases_views.lease_give_page, name="lease_give"),
    path("leases/calendar/", leases_views.calendar, name="lease_calendar"),
    path("leases/usage/", leases_views.usage, name="lease_usage"),
    path("leases/usage.csv", leases_views.usage_csv, name="lease_usage_csv"),
    path("leases/<int:pk>/", leases_views.lease, name="lease"),
    path("leases/<int:pk>/decision/", leases_views.lease_decision, name="lease_decision"),
    path("leases/<int:pk>/withdrawal/", leases_views.lease_withdrawal, name="lease_withdrawal"),
    path("leases/<int:pk>/extension/", leases_views.lease_extension, name="lease_extension"),
    path(
        "leases/<int:pk>/extension/decline/", leases_views.lease_extension_decline_page, name="lease_extension_decline"
    ),
    path("leases/<int:pk>/return/", leases_views.lease_return_page, name="lease_return"),
    path("system/", topology_views.system, name="system"),
]
