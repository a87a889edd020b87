"""Addresses of this room."""

from django.urls import path

from telemetry.exports import views

app_name = "exports"
urlpatterns = [
    path("", views.exports, name="exports"),
    path("csv/", views.exports_csv, name="exports_csv"),
    path("add/", views.add_export, name="export_add"),
    path("preview/", views.export_preview, name="export_preview"),
    path("test/", views.check_export_target, name="export_test"),
    path("runs/", views.runs, name="export_runs"),
    path("runs/csv/", views.runs_csv, name="export_runs_csv"),
    path("runs/<int:pk>/", views.run, name="export_run"),
    path("runs/<int:pk>/cancel/", views.cancel_run, name="export_run_cancel"),
    path("runs/<int:pk>/resume/", views.resume_run, name="export_run_resume"),
    path("runs/<int:pk>/file/", views.download_file, name="export_run_file"),
    path("<int:pk>/", views.export, name="export"),
    path("<int:pk>/edit/", views.edit_export, name="export_edit"),
    path("<int:pk>/switch/", views.switch_export, name="export_switch"),
    path("<int:pk>/run/", views.start_run, name="export_start"),
    path("<int:pk>/remove/", views.remove_export, name="export_remove"),
]
