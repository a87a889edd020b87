"""Pages of the health of the pipeline, for administrators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.access import person_of
from accounts.declaration import NO_PAGE, Audience, MenuEntry, declare
from core.downloads import Download, csv_download, csv_table
from core.language import _, english, gettext_noop
from core.text import natural_key
from telemetry.pipeline.rules import ChassisHealth, percent_label
from telemetry.pipeline.selectors import PipelineStatus, pipeline_status

CHASSIS_PER_PAGE, PROCESSES_PER_PAGE, COUNTS_PER_PAGE = 25, 15, 10
# By the value in the URL; the first is the order of `chassis_health`, worst first.
ORDERS: dict[str, tuple[str, Callable[[ChassisHealth], Any] | None]] = {
    "worst": (gettext_noop("Worst first"), None),
    "name": (gettext_noop("Name"), lambda row: natural_key(row.name.casefold())),
    "lag": (gettext_noop("Newest lag"), lambda row: -(row.lag if row.lag is not None else -1.0)),
    "failed": (gettext_noop("Failed polls"), lambda row: -row.failed),
}
CHASSIS_COLUMNS = (
    "chassis", "state", "worker", "period_seconds", "newest_lag_seconds", "share_on_time", "polls_done", "polls_late",
    "polls_skipped", "polls_failed", "sentence",
)  # fmt: skip
COUNT_COLUMNS = ("what", "chassis", "recent", "total", "last_utc", "means", "what_to_do")


@require_GET
@declare(Audience.ADMINISTRATORS, menu_entry=MenuEntry(gettext_noop("Pipeline"), "Administration", 5))
def pipeline(request: HttpRequest) -> HttpResponse:
    """Show problems, worst first, and each part; `q`, `sort` and `page` of the chassis are in the URL.

    So are the pages of `processes` and `counts`.
    """
    health = pipeline_status(person_of(request))
    order = request.GET.get("sort", "")
    rows = _chassis(request, health)
    beats = sum(row.done + row.skipped + row.failed for row in health.chassis)
    on_time = sum(row.done - row.late for row in health.chassis) / beats if beats else None
    queues = [one.gauges["store_queue"] for one in health.pipeline.processes if "store_queue" in one.gauges]
    context: dict[str, Any] = {
        "health": health,
        "state": health.level.label,
        "page": Paginator(rows, CHASSIS_PER_PAGE).get_page(request.GET.get("page")),
        "processes": Paginator(health.pipeline.processes, PROCESSES_PER_PAGE).get_page(request.GET.get("processes")),
        "counts": Paginator(health.rows, COUNTS_PER_PAGE).get_page(request.GET.get("counts")),
        "search": request.GET.get("q", ""),
        "order": order if order in ORDERS else "worst",
        "orders": [(word, _(words)) for word, (words, _by) in ORDERS.items()],
        "minutes": round(health.pipeline.seconds / 60),
        "sockets": int(sum(one.gauges.get("sockets_open", 0) for one in health.pipeline.of("web"))),
        "polled": sum(row.done for row in health.chassis),
        "on_time": percent_label(on_time, 2),
        "readings": health.pipeline.count("readings_taken").recent / health.pipeline.seconds,
        "store_queue": sum(queues) if queues else None,
    }
    return render(request, "telemetry/pipeline/pipeline.html", context)


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE)
def chassis_csv(request: HttpRequest) -> Download:
    health = pipeline_status(person_of(request))
    rows = (
        (row.name, row.level.label, row.worker, row.period, row.lag, row.on_time, row.done, row.late,
         row.skipped, row.failed, english(row.sentence))
        for row in _chassis(request, health)
    )  # fmt: skip
    return csv_download(csv_table(CHASSIS_COLUMNS, rows), "pipeline-chassis.csv")


@require_GET
@declare(Audience.ADMINISTRATORS, no_page_test=NO_PAGE)
def counts_csv(request: HttpRequest) -> Download:
    health = pipeline_status(person_of(request))
    rows = (
        (row.meaning.words, row.chassis_name, row.counted.recent, row.counted.total,
         f"{row.counted.seen_at:%Y-%m-%d %H:%M:%S}" if row.counted.seen_at else "", row.meaning.means, row.meaning.do)
        for row in health.rows
    )  # fmt: skip
    return csv_download(csv_table(COUNT_COLUMNS, rows), "pipeline-counts.csv")


def _chassis(request: HttpRequest, health: PipelineStatus) -> list[ChassisHealth]:
    search = request.GET.get("q", "").strip().casefold()
    rows = [row for row in health.chassis if search in row.name.casefold()]
    _words, by = ORDERS.get(request.GET.get("sort", ""), ("", None))
    return sorted(rows, key=by) if by is not None else rows
