"""The load of a machine's GPUs and CPU while something runs, from nvidia-smi and Linux."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Final, Self

from hostwire.training import RunEvent, RunReading

SAMPLE_MILLISECONDS: Final = 250
# Columns of nvidia-smi: the reading that each becomes, and its unit.
COLUMNS: Final = {
    "utilization.gpu": ("utilisation", 0.01), "utilization.memory": ("memory_share", 0.01),
    "memory.used": ("memory_used", 2**20), "power.draw": ("power", 1.0), "temperature.gpu": ("temperature", 1.0),
}  # fmt: skip


class LoadMonitor:
    """Reads the load of the GPUs with nvidia-smi, and of the CPU from Linux, over its context."""

    def __init__(self) -> None:
        self.readings: list[RunEvent] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._read_cpu, daemon=True)]
        self._smi: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if program := shutil.which("nvidia-smi"):
            query = f"--query-gpu=pci.bus_id,{','.join(COLUMNS)}"
            self._smi = subprocess.Popen(  # noqa: S603
                [program, query, "--format=csv,noheader,nounits", f"--loop-ms={SAMPLE_MILLISECONDS}"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            self._threads.append(threading.Thread(target=self._read_gpus, daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        if self._smi is not None:
            self._smi.kill()
            self._smi.wait()
        for thread in self._threads:
            thread.join(5)

    def _read_gpus(self) -> None:
        if self._smi is None or self._smi.stdout is None:
            return
        for line in self._smi.stdout:
            address, *texts = (part.strip() for part in line.split(","))
            values = {}
            for (name, factor), text in zip(COLUMNS.values(), texts, strict=False):
                try:
                    values[f"gpu/{address.lower()[-12:]}/{name}"] = float(text) * factor
                except ValueError:
                    continue  # '[N/A]'
            if values:
                self.readings.append(RunReading(time.time(), 0.0, "nvidia-smi", values))

    def _read_cpu(self) -> None:
        before = _cpu_ticks()
        while not self._ended.wait(SAMPLE_MILLISECONDS / 1000):
            now = _cpu_ticks()
            if now[1] > before[1]:
                share = (now[0] - before[0]) / (now[1] - before[1])
                interval = SAMPLE_MILLISECONDS / 1000
                self.readings.append(RunReading(time.time(), interval, "procfs", {"cpu": min(1.0, max(0.0, share))}))
            before = now


def _cpu_ticks() -> tuple[int, int]:
    """Return the busy ticks of all cores, and all ticks."""
    ticks = [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)
