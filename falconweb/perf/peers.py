"""Servers of others that measurements ask the same of: started, asked, and ended."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from falconweb.launch.processes import end_with_parent
from falconweb.perf.place import CannotMeasureError

READY_SECONDS = 60.0


@contextmanager
def server(command: Sequence[str], port: int, ready: str) -> Iterator[subprocess.Popen[Any]]:
    """Run a server and yield its process once it answers 200 at the path `ready`; raises CannotMeasureError."""
    process = subprocess.Popen(  # noqa: S603 - a program of the system, with our own arguments
        command,
        stdout=subprocess.DEVNULL,
        stderr=sys.stderr,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - no other thread runs
    )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while _status(port, ready) != 200:
            if process.poll() is not None or time.monotonic() > deadline:
                raise CannotMeasureError(f"{command[0]} did not start.")
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


def send(port: int, path: str, body: bytes) -> None:
    """Post something; raises CannotMeasureError where it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body)
        status = connection.getresponse().status
    finally:
        connection.close()
    if status >= 300:
        raise CannotMeasureError(f"{path} answered {status}.")


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()
