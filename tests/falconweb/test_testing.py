"""falconweb.testing as a partner meets it: docs/partner-tests.md is carried out in a folder far from the site."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import falconweb.testing
from accounts.models import User
from falconweb.testing import chassis, environment, hosts, people, processes, snapshots
from tests.processes import ROOT

pytestmark = pytest.mark.process

DOCUMENT = (ROOT / "docs" / "partner-tests.md").read_text()
CONFTEST = 'pytest_plugins = ["falconweb.testing"]\n'
# "`name.py` ...:", an empty line, an indented block.
FILE = re.compile(r"^`(?P<name>\w+\.py)`.*:\n\n(?P<text>(?:    .*\n|\n)+)", re.MULTILINE)
EXAMPLE = re.compile(r"^(?P<margin> *)def (?P<name>test_\w+)\(.*\n(?:(?P=margin)    .*\n)+", re.MULTILINE)
FIXTURES_AND_HELPERS = (people, chassis, processes)


def documented_files() -> dict[str, str]:
    """Return the files that the document tells a partner to write."""
    return {found["name"]: textwrap.dedent(found["text"]).strip() + "\n" for found in FILE.finditer(DOCUMENT)}


def public(module: ModuleType) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Yield what a module offers: its fixtures, functions and classes."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def fixtures(module: ModuleType) -> set[str]:
    """Return the names of a module's fixtures."""
    return {
        node.name
        for node in public(module)
        if any(ast.unparse(decorator).startswith("pytest.fixture") for decorator in node.decorator_list)
    }


def examples(node: ast.FunctionDef | ast.ClassDef | ast.Module) -> dict[str, str]:
    """Return the tests that a docstring shows."""
    text = ast.get_docstring(node, clean=False) or ""
    return {found["name"]: textwrap.dedent(found.group()) for found in EXAMPLE.finditer(text)}


def run(folder: Path, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as a partner does, beside a site whose data and broker would betray any use of them."""
    surroundings = {
        name: value
        for name, value in os.environ.items()
        if name == snapshots.FOLDER or not name.startswith(("PYTEST", "DJANGO", "FALCONWEB", "COV"))
    }
    surroundings |= {
        "PYTHONPATH": str(ROOT),
        "FALCONWEB_DATA": str(folder / "site"),
        "REDIS_URL": "redis://127.0.0.1:1/0",
        **more,
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "ignore::pytest.PytestDeprecationWarning", *options],
        cwd=folder,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=len)
def test_the_documents_example_and_that_of_every_docstring_pass_and_touch_no_site(
    processes: tuple[str, ...], tmp_path: Path
) -> None:
    files = documented_files()
    assert set(files) == {"conftest.py", "test_attach.py"}
    assert len(files["conftest.py"].splitlines()) <= 3
    found: dict[str, str] = {}
    for module in FIXTURES_AND_HELPERS:
        found |= examples(ast.parse(inspect.getsource(module)))
        for node in public(module):
            own = examples(node)
            assert own, f"{module.__name__}.{node.name} shows no example"
            assert not own.keys() & found.keys()
            found |= own
    files["test_examples.py"] = "\n\n".join(["from falconweb.testing import *\n", *found.values()])
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    result = run(tmp_path, *processes)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{2 + len(found)} passed" in result.stdout
    assert "warning" not in result.stdout
    assert not (tmp_path / "site").exists()


def test_the_document_names_all_there_is() -> None:
    offered = set[str]().union(falconweb.testing.__all__, *map(fixtures, FIXTURES_AND_HELPERS))
    assert offered >= {"falcon_chassis", "grant_to_tenant", "anonymous_client", "PASSWORD"}
    assert not [name for name in offered if not re.search(rf"`{name}[`(]", DOCUMENT)]
    explained = falconweb.testing.__doc__ or ""
    assert not [name for name in offered - set(falconweb.testing.__all__) if f"`{name}`" not in explained]


@pytest.mark.nightly
def test_settings_that_were_read_too_early_end_the_run_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    result = run(tmp_path, DJANGO_SETTINGS_MODULE=environment.SETTINGS)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert environment.TOO_LATE in result.stderr


@pytest.mark.nightly
def test_a_suite_with_settings_of_its_own_begins_earlier(tmp_path: Path) -> None:
    (tmp_path / "partner_settings.py").write_text("from falconweb.settings import *\nSITE = 'partner'\n")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -p falconweb.testing\nDJANGO_SETTINGS_MODULE = partner_settings\npythonpath = .\n"
    )
    (tmp_path / "test_settings.py").write_text(
        "def test_settings(settings, user_client):\n"
        "    assert settings.SITE == 'partner'\n"
        "    assert user_client.get('/api/v1/operations/').json()['count'] == 0\n"
    )
    result = run(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not (tmp_path / "site").exists()


@pytest.mark.nightly
def test_the_surroundings_alone_bring_no_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_alone.py").write_text(
        "from django.core.cache import cache\n\n\n"
        "def test_valkey():\n    cache.set('a', 1)\n    assert cache.get('a') == 1\n\n\n"
        "def test_client(user_client):\n    pass\n"
    )
    result = run(tmp_path, "-p", "falconweb.testing.environment")
    assert "1 passed, 1 error" in result.stdout, result.stdout + result.stderr
    assert "fixture 'user_client' not found" in result.stdout


def test_people_are_who_their_names_say(
    falconweb_administrator: User, falconweb_user: User, falconweb_viewer: User, falconweb_stranger: User
) -> None:
    found = {person.username.removeprefix("falconweb-"): person for person in User.objects.all()}
    assert {name: (person.role, person.tenant and person.tenant.name) for name, person in found.items()} == {
        "administrator": ("administrator", None),
        "user": ("user", "Vision group"),
        "viewer": ("viewer", "Vision group"),
        "stranger": ("user", "Strangers"),
    }
    assert all(person.check_password(falconweb.testing.PASSWORD) for person in found.values())


def test_an_agent_that_rested_until_what_it_says_is_too_old_is_ended_and_a_new_one_started(
    simulated_falcon: processes.SimulatorProcess,
    host_agent: Callable[..., hosts.AgentProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = host_agent("node-a")
    hosts._agent_pool.release({}, first)
    monkeypatch.setattr("hostwire.signing.SKEW_SECONDS", -1.0)
    assert host_agent("node-a") is not first
    assert first.process.poll() is not None
