"""Addresses of version 1."""

from __future__ import annotations

from django.urls import path, re_path

from accounts import api as accounts_api
from accounts.audit import api as audit_api
from benchmarks.deploy import api as deploy_api
from benchmarks.figures import api as figures_api
from benchmarks.recommend import api as recommend_api
from benchmarks.records import api as records_api
from benchmarks.runs import api as runs_api
from benchmarks.sweeps import api as sweeps_api
from fabric.allocation import api as allocation_api
from fabric.drift import api as drift_api
from fabric.history import api as fabric_history_api
from fabric.inventory import api as inventory_api
from fabric.leases import api as leases_api
from fabric.leases import grants_api
from fabric.operations import api as operations_api
from fabric.plans import api as plans_api
from fabric.topology import api as topology_api
from falconweb.api import schema
from telemetry.alerts import api as alerts_api
from telemetry.alerts import rules_api
from telemetry.events import api as events_api
from telemetry.exports import api as exports_api
from telemetry.history import api as telemetry_history_api
from telemetry.links import api as links_api
from telemetry.live import api as live_api
from telemetry.pipeline import api as pipeline_api

app_name = "api"
urlpatterns = [
    path("chassis/", topology_api.ChassisList.as_view(), name="chassis_list"),
    path("chassis/<int:pk>/", topology_api.ChassisDetail.as_view(), name="chassis"),
    path("chassis/<int:pk>/settings/", topology_api.ChassisSettings.as_view(), name="chassis_settings"),
    *live_api.urlpatterns,
    path("drawers/", inventory_api.DrawerList.as_view(), name="drawers"),
    path("drawers/<int:pk>/", topology_api.DrawerDetail.as_view(), name="drawer"),
    path("drawers/<int:pk>/mode/", operations_api.DrawerModeChange.as_view(), name="drawer_mode"),
    path("slots/", inventory_api.SlotList.as_view(), name="slots"),
    path("slots/<int:pk>/", inventory_api.SlotDetail.as_view(), name="slot"),
    path("devices/", inventory_api.DeviceList.as_view(), name="devices"),
    path("devices/<int:pk>/", inventory_api.DeviceDetail.as_view(), name="device"),
    path("devices/<int:pk>/tenant/", grants_api.DeviceTenant.as_view(), name="device_tenant"),
    path("ports/", inventory_api.PortList.as_view(), name="ports"),
    path("ports/<int:pk>/", inventory_api.PortDetail.as_view(), name="port"),
    path("host-ports/", inventory_api.HostPortList.as_view(), name="host_ports"),
    path("host-ports/<int:pk>/", inventory_api.HostPortDetail.as_view(), name="host_port"),
    path("host-ports/<int:pk>/tenant/", grants_api.HostPortTenant.as_view(), name="host_port_tenant"),
    path("hosts/", inventory_api.HostList.as_view(), name="hosts"),
    path("hosts/<int:pk>/", inventory_api.HostDetail.as_view(), name="host"),
    path("switches/", inventory_api.SwitchList.as_view(), name="switches"),
    path("switches/<int:pk>/", inventory_api.SwitchDetail.as_view(), name="switch"),
    path("operations/", operations_api.OperationList.as_view(), name="operations"),
    path("operations/<uuid:pk>/", operations_api.OperationDetail.as_view(), name="operation"),
    path("operations/<uuid:pk>/proof/", operations_api.OperationProof.as_view(), name="operation_proof"),
    path("operations/<uuid:pk>/cancel/", operations_api.OperationCancellation.as_view(), name="operation_cancel"),
    path("plans/", plans_api.PlanList.as_view(), name="plans"),
    path("plans/<uuid:pk>/", plans_api.PlanDetail.as_view(), name="plan"),
    path("plans/<uuid:pk>/apply/", plans_api.PlanApplication.as_view(), name="plan_apply"),
    path("plans/<uuid:pk>/cancel/", plans_api.PlanCancellation.as_view(), name="plan_cancel"),
    path("plans/<uuid:pk>/resume/", plans_api.PlanResumption.as_view(), name="plan_resume"),
    path("plans/<uuid:pk>/undo/", plans_api.PlanUndo.as_view(), name="plan_undo"),
    path("allocation/", allocation_api.AllocationView.as_view(), name="allocation"),
    path("allocation/schema/", allocation_api.AllocationSchemaView.as_view(), name="allocation_schema"),
    path("drift/", drift_api.DriftList.as_view(), name="drifts"),
    path("drift/<int:pk>/", drift_api.DriftDetail.as_view(), name="drift"),
    path("drift/acceptance/", drift_api.DriftAcceptance.as_view(), name="drift_accept"),
    path("drift/re-application/", drift_api.DriftReapplication.as_view(), name="drift_reapply"),
    path("history/", fabric_history_api.HistoryList.as_view(), name="history"),
    *telemetry_history_api.urlpatterns,
    path("me/", accounts_api.Me.as_view(), name="me"),
    path("me/tokens/", accounts_api.OwnTokenList.as_view(), name="my_tokens"),
    path("me/tokens/<int:pk>/", accounts_api.OwnTokenDetail.as_view(), name="my_token"),
    path("people/", accounts_api.PersonList.as_view(), name="people"),
    path("people/<int:pk>/", accounts_api.PersonDetail.as_view(), name="person"),
    path("people/<int:pk>/password/", accounts_api.PersonPassword.as_view(), name="person_password"),
    path("people/<int:pk>/tokens/", accounts_api.PersonTokens.as_view(), name="person_tokens"),
    path("people/<int:pk>/tokens/<int:token_id>/", accounts_api.PersonToken.as_view(), name="person_token"),
    path("tenants/", accounts_api.TenantList.as_view(), name="tenants"),
    path("tenants/<int:pk>/", accounts_api.TenantDetail.as_view(), name="tenant"),
    path("tenants/<int:pk>/grants/", grants_api.TenantGrants.as_view(), name="tenant_grants"),
    path("tenants/<int:pk>/quotas/", grants_api.TenantQuotas.as_view(), name="tenant_quotas"),
    path("leases/", leases_api.LeaseList.as_view(), name="leases"),
    path("leases/given/", leases_api.LeaseGrant.as_view(), name="leases_given"),
    path("leases/calendar/", leases_api.LeaseCalendar.as_view(), name="lease_calendar"),
    path("leases/<int:pk>/", leases_api.LeaseDetail.as_view(), name="lease"),
    path("leases/<int:pk>/approval/", leases_api.LeaseApproval.as_view(), name="lease_approval"),
    path("leases/<int:pk>/decline/", leases_api.LeaseDecline.as_view(), name="lease_decline"),
    path("leases/<int:pk>/withdrawal/", leases_api.LeaseWithdrawal.as_view(), name="lease_withdrawal"),
    path("leases/<int:pk>/extension/", leases_api.LeaseExtension.as_view(), name="lease_extension"),
    path(
        "leases/<int:pk>/extension/decline/", leases_api.LeaseExtensionDecline.as_view(), name="lease_extension_decline"
    ),
    path("leases/<int:pk>/return/", leases_api.LeaseReturn.as_view(), name="lease_return"),
    *links_api.urlpatterns,
    path("usage/", grants_api.UsageList.as_view(), name="usage"),
    *alerts_api.urlpatterns,
    *rules_api.urlpatterns,
    path("audit/", audit_api.AuditList.as_view(), name="audit"),
    path("audit/<int:pk>/", audit_api.AuditDetail.as_view(), name="audit_entry"),
    path("audit/export/", audit_api.AuditExport.as_view(), name="audit_export"),
    path("audit/verification/", audit_api.AuditVerification.as_view(), name="audit_verification"),
    *events_api.urlpatterns,
    *pipeline_api.urlpatterns,
    *exports_api.urlpatterns,
    *runs_api.urlpatterns,
    *sweeps_api.urlpatterns,
    *deploy_api.urlpatterns,
    *recommend_api.urlpatterns,
    *records_api.urlpatterns,
    *figures_api.urlpatterns,
    path("schema/", schema.SchemaView.as_view(), name="schema"),
    path("docs/", schema.reference, name="docs"),
    # The last: whatever is no address gets a problem document too. Those without the last slash are sent on by Django.
    re_path(r"^(?:.*/)?$", schema.UnknownAddress.as_view(), name="nothing"),
]
