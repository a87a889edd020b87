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
    *topology_api.urlpatterns,
    path("chassis/<int:pk>/series/", live_api.SeriesList.as_view(), name="series"),
    path("chassis/<int:pk>/readings/", live_api.RecentReadings.as_view(), name="readings"),
    *inventory_api.urlpatterns,
    *operations_api.urlpatterns,
    *grants_api.urlpatterns,
    *plans_api.urlpatterns,
    *allocation_api.urlpatterns,
    *drift_api.urlpatterns,
    *fabric_history_api.urlpatterns,
    path("telemetry/", telemetry_history_api.Telemetry.as_view(), name="telemetry"),
    path("telemetry/table/", telemetry_history_api.TelemetryTable.as_view(), name="telemetry_table"),
    path("telemetry/raw/", telemetry_history_api.TelemetryRaw.as_view(), name="telemetry_raw"),
    path("telemetry/catalogue/", telemetry_history_api.TelemetryCatalogue.as_view(), name="telemetry_catalogue"),
    path("telemetry/heat-map/", telemetry_history_api.TelemetryHeatMap.as_view(), name="telemetry_heat_map"),
    path("telemetry/throughput/", telemetry_history_api.TelemetryThroughput.as_view(), name="telemetry_throughput"),
    *accounts_api.urlpatterns,
    path("me/dashboards/", telemetry_history_api.OwnDashboardList.as_view(), name="my_dashboards"),
    path("me/dashboards/<int:pk>/", telemetry_history_api.OwnDashboardDetail.as_view(), name="my_dashboard"),
    *leases_api.urlpatterns,
    path("links/", links_api.LinkList.as_view(), name="links"),
    path("links/<int:pk>/", links_api.LinkDetail.as_view(), name="link"),
    path("links/<int:pk>/states/", links_api.LinkStates.as_view(), name="link_states"),
    path("links/<int:pk>/counter-reset/", links_api.LinkCounterReset.as_view(), name="link_counter_reset"),
    path("alerts/", alerts_api.AlertList.as_view(), name="alerts"),
    path("alerts/<int:pk>/", alerts_api.AlertDetail.as_view(), name="alert"),
    path("alerts/acknowledgement/", alerts_api.AlertAcknowledgement.as_view(), name="alert_acknowledge"),
    path("alert-rules/", rules_api.AlertRuleList.as_view(), name="alert_rules"),
    path("alert-rules/preview/", rules_api.AlertRulePreview.as_view(), name="alert_rule_preview"),
    path("alert-rules/built-in/", rules_api.AlertBuiltInList.as_view(), name="alert_built_ins"),
    path("alert-rules/built-in/<slug:name>/", rules_api.AlertBuiltInDetail.as_view(), name="alert_built_in"),
    path("alert-rules/<int:pk>/", rules_api.AlertRuleDetail.as_view(), name="alert_rule"),
    path("alert-silences/", alerts_api.SilenceList.as_view(), name="alert_silences"),
    path("alert-silences/<int:pk>/end/", alerts_api.SilenceEnd.as_view(), name="alert_silence_end"),
    path("alert-routes/", alerts_api.AlertRouteList.as_view(), name="alert_routes"),
    path("alert-routes/<int:pk>/", alerts_api.AlertRouteDetail.as_view(), name="alert_route"),
    path("alert-routes/<int:pk>/test/", alerts_api.AlertRouteTest.as_view(), name="alert_route_test"),
    path("alert-deliveries/", alerts_api.DeliveryList.as_view(), name="alert_deliveries"),
    path("alert-deliveries/<uuid:pk>/retry/", alerts_api.DeliveryRetry.as_view(), name="alert_delivery_retry"),
    *audit_api.urlpatterns,
    path("events/", events_api.EventList.as_view(), name="events"),
    path("events/pull/", events_api.EventPull.as_view(), name="events_pull"),
    path("events/catalogue/", events_api.EventCatalogue.as_view(), name="events_catalogue"),
    path("events/<int:pk>/", events_api.EventDetail.as_view(), name="event"),
    path("me/event-views/", events_api.OwnEventViewList.as_view(), name="my_event_views"),
    path("me/event-views/<int:pk>/", events_api.OwnEventViewDetail.as_view(), name="my_event_view"),
    path("pipeline/", pipeline_api.PipelineHealth.as_view(), name="pipeline"),
    path("exports/", exports_api.ExportList.as_view(), name="exports"),
    path("exports/preview/", exports_api.ExportPreview.as_view(), name="export_preview"),
    path("exports/runs/", exports_api.ExportRunList.as_view(), name="export_runs"),
    path("exports/runs/<int:pk>/", exports_api.ExportRunDetail.as_view(), name="export_run"),
    path("exports/runs/<int:pk>/cancel/", exports_api.ExportRunCancellation.as_view(), name="export_run_cancel"),
    path("exports/runs/<int:pk>/resume/", exports_api.ExportRunResumption.as_view(), name="export_run_resume"),
    path("exports/runs/<int:pk>/file/", exports_api.ExportRunFile.as_view(), name="export_run_file"),
    path("exports/<int:pk>/", exports_api.ExportDetail.as_view(), name="export"),
    path("exports/<int:pk>/test/", exports_api.ExportTest.as_view(), name="export_try"),
    path("exports/<int:pk>/run/", exports_api.ExportStart.as_view(), name="export_start"),
    path("benchmarks/workloads/", runs_api.WorkloadList.as_view(), name="workloads"),
    path("benchmarks/runs/", runs_api.RunList.as_view(), name="runs"),
    path("benchmarks/runs/<uuid:pk>/", runs_api.RunDetail.as_view(), name="run"),
    path("benchmarks/runs/<uuid:pk>/cancel/", runs_api.RunCancellation.as_view(), name="run_cancel"),
    path("benchmarks/runs/<uuid:pk>/retry/", runs_api.RunRetry.as_view(), name="run_retry"),
    path("benchmarks/runs/<uuid:pk>/give-back/", runs_api.RunReturn.as_view(), name="run_return"),
    path("benchmarks/runs/<uuid:pk>/series/", runs_api.RunSeries.as_view(), name="run_series"),
    path("benchmarks/runs/<uuid:pk>/log/", runs_api.RunLog.as_view(), name="run_log"),
    path("benchmarks/sweeps/", sweeps_api.SweepList.as_view(), name="sweeps"),
    path("benchmarks/sweeps/preview/", sweeps_api.SweepPreview.as_view(), name="sweep_preview"),
    path("benchmarks/sweeps/<uuid:pk>/", sweeps_api.SweepDetail.as_view(), name="sweep"),
    path("benchmarks/sweeps/<uuid:pk>/points/", sweeps_api.SweepPoints.as_view(), name="sweep_points"),
    path("benchmarks/sweeps/<uuid:pk>/pause/", sweeps_api.SweepPause.as_view(), name="sweep_pause"),
    path("benchmarks/sweeps/<uuid:pk>/resume/", sweeps_api.SweepResumption.as_view(), name="sweep_resume"),
    path("benchmarks/sweeps/<uuid:pk>/halt/", sweeps_api.SweepHalt.as_view(), name="sweep_halt"),
    path("benchmarks/sweeps/<uuid:pk>/retry/", sweeps_api.SweepRetry.as_view(), name="sweep_retry"),
    path("benchmarks/deployments/", deploy_api.Deployments.as_view(), name="deployments"),
    path("benchmarks/recommendations/", recommend_api.Recommendations.as_view(), name="recommendations"),
    path("benchmarks/recommendations/plan/", recommend_api.RecommendationPlan.as_view(), name="recommendation_plan"),
    path("benchmarks/recommendations/run/", recommend_api.RecommendationRun.as_view(), name="recommendation_run"),
    path("benchmarks/records/", records_api.Records.as_view(), name="records"),
    path("benchmarks/records/schema/", records_api.RecordsSchema.as_view(), name="records_schema"),
    path("benchmarks/figures/", figures_api.FigureList.as_view(), name="figures"),
    path("benchmarks/figures/<slug:name>/", figures_api.FigureDetail.as_view(), name="figure"),
    path("benchmarks/comparison/", figures_api.RunComparison.as_view(), name="comparison"),
    path("schema/", schema.SchemaView.as_view(), name="schema"),
    path("docs/", schema.reference, name="docs"),
    # The last: whatever is no address gets a problem document too. Those without the last slash are sent on by Django.
    re_path(r"^(?:.*/)?$", schema.UnknownAddress.as_view(), name="nothing"),
]
