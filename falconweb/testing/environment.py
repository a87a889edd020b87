"""The environment of a test run, created before Django reads its settings: a separate data folder and Valkey.

Part of `falconweb.testing`. To use only this module, add it to the pytest settings:

    addopts = "-p falconweb.testing.environment"

Each pytest-xdist worker gets its own server: publish and subscribe are not separated by database, so tests would
receive each other's messages on a shared one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import django
import pytest
from django.conf import settings

from falconweb.launch.broker import start_broker
from falconweb.testing.snapshots import choose_folder

SETTINGS = "falconweb.settings"
TOO_LATE = (
    "Django read its settings before falconweb.testing could keep the tests away from your site's data. Put"
    " '-p falconweb.testing' into pytest's addopts, or take DJANGO_SETTINGS_MODULE out of pytest's settings and the"
    " environment."
)

_folders: list[Path] = []
_named_settings: list[str] = []


def isolate() -> Path:
    """Create a data folder and a Valkey for this process, once; returns the folder. Both are deleted at its end.

    Raises pytest.UsageError where Django's settings were read already: they would name the site's own data.

        import falconweb.testing.environment

        data = falconweb.testing.environment.isolate()  # FALCONWEB_DATA and REDIS_URL name what is the run's own now
    """
    if not _folders:
        if settings.configured:
            raise pytest.UsageError(TOO_LATE)
        data = Path(tempfile.mkdtemp(prefix="falconweb-tests-"))
        _folders.append(data)
        atexit.register(shutil.rmtree, data, ignore_errors=True)
        (data / "logs").mkdir()
        os.environ["FALCONWEB_DATA"] = str(data)
        broker = start_broker(data, os.environ)
        os.environ["REDIS_URL"] = broker.url
        # Called in reverse order: the server ends before its folder is deleted.
        atexit.register(broker.child.end, deadline=0.0)
        atexit.register(broker.child.send_terminate)
    return _folders[0]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests() -> Generator[None, object, object]:
    """Start before pytest-django reads the settings; only plugins named by `-p` get this hook."""
    isolate()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Choose the folder of snapshots: after pytest has its cache, before pytest-xdist starts processes."""
    choose_folder(session.config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start where a conftest named the plugin, and default to FalconWeb's settings."""
    if config.getoption("help", default=False) or config.getoption("version", default=0):
        return
    isolate()
    if "DJANGO_SETTINGS_MODULE" not in os.environ:
        os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
        _named_settings.append(SETTINGS)
        django.setup()
    # After pytest-django, whose fixture of the same name it replaces.
    from falconweb.testing import databases

    config.pluginmanager.register(databases, "falconweb.testing.databases")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests with a database access to all of them: readings have a separate one, which is an internal detail."""
    for item in items:
        marker = item.get_closest_marker("django_db")
        fixtures = {"db", "transactional_db"} & set(getattr(item, "fixturenames", ()))
        if (marker is None and fixtures) or (
            marker is not None and not marker.args and "databases" not in marker.kwargs
        ):
            known = marker.kwargs if marker is not None else {}
            item.add_marker(pytest.mark.django_db(**known, databases="__all__"), append=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Have each worker of pytest-xdist set up its own environment: an inherited variable would be read too early."""
    if _named_settings:
        del os.environ["DJANGO_SETTINGS_MODULE"]
