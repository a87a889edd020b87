"""A day's chart of 32 series at 500 points through the HTTP API, compared with other servers.

The site responds with one uvicorn process over one persistent connection, authenticated by token. The store has a day
of one, a hundred and a thousand chassis. Prometheus and VictoriaMetrics have the same 32 series; `query_range` requests
the mean of each bucket.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
from django.utils import timezone

from accounts.models import Token, User
from fabric.inventory.models import Chassis, Port
from falconweb.launch.broker import free_port
from falconweb.launch.processes import terminate_all
from perf.chassis import catalogue_entries, copy_readings, create_chassis, store_readings
from perf.environment import CannotMeasureError
from perf.figures import PerfFigure
from perf.servers import start_web
from perf.time_series_servers import (
    METRIC,
    PROMETHEUS,
    VICTORIA,
    Points,
    create_blocks,
    import_series,
    running_server,
    victoria_metrics,
)
from telemetry.store.selectors import read_series

DAY = 86_400
POINTS = 500
STEP = 180  # s, the site's bucket size: 480 buckets
STORE_SIZES = (1, 100, 1000)
REQUESTS = 60
MAX_MS = 8.0
SECRET = "fw_perf_history"  # noqa: S105 - of a site that exists only during the measurement
METRICS = "rx_bytes_per_second,tx_bytes_per_second"


def measure(log: Callable[[str], None]) -> list[PerfFigure]:
    """Return the figures of history; takes some minutes."""
    person = User.objects.create_superuser("perf")
    Token.objects.create(
        person=person, name="perf", digest=Token.digest_of(SECRET), expires_at=timezone.now() + timedelta(days=1)
    )
    chassis = create_chassis("perf")
    entries = catalogue_entries(chassis)
    until = time.time() // STEP * STEP
    log(f"a day of {len(entries)} series")
    store_readings(chassis.pk, entries, since=until - DAY, until=until)
    ports = list(Port.objects.filter(chassis=chassis).values_list("pk", flat=True))
    site = asyncio.run(_site(log, chassis, ports, until))
    keys = [f"port/{pk}/{metric}" for pk in ports for metric in METRICS.split(",")]
    beside = _other_servers(log, chassis.pk, keys, until)
    what = f"32 series, {POINTS} points at most, over HTTP"
    return [
        *(
            PerfFigure(
                f"the day's chart, {what}, 1 chassis",
                site[1],
                "ms",
                beside=name if milliseconds else f"{name}: not run",
                beside_value=milliseconds,
                most=MAX_MS,
            )
            for name, milliseconds in beside.items()
        ),
        *(PerfFigure(f"the same, {count:,} chassis", site[count], "ms", most=MAX_MS) for count in STORE_SIZES[1:]),
    ]


async def _site(log: Callable[[str], None], chassis: Chassis, ports: Sequence[int], until: float) -> dict[int, float]:
    """Return ms by the number of chassis in the store."""
    child, port = await start_web("site", "falconweb.asgi:application")
    refs = ",".join(f"port/{pk}" for pk in ports)
    query = urlencode(
        {"subjects": refs, "metrics": METRICS, "since": until - DAY, "until": until, "points": POINTS}, safe=","
    )
    found: dict[int, float] = {}
    has = 1
    try:
        for count in STORE_SIZES:
            log(f"{count:,} chassis")
            others = range(1_000_000 + has, 1_000_000 + count)
            await asyncio.to_thread(copy_readings, chassis.pk, others)
            has = count
            headers = {"Authorization": f"Bearer {SECRET}"}
            found[count] = await asyncio.to_thread(
                _measure_requests, port, f"/api/v1/telemetry/?{query}", headers, _points_of_site
            )
    finally:
        terminate_all([child])
    return found


def _measure_requests(port: int, path: str, headers: dict[str, str], lines: Callable[[bytes], list[int]]) -> float:
    """Return the median response time in ms over a persistent connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    taken = []
    body = b""
    for _ in range(REQUESTS):
        begin = time.perf_counter()
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        taken.append((time.perf_counter() - begin) * 1e3)
        if answer.status != 200:
            raise CannotMeasureError(f"{answer.status}: {body[:300].decode(errors='replace')}")
    connection.close()
    points = lines(body)
    if len(points) != 32 or min(points) < 0.95 * DAY / STEP:
        raise CannotMeasureError(f"the answer has {len(points)} series of {min(points, default=0)} points and more.")
    # The first requests warm up.
    return statistics.median(taken[5:])


def _points_of_site(body: bytes) -> list[int]:
    return [sum(value is not None for value in line["mean"]) for line in json.loads(body)["series"]]


def _points_of_others(body: bytes) -> list[int]:
    return [len(line["values"]) for line in json.loads(body)["data"]["result"]]


def _other_servers(
    log: Callable[[str], None], chassis: int, keys: Sequence[str], until: float
) -> dict[str, float | None]:
    """Return ms by server, None for one that is not installed."""
    found: dict[str, float | None] = {PROMETHEUS: None, VICTORIA: None}
    programs = {name: shutil.which(name) for name in found}
    if not any(programs.values()):
        return found
    series = _every_second(chassis, keys, until)
    query = f"/api/v1/query_range?query={quote(f'avg_over_time({METRIC}[{STEP}s])')}"
    # Without VictoriaMetrics' response cache: the site and Prometheus have none.
    query += f"&start={until - DAY + STEP:.0f}&end={until:.0f}&step={STEP}&nocache=1"
    with tempfile.TemporaryDirectory(prefix="falconweb-perf-peer-") as folder:
        if programs[PROMETHEUS] and shutil.which("promtool"):
            log(PROMETHEUS)
            with _prometheus(programs[PROMETHEUS] or "", Path(folder), series) as port:
                found[PROMETHEUS] = _measure_requests(port, query, {}, _points_of_others)
        if programs[VICTORIA]:
            log(VICTORIA)
            with victoria_metrics(programs[VICTORIA] or "", Path(folder) / VICTORIA) as (_, port):
                import_series(port, series)
                found[VICTORIA] = _measure_requests(port, query, {}, _points_of_others)
    return found


def _every_second(chassis: int, keys: Sequence[str], until: float) -> list[list[tuple[float, float]]]:
    """Return the stored readings of the day, by series: times (s) and values."""
    times, values = [], []
    for begin in range(int(until) - DAY, int(until), 3600):
        part = read_series(chassis, keys, since=begin, until=begin + 3600, points=3600)
        order = [next(row for row, entry in enumerate(part.series) if entry["key"] == key) for key in keys]
        times.append(part.at)
        values.append(part.mean[order])
    at = np.concatenate(times)
    return [
        list(zip(at[~np.isnan(row)].tolist(), row[~np.isnan(row)].tolist(), strict=True))
        for row in np.concatenate(values, axis=1)
    ]


@contextmanager
def _prometheus(program: str, folder: Path, series: Iterable[Points]) -> Iterator[int]:
    """Run Prometheus on blocks of the readings; yields its port."""
    data = folder / PROMETHEUS
    create_blocks(data, series)
    config = folder / "prometheus.yml"
    config.write_text("scrape_configs: []\n")
    port = free_port()
    command = [
        program, f"--config.file={config}", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=10y",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    with running_server(command, port, "/-/ready"):
        yield port
