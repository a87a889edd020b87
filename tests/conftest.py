"""Fixtures of every room's tests; those that partners may use too live in falconweb.testing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.conf import settings
from django.core.cache import cache
from django.test.client import ClientHandler

from accounts.audit import floods
from accounts.hashers import BoundedArgon2PasswordHasher
from accounts.models import Role, Tenant, User
from tests.site import RunningSite

hypothesis.settings.register_profile("tests", deadline=None, max_examples=25)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

# Files that take long, longest first. They are begun first, so that no process is left alone with one in the end.
LONG = (
    "test_soak.py", "test_faults.py", "test_reading_faults.py", "test_launch.py", "test_plan_faults.py",
    "test_validators.py", "test_audit_requests.py", "test_matrix_writes.py", "test_plan_machine.py", "test_polling.py",
    "test_testing.py", "test_plans.py", "test_pages.py", "test_mockups.py", "test_poller_faults.py", "test_crowd.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first; the order within a file, and that of the others, stays."""
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONG)))


@pytest.fixture(scope="session", autouse=True)
def static_files(falconweb_static_files: None) -> None:
    """Collect the static files for every test, also for those that bring a client of their own."""


@pytest.fixture(scope="session", autouse=True)
def quick_passwords() -> None:
    """Hash passwords with little work: people are made for each test. Sites in processes of their own do as always."""
    BoundedArgon2PasswordHasher.time_cost = 1
    BoundedArgon2PasswordHasher.memory_cost = 64  # KiB


@pytest.fixture(autouse=True)
def no_guesses_left() -> Iterator[None]:
    """Forget wrong passwords after each test: all of them come from one address."""
    yield
    cache.delete("guesses:127.0.0.1")


@pytest.fixture(scope="session")
def running_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSite]:
    """A whole site with two simulated chassis, in processes of its own."""
    data: Path = tmp_path_factory.mktemp("site")
    with RunningSite(data) as site:
        yield site


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
        for key in floods._client.scan_iter("falconweb:audit:*"):
            floods._client.delete(key)

    return forget
