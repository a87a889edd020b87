"""Addresses of version 1."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.views import SpectacularAPIView

from falconweb.api import views

app_name = "api"
urlpatterns = [
    path("chassis/", views.ChassisList.as_view(), name="chassis_list"),
    path("chassis/<int:pk>/", views.ChassisDetail.as_view(), name="chassis"),
    path("operations/", views.OperationList.as_view(), name="operations"),
    path("operations/<uuid:pk>/", views.OperationDetail.as_view(), name="operation"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
]
