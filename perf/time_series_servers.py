"""Other time series servers for comparison: started, queried, and stopped."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from falconweb.launch.broker import free_port
from falconweb.launch.processes import ChildProcess, wait_until_ready
from perf.environment import CannotMeasureError
from perf.servers import start_process

READY_SECONDS = 60.0
SERIES_AT_ONCE = 16
METRIC = "falcon_reading"
PROMETHEUS, VICTORIA = "prometheus", "victoria-metrics"  # names of the Debian packages
Points = Iterable[tuple[float, float]]  # of one series: Unix times in s, and values


@contextmanager
def running_server(command: list[str], port: int, path: str) -> Iterator[ChildProcess]:
    """Run a server and yield its process once a path of it responds 200; raises CannotMeasureError."""
    child = start_process(Path(command[0]).name, command)
    try:
        wait_until_ready(child, lambda: True if _status(port, path) == 200 else None, READY_SECONDS)
        yield child
    except TimeoutError as error:
        raise CannotMeasureError(str(error)) from None
    finally:
        child.send_terminate()
        child.end(time.monotonic() + 30)


def _send(port: int, path: str, body: bytes) -> None:
    """Post data; raises CannotMeasureError where it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body)
        status = connection.getresponse().status
    finally:
        connection.close()
    if status >= 300:
        raise CannotMeasureError(f"{path} answered {status}.")


def create_blocks(folder: Path, series: Iterable[Points]) -> None:
    """Make Prometheus blocks with promtool, from a text in the OpenMetrics format; raises CannotMeasureError."""
    text = folder.with_suffix(".txt")
    with text.open("w") as file:
        file.write(f"# TYPE {METRIC} gauge\n")
        for number, points in enumerate(series):
            file.writelines(f'{METRIC}{{series="{number}"}} {value:.10g} {at:.0f}\n' for at, value in points)
        file.write("# EOF\n")
    answer = subprocess.run(  # noqa: S603 - a program of the system, with our own arguments
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder)],  # noqa: S607
        check=False, capture_output=True,
    )  # fmt: skip
    if answer.returncode:
        raise CannotMeasureError(f"promtool failed: {answer.stderr.decode(errors='replace')[-500:]}")
    text.unlink()


@contextmanager
def victoria_metrics(program: str, folder: Path) -> Iterator[tuple[ChildProcess, int]]:
    """Run VictoriaMetrics on a folder; yields its process and its port."""
    port = free_port()
    command = [
        program, f"-storageDataPath={folder}", f"-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=10y",
        "-loggerLevel=ERROR", "-search.latencyOffset=0s",
    ]  # fmt: skip
    with running_server(command, port, "/health") as process:
        yield process, port


def import_series(port: int, series: Iterable[Points]) -> None:
    """Import series into VictoriaMetrics, each as a line of JSON, and flush them to its files."""
    left = (_line(number, points) for number, points in enumerate(series))
    while some := b"\n".join(islice(left, SERIES_AT_ONCE)):
        _send(port, "/api/v1/import", some)
    _send(port, "/internal/force_flush", b"")


def _line(number: int, points: Points) -> bytes:
    times, values = zip(*points, strict=True)
    labels = {"__name__": METRIC, "series": str(number)}
    return json.dumps({"metric": labels, "values": values, "timestamps": [int(1000 * at) for at in times]}).encode()


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()
