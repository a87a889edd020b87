"""Fixtures of every room's tests; those that partners may use too live in falconweb.testing."""

from __future__ import annotations

import gc
import json
import math
import os
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import hypothesis
import pytest
import redis
from django.conf import settings
from django.core.cache import cache
from django.test.client import ClientHandler
from xdist.scheduler import LoadFileScheduling

from accounts.audit import refusal_limits
from accounts.models import Role, Tenant, User
from accounts.sign_in.security import BoundedArgon2PasswordHasher
from telemetry.instrumentation import publisher
from tests.postgres import PROGRAMS, PostgresServer
from tests.without import NO_TORCH

# Tests say the same each time; the nightly run draws anew.
hypothesis.settings.register_profile("tests", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

# Python keeps frames in chunks of 16 KiB, which are mapped and unmapped each time that calls cross an edge: some 300
# times a request, in tests that stand far up the stack. Below a function whose frame is larger there is one chunk.
_run_test = pytest.Function.runtest


def _run_with_room(self: pytest.Function) -> None:
    _run_test(self)


_run_with_room.__code__ = _run_with_room.__code__.replace(co_stacksize=70_000)  # of 8 bytes each
pytest.Function.runtest = _run_with_room  # type: ignore[method-assign]

# What is imported and collected stays to the end: looking through it for what may go took a third of the collection,
# and a tenth of the tests.
gc.set_threshold(50_000, 20, 50)


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, and nowhere else."""
    gc.collect()
    gc.freeze()


CPU_SECONDS = Path(__file__).with_name("cpu_seconds.json")
# Folders whose tests share one running site: one process runs all of them.
TOGETHER = ("tests/browser/", "tests/stage/")
# PyTorch takes all of a machine. Behind the files that take more than this (CPU seconds) it does not meet the stage,
# where it would be judged how often a site reads its chassis.
PYTORCH = "tests/trainer/"
PYTORCH_AFTER = 10.0
# Folders of which one process runs all tests, since each would make anew what they share: PyTorch and what forks their
# runs, and the fit of the model without each of its figures (seven CPU seconds).
SHARING = (*TOGETHER, PYTORCH, "tests/benchmarks/model/")


class FilesAndSites(LoadFileScheduling):  # type: ignore[misc]  # no types in the library
    """Gives a process whole files, and all files of a folder that shares something."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in SHARING if nodeid.startswith(folder)), super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndSites:
    """Divide the tests among processes."""
    return FilesAndSites(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that finds tests which depend on others."""
    parser.addoption("--shuffle", metavar="SEED", help="run files, and the tests of each, in an order drawn by SEED")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put what takes long first, so that no process is left alone with it in the end; or shuffle all."""
    seed = config.getoption("shuffle")
    if seed is not None:
        items.sort(key=lambda item: Random(f"{seed} {item.nodeid}").random())  # noqa: S311 - chance, no secret
        items.sort(key=lambda item: Random(f"{seed} {item.path}").random())  # noqa: S311
        return
    seconds = json.loads(CPU_SECONDS.read_text()) if CPU_SECONDS.exists() else {}

    def cost(item: pytest.Item) -> float:
        file = item.nodeid.partition("::")[0]
        if file.startswith(TOGETHER):
            return math.inf
        return min(float(seconds.get(file, 0.0)), PYTORCH_AFTER if file.startswith(PYTORCH) else math.inf)

    items.sort(key=cost, reverse=True)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file that imports PyTorch where it is not installed."""
    report = yield
    if report.failed and "ModuleNotFoundError" in str(report.longrepr) and find_spec("torch") is None:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {NO_TORCH}")
    return report


@pytest.fixture(scope="session", autouse=True)
def static_files(falconweb_static_files: None) -> None:
    """Collect the static files for every test, also for those that bring a client of their own."""


@pytest.fixture(scope="session", autouse=True)
def quick_passwords() -> None:
    """Hash passwords with little work: people are made for each test. Sites in processes of their own do as always."""
    BoundedArgon2PasswordHasher.time_cost = 1
    BoundedArgon2PasswordHasher.memory_cost = 64  # KiB


@pytest.fixture(scope="module", autouse=True)
def nothing_of_other_files() -> None:
    """Begin each file with an empty Redis: what others left there is of chassis, people and processes that ended.

    Their numbers come again, and who is silent for long is reported.
    """
    if publisher._publisher is not None:
        publisher._publisher.end()
        publisher._publisher = None
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()


@pytest.fixture(autouse=True)
def no_guesses_left() -> Iterator[None]:
    """Forget wrong passwords after each test: all of them come from one address."""
    yield
    cache.delete("guesses:127.0.0.1")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test process, with a database that has the site's tables."""
    if PROGRAMS is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def tenant(transactional_db: None) -> Tenant:
    """A tenant without grants."""
    return Tenant.objects.create(name="Vision group")


@pytest.fixture(scope="session", autouse=True)
def one_chain_of_middleware() -> Iterator[None]:
    """Let all clients of the tests share one chain of middleware, as all requests of a site do.

    Each would make its own, and look at all static files for it: more than half of what a request takes. A test that
    changes settings has a chain of its own, made with them.
    """
    load, usual = ClientHandler.load_middleware, vars(settings)["_wrapped"]
    parts: dict[str, Any] = {}

    def load_once(self: ClientHandler, is_async: bool = False) -> None:
        if is_async or vars(settings)["_wrapped"] is not usual:
            load(self, is_async)
        elif parts:
            vars(self).update(parts)
        else:
            before = set(vars(self))
            load(self)
            parts.update({name: part for name, part in vars(self).items() if name not in before})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientHandler, "load_middleware", load_once)
        yield


@pytest.fixture
def member(tenant: Tenant) -> User:
    """A user of the tenant, who may compose."""
    return User.objects.create_user("bob", password="a-long-password-1", role=Role.USER, tenant=tenant)


@pytest.fixture
def viewer(tenant: Tenant) -> User:
    """A viewer of the tenant."""
    return User.objects.create_user("eve", password="a-long-password-1", role=Role.VIEWER, tenant=tenant)


@pytest.fixture
def forget_refusals() -> Callable[[], None]:
    """A function that forgets which requests were counted as refused."""

    def forget() -> None:
        for key in refusal_limits._client.scan_iter("falconweb:audit:*"):
            refusal_limits._client.delete(key)

    return forget
