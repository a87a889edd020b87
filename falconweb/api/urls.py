"""Addresses of version 1."""

from __future__ import annotations

from django.urls import path, re_path
from drf_spectacular.views import SpectacularAPIView

from falconweb.api import chassis, devices, docs, drawers, hosts, me, operations, people, ports, readings, tenants

app_name = "api"
urlpatterns = [
    path("chassis/", chassis.ChassisList.as_view(), name="chassis_list"),
    path("chassis/<int:pk>/", chassis.ChassisDetail.as_view(), name="chassis"),
    path("chassis/<int:pk>/settings/", chassis.ChassisSettings.as_view(), name="chassis_settings"),
    path("chassis/<int:pk>/series/", readings.SeriesList.as_view(), name="series"),
    path("chassis/<int:pk>/readings/", readings.RecentReadings.as_view(), name="readings"),
    path("drawers/", drawers.DrawerList.as_view(), name="drawers"),
    path("drawers/<int:pk>/", drawers.DrawerDetail.as_view(), name="drawer"),
    path("drawers/<int:pk>/mode/", drawers.DrawerMode.as_view(), name="drawer_mode"),
    path("slots/", drawers.SlotList.as_view(), name="slots"),
    path("slots/<int:pk>/", drawers.SlotDetail.as_view(), name="slot"),
    path("devices/", devices.DeviceList.as_view(), name="devices"),
    path("devices/<int:pk>/", devices.DeviceDetail.as_view(), name="device"),
    path("devices/<int:pk>/tenant/", devices.DeviceTenant.as_view(), name="device_tenant"),
    path("ports/", ports.PortList.as_view(), name="ports"),
    path("ports/<int:pk>/", ports.PortDetail.as_view(), name="port"),
    path("host-ports/", hosts.HostPortList.as_view(), name="host_ports"),
    path("host-ports/<int:pk>/", hosts.HostPortDetail.as_view(), name="host_port"),
    path("host-ports/<int:pk>/tenant/", hosts.HostPortTenant.as_view(), name="host_port_tenant"),
    path("hosts/", hosts.HostList.as_view(), name="hosts"),
    path("hosts/<int:pk>/", hosts.HostDetail.as_view(), name="host"),
    path("switches/", ports.SwitchList.as_view(), name="switches"),
    path("switches/<int:pk>/", ports.SwitchDetail.as_view(), name="switch"),
    path("operations/", operations.OperationList.as_view(), name="operations"),
    path("operations/<uuid:pk>/", operations.OperationDetail.as_view(), name="operation"),
    path("me/", me.Me.as_view(), name="me"),
    path("me/tokens/", me.MyTokens.as_view(), name="my_tokens"),
    path("me/tokens/<int:pk>/", me.MyToken.as_view(), name="my_token"),
    path("people/", people.PersonList.as_view(), name="people"),
    path("people/<int:pk>/", people.PersonDetail.as_view(), name="person"),
    path("people/<int:pk>/password/", people.PersonPassword.as_view(), name="person_password"),
    path("people/<int:pk>/tokens/", people.PersonTokens.as_view(), name="person_tokens"),
    path("people/<int:pk>/tokens/<int:token_id>/", people.PersonToken.as_view(), name="person_token"),
    path("tenants/", tenants.TenantList.as_view(), name="tenants"),
    path("tenants/<int:pk>/", tenants.TenantDetail.as_view(), name="tenant"),
    path("tenants/<int:pk>/grants/", tenants.TenantGrants.as_view(), name="tenant_grants"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", docs.reference, name="docs"),
    # The last: whatever is no address gets a problem document too. Those without the last slash are sent on by Django.
    re_path(r"^(?:.*/)?$", docs.Nothing.as_view(), name="nothing"),
]
