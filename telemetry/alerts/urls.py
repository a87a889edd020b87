"""Addresses of this room."""

from __future__ import annotations

from django.urls import path

from telemetry.alerts import route_views, rule_views, views

app_name = "alerts"
urlpatterns = [
    path("", views.alerts, name="alerts"),
    path("alerts.csv", views.alerts_csv, name="alerts_csv"),
    path("badge/", views.badge, name="badge"),
    path("acknowledge/", views.acknowledge, name="acknowledge"),
    path("<int:pk>/", views.alert, name="alert"),
    path("rules/", rule_views.rules, name="rules"),
    path("rules/add/", rule_views.rule_added, name="rule_add"),
    path("rules/preview/", rule_views.rule_previewed, name="rule_preview"),
    path("rules/<int:pk>/", rule_views.rule, name="rule"),
    path("rules/<int:pk>/switch/", rule_views.rule_switched, name="rule_switch"),
    path("rules/<int:pk>/remove/", rule_views.rule_removed, name="rule_remove"),
    path("rules/built-in/<slug:name>/", rule_views.built_in, name="built_in"),
    path("silences/", rule_views.silences, name="silences"),
    path("silences/add/", rule_views.silence_added, name="silence_add"),
    path("silences/<int:pk>/end/", rule_views.silence_ended, name="silence_end"),
    path("routes/", route_views.routes, name="routes"),
    path("routes/add/", route_views.route_added, name="route_add"),
    path("routes/<int:pk>/", route_views.route, name="route"),
    path("routes/<int:pk>/remove/", route_views.route_removed, name="route_remove"),
    path("routes/<int:pk>/test/", route_views.route_tested, name="route_test"),
    path("deliveries/", route_views.deliveries, name="deliveries"),
    path("deliveries/<uuid:pk>/retry/", route_views.delivery_retried, name="delivery_retry"),
]
