"""Addresses of version 1."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.views import SpectacularAPIView

from falconweb.api import chassis, readings, views

app_name = "api"
urlpatterns = [
    path("chassis/", chassis.ChassisList.as_view(), name="chassis_list"),
    path("chassis/<int:pk>/", chassis.ChassisDetail.as_view(), name="chassis"),
    path("chassis/<int:pk>/series/", readings.SeriesList.as_view(), name="series"),
    path("chassis/<int:pk>/readings/", readings.RecentReadings.as_view(), name="readings"),
    path("operations/", views.OperationList.as_view(), name="operations"),
    path("operations/<uuid:pk>/", views.OperationDetail.as_view(), name="operation"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
]
