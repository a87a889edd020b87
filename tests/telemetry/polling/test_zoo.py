"""Hostile and broken BMCs beside good ones: these lose no frame, and the page of each bad one says what is wrong."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from django.conf import settings
from django.db import connections
from django.test import Client

from fabric.inventory.models import Chassis
from falconweb.testing.processes import SimulatorProcess
from telemetry.live.frames import decode_key
from tests.fabric.disorder import database_url
from tests.processes import ROOT
from tests.telemetry.polling.worker import polling
from tests.telemetry.polling.zoo import ANIMALS
from tests.waiting import wait_for

logger = logging.getLogger(__name__)
pytestmark = pytest.mark.django_db(transaction=True)

GOOD = 20  # at night
MAX_PSS = 600 * 2**20
WATCHED_SECONDS = 120.0
MAX_GAP = 3  # beats; a busy machine may be late


@contextmanager
def zoo(folder: Path, kinds: Sequence[str]) -> Iterator[dict[str, Chassis]]:
    """Keep these animals, and return their chassis."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.telemetry.polling.zoo", str(folder), *kinds],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        kept = json.loads(process.stdout.readline())
        yield {
            kind: add(f"zoo {kind}", url, kept["fingerprint"], "secret")
            for kind, url in zip(kinds, kept["urls"], strict=True)
        }
    finally:
        process.kill()
        process.communicate()


def add(name: str, url: str, fingerprint: str, password: str) -> Chassis:
    row = Chassis(name=name, url=url, username="administrator", fingerprint=fingerprint)
    row.set_password(password)
    row.save()
    return row


@contextmanager
def worker() -> Iterator[int]:
    """Run a worker in a process of its own; yields its id."""
    environment = {**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "falconweb.settings"}
    readings = str(connections[settings.READINGS_DATABASE].settings_dict["NAME"])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.telemetry.polling.zoo_worker", readings], cwd=ROOT, env=environment
    )
    try:
        yield process.pid
        assert process.poll() is None, "the worker ended"
    finally:
        process.terminate()
        process.wait(30)


def pss_of(pid: int) -> int:
    """Return the memory of a process, bytes: its own, and its part of what it shares."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def watch(chassis: Sequence[Chassis], seconds: float, pid: int = 0) -> tuple[dict[int, list[int]], int]:
    """Return the numbers of the frames of chassis within so many seconds, and the most memory of a worker."""
    numbers: dict[int, list[int]] = defaultdict(list)
    most, looked = 0, 0.0
    with redis.Redis.from_url(settings.REDIS_URL) as client, client.pubsub() as pubsub:
        pubsub.subscribe(*(f"live:{one.pk}" for one in chassis))
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            if pid and now > looked + 0.5:
                most, looked = max(most, pss_of(pid)), now
            if message := pubsub.get_message(ignore_subscribe_messages=True, timeout=0.2):
                frame = decode_key(message["data"])
                numbers[frame.chassis].append(frame.sequence)
    return numbers, most


def gaps_of(numbers: dict[int, list[int]]) -> list[int]:
    """Return the distances of frames beyond one."""
    steps = (later - earlier for those in numbers.values() for earlier, later in itertools.pairwise(those))
    return sorted((step for step in steps if step > 1), reverse=True)


def say_what_is_wrong(client: Client, kept: dict[str, Chassis]) -> None:
    """Wait until the page of each animal says what is wrong with it."""
    for kind, row in kept.items():
        wanted = ANIMALS[kind][1]
        last = [""]

        def says(row: Chassis = row, wanted: str = wanted, last: list[str] = last) -> bool:
            last[0] = " ".join(client.get(f"/chassis/{row.pk}/").content.decode().split()).replace("&#x27;", "'")
            return wanted in last[0]

        def notices(kind: str = kind, last: list[str] = last) -> str:
            return f"{kind}: " + " | ".join(re.findall(r'<p class="notice[^>]*>(.*?)</p>', last[0]))

        wait_for(says, notices, 60.0, every=0.3)
        assert "<script>alert" not in last[0]


@pytest.mark.process
def test_bad_ones_say_what_is_wrong_beside_a_good_one(tmp_path: Path, administrator_client: Client) -> None:
    kinds = ["bomb", "nested", "nonsense", "lying", "scripting", "flooding"]
    with SimulatorProcess(chassis="falcon-1") as process, zoo(tmp_path, kinds) as kept:
        good = add("good", process.address, process.fingerprint, process.password)
        with polling():
            wait_for(lambda: watch([good], 0.5)[0])
            say_what_is_wrong(administrator_client, kept)
            numbers, _ = watch([good], 5.0)
    assert len(numbers[good.pk]) >= 3
    assert max(gaps_of(numbers), default=1) <= MAX_GAP


@pytest.mark.nightly
@pytest.mark.process
def test_twenty_beside_twenty(tmp_path: Path, administrator_client: Client) -> None:
    with (
        SimulatorProcess("--chassis-count", str(GOOD), own=True) as process,
        zoo(tmp_path, list(ANIMALS)) as kept,
    ):
        good = [
            add(f"good {number}", url, process.fingerprint, process.password)
            for number, url in enumerate(process.addresses)
        ]
        begun = time.monotonic()
        with worker() as pid:
            pks = [one.pk for one in good]
            read = Chassis.objects.filter(pk__in=pks, inventory_at__isnull=False)
            wait_for(lambda: read.count() == GOOD, lambda: f"{read.count()} of {GOOD} were read", 300.0)
            logger.info("inventories of all good ones after %.1f s", time.monotonic() - begun)
            wait_for(lambda: len(watch(good, 1.5)[0]) == GOOD, seconds=120.0)
            numbers, most = watch(good, WATCHED_SECONDS, pid)
            frames, gaps = sum(map(len, numbers.values())), gaps_of(numbers)
            logger.info("%s frames, gaps %s, at most %.0f MB", frames, gaps[:20], most / 2**20)
            say_what_is_wrong(administrator_client, kept)
            _, later = watch(good, 10.0, pid)
            logger.info("later at most %.0f MB", later / 2**20)
    assert max(most, later) < MAX_PSS
    assert max(gaps, default=1) <= MAX_GAP
