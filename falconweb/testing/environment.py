"""The surroundings of a test run, made before Django reads its settings: a data folder and a Valkey of its own.

Part of `falconweb.testing`. A suite that wants this and nothing else puts it into its pytest settings:

    addopts = "-p falconweb.testing.environment"

Each pytest-xdist worker gets its own server: publish and subscribe know no databases, so that a shared one would let
tests hear each other.
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
from falconweb.testing.snapshots import keep_in

SETTINGS = "falconweb.settings"
TOO_LATE = (
    "Django read its settings before falconweb.testing could keep the tests away from your site's data. Put"
    " '-p falconweb.testing' into pytest's addopts, or take DJANGO_SETTINGS_MODULE out of pytest's settings and the"
    " environment."
)

_folders: list[Path] = []
_named_settings: list[str] = []


def isolate() -> Path:
    """Give this process a data folder and a Valkey of its own, once; return the folder. Both go when it ends.

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
        # Called in reverse order: the server ends before its folder goes.
        atexit.register(broker.child.end, deadline=0.0)
        atexit.register(broker.child.send_terminate)
    return _folders[0]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests() -> Generator[None, object, object]:
    """Begin before pytest-django reads the settings; only a plugin named by `-p` is heard this early."""
    isolate()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Choose where prepared things are kept: after pytest has its cache, before pytest-xdist starts processes."""
    keep_in(session.config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin where a conftest named the plugin, and choose FalconWeb's settings where nobody chose any."""
    if config.getoption("help", default=False) or config.getoption("version", default=0):
        return
    isolate()
    if "DJANGO_SETTINGS_MODULE" not in os.environ:
        os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
        _named_settings.append(SETTINGS)
        django.setup()
    # Later than pytest-django, whose fixture of the same name it takes the place of.
    from falconweb.testing import databases

    config.pluginmanager.register(databases, "falconweb.testing.databases")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test that has a database all of them: readings lie in one of their own, which no test need know."""
    for item in items:
        marker = item.get_closest_marker("django_db")
        asks = {"db", "transactional_db"} & set(getattr(item, "fixturenames", ()))
        if (marker is None and asks) or (marker is not None and not marker.args and "databases" not in marker.kwargs):
            known = marker.kwargs if marker is not None else {}
            item.add_marker(pytest.mark.django_db(**known, databases="__all__"), append=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Let each worker of pytest-xdist begin as this process did: an inherited name would be read too early."""
    if _named_settings:
        del os.environ["DJANGO_SETTINGS_MODULE"]
