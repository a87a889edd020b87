"""Addresses of this room."""

from django.urls import path

from telemetry.alerts import admin_views, views

app_name = "alerts"
urlpatterns = [
    path("", views.alerts, name="alerts"),
    path("alerts.csv", views.alerts_csv, name="alerts_csv"),
    path("e-mail/", views.own_mails, name="own_mails"),
    path("limits/<int:pk>/", views.limits, name="chassis_limits"),
    path("acknowledge/", views.acknowledge, name="acknowledge"),
    path("<int:pk>/", views.alert, name="alert"),
    path("rules/", admin_views.rules, name="rules"),
    path("rules/add/", admin_views.add_rule, name="rule_add"),
    path("rules/metrics/", admin_views.metrics, name="rule_metrics"),
    path("rules/preview/", admin_views.preview_rule, name="rule_preview"),
    path("rules/<int:pk>/", admin_views.rule, name="rule"),
    path("rules/<int:pk>/switch/", admin_views.switch_rule, name="rule_switch"),
    path("rules/<int:pk>/remove/", admin_views.remove_rule, name="rule_remove"),
    path("rules/built-in/<slug:name>/", admin_views.switch_built_in, name="built_in"),
    path("silences/", admin_views.silences, name="silences"),
    path("silences/add/", admin_views.add_silence, name="silence_add"),
    path("silences/<int:pk>/end/", admin_views.end_silence, name="silence_end"),
    path("routes/", admin_views.routes, name="routes"),
    path("routes/add/", admin_views.add_route, name="route_add"),
    path("routes/<int:pk>/", admin_views.route, name="route"),
    path("routes/<int:pk>/remove/", admin_views.remove_route, name="route_remove"),
    path("routes/<int:pk>/test/", admin_views.send_route_test, name="route_test"),
    path("deliveries/", admin_views.deliveries, name="deliveries"),
    path("deliveries/<uuid:pk>/retry/", admin_views.retry_delivery, name="delivery_retry"),
]
