"""Each file of a site's data folder, damaged in each way: at a start and while the site runs.

A start works or says in a sentence why not; a running site answers, with no error of its own; and a backup restores it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from falconweb.testing.snapshots import copy_databases, link_static_files
from tests.site import RunningSite
from tests.stage.operator import Operator
from tests.waiting import eventually, wait_for

pytestmark = [pytest.mark.process, pytest.mark.nightly]
DATABASES = ("falconweb.sqlite3", "readings.sqlite3")
SUFFIXES = ("", "-wal", "-shm")
PAGES = ("/", "/people/", "/api/v1/chassis/", "/telemetry/pipeline/", "/telemetry/", "/metrics")


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def overwritten(file: Path) -> None:
    """Overwrite the second quarter."""
    quarter = max(1, file.stat().st_size // 4)
    with file.open("r+b") as opened:
        opened.seek(quarter)
        opened.write(os.urandom(quarter))


def random_bytes(file: Path) -> None:
    size = file.stat().st_size or 100
    with file.open("r+b") as opened:
        opened.write(os.urandom(size))


def unreadable(file: Path) -> None:
    """Put a folder there: nobody reads that, and root reads everything else."""
    file.unlink()
    file.mkdir()


DAMAGES = [emptied, truncated, overwritten, random_bytes, unreadable]
Damage = Callable[[Path], None]


def started(data: Path, *, simulated: bool = False) -> RunningSite:
    return RunningSite(data, FALCONWEB_SIMULATED="1" if simulated else "0", FALCONWEB_STORE_SECONDS="1")


def whole(site: RunningSite) -> bool:
    with suppress(OSError, ValueError):
        return bool(json.loads(site.get("/readyz")[1])["status"] == "ok")
    return False


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site that was at work, and was ended."""
    data = tmp_path_factory.mktemp("before") / "data"
    copy_databases(data)
    link_static_files(data)
    static = (data / "static").resolve()
    (data / "static").unlink()
    shutil.copytree(static, data / "static")
    with started(data, simulated=True) as site:
        wait_for(lambda: whole(site), "it is not whole", seconds=120, every=0.5)
    return data


@pytest.fixture
def data(backup: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of that folder."""
    yield Path(shutil.copytree(backup, tmp_path / "data"))
    shutil.rmtree(tmp_path / "data")


def secrets_of(data: Path) -> list[str]:
    """Return the files of secrets, of the agents of hosts those of one."""
    found = sorted(f"secrets/{file.name}" for file in (data / "secrets").iterdir())
    return [one for one in found if "agent_" not in one] + [one for one in found if "agent_" in one][:2]


def all_else(data: Path) -> list[str]:
    """Return the files that are neither databases, secrets nor of the simulated chassis; of the static ones some."""
    files = sorted(file for file in data.rglob("*") if file.is_file())
    static = [*(data / "static").glob(".*"), *(data / "static").glob("*.json"), *(data / "static").rglob("*.css")]
    kept = {data / "simulator" / "ports.json", *static[:3]}
    return [
        str(file.relative_to(data)) for file in files
        if file in kept or (file.relative_to(data).parts[0] in {"logs", "up.lock"})
    ]  # fmt: skip


def troubles_of_start(data: Path, files: list[str]) -> str:
    """Start a site and end it; return what is wrong with how it did, '' for nothing."""
    try:
        site = started(data, simulated=len(files) > 1 or "simulator" in files[0] or "agent_" in files[0])
    except RuntimeError as error:
        said = str(error)
        return "" if "did not start: " in said and "Traceback" not in said else said[-600:]
    with site:
        found = {page: site.get(page)[0] for page in ("/healthz", "/sign-in/", "/")}
        sheet = site.get("/sign-in/")[1].partition('rel="stylesheet" href="')[2].partition('"')[0]
        found[sheet] = site.get(sheet)[0] if sheet else 0
    return "" if set(found.values()) <= {200, 302} else f"{found}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_start_works_or_says_in_a_sentence_why_not(backup: Path, tmp_path: Path, damage: Damage) -> None:
    troubles = {}
    simulated = ["simulator/falcon-1/simulator.pem", "simulator/falcon-1/simulator.key"]
    for files in ([*all_else(backup)], *([one] for one in (*DATABASES, *secrets_of(backup), *simulated))):
        data = Path(shutil.copytree(backup, tmp_path / "data", symlinks=True))
        for file in files:
            damage(data / file)
        if trouble := troubles_of_start(data, files):
            troubles[files[0]] = trouble
        shutil.rmtree(data)
    assert troubles == {}


def answers(operator: Operator) -> dict[str, int]:
    """Return how the pages are answered once somebody does: a process may have died and be started anew."""

    def statuses() -> dict[str, int]:
        found = {page: operator.status(page) for page in PAGES}
        assert 500 not in found.values(), found
        return found

    return eventually(statuses, lambda found: 0 not in found.values(), 120)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_running_site_does_without_any_other_file(data: Path, damage: Damage) -> None:
    with started(data, simulated=True) as site:
        operator = Operator(site)
        wait_for(lambda: whole(site), "it is not whole", seconds=120, every=0.5)
        for file in (*all_else(data), *secrets_of(data)):
            damage(data / file)
        assert answers(operator) == dict.fromkeys(PAGES, 200)
        read_at = operator.get("chassis/1/")["inventory_at"]
        wait_for(lambda: operator.get("chassis/1/")["inventory_at"] != read_at, "it is not read on", every=0.5)
        assert site.stop() == 0


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_no_error_of_the_running_site_and_a_backup_restores_it(
    backup: Path, data: Path, damage: Damage, suffix: str
) -> None:
    with started(data, simulated=True) as site:
        operator = Operator(site)
        wait_for(lambda: whole(site), "it is not whole", seconds=120, every=0.5)
        damage(data / f"falconweb.sqlite3{suffix}")
        for _ in range(3):
            # What was damaged may have been the session: then a page leads to the sign-in.
            assert set(answers(operator).values()) <= {200, 401, 403, 503}
        assert site.stop() == 0
    for one in data.glob("falconweb.sqlite3*"):
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    shutil.copyfile(backup / "falconweb.sqlite3", data / "falconweb.sqlite3")
    with started(data) as site:
        assert site.get("/sign-in/")[0] == 200
