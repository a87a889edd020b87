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
from tests.site import RunningSite, processes_of
from tests.stage.operator import Operator
from tests.waiting import wait_for

pytestmark = [pytest.mark.process, pytest.mark.nightly]
DATABASES = ("falconweb.sqlite3", "readings.sqlite3")
PAGES = ("/", "/sign-in/", "/people/", "/api/v1/chassis/", "/telemetry/pipeline/", "/api/v1/telemetry/raw/", "/metrics")


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


def files_of(data: Path) -> list[Path]:
    """Return the files, relative; of the static ones some, and of the simulated hosts none: a start makes them anew."""
    static = [data / "static" / ".collected-from", data / "static" / "staticfiles.json"]
    static += sorted((data / "static").rglob("*.css"))[:1]
    found = [file for file in data.rglob("*") if file.is_file() and file.relative_to(data).parts[0] != "static"]
    kept = [one for one in [*sorted(found), *static] if one.relative_to(data).parts[:2] != ("simulator", "hosts")]
    return [one.relative_to(data) for one in kept]


def troubles_of_start(data: Path, file: Path) -> str:
    """Start a site and end it; return what is wrong with how it did, '' for nothing."""
    is_simulated = file.parts[0] == "simulator" or file.name.startswith(("simulator_", "agent_"))
    try:
        site = started(data, simulated=is_simulated)
    except RuntimeError as error:
        said = str(error)
        return "" if "did not start: " in said and "Traceback" not in said else said[-600:]
    with site:
        found = {page: site.get(page)[0] for page in ("/healthz", "/sign-in/", "/")}
        sheet = site.get("/sign-in/")[1].partition('rel="stylesheet" href="')[2].partition('"')[0]
        found[sheet] = site.get(sheet)[0] if sheet else 0
    return "" if set(found.values()) <= {200, 302} else f"{found}"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_start_works_or_says_in_a_sentence_why_not(backup: Path, tmp_path: Path, damage: Damage) -> None:
    troubles = {}
    for file in files_of(backup):
        data = Path(shutil.copytree(backup, tmp_path / "data"))
        damage(data / file)
        if trouble := troubles_of_start(data, file):
            troubles[str(file)] = trouble
        shutil.rmtree(data)
    assert troubles == {}


def settled(site: RunningSite, operator: Operator) -> dict[str, int]:
    """Return the statuses of pages once the web process, which may have been started anew, answers."""
    wait_for(lambda: operator.status("/healthz") in {200, 503}, "nobody answers", seconds=120, every=0.3)
    return {page: operator.status(page) for page in PAGES}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_running_site_does_without_any_other_file(data: Path, damage: Damage) -> None:
    with started(data, simulated=True) as site:
        operator = Operator(site)
        wait_for(lambda: whole(site), "it is not whole", seconds=120, every=0.5)
        before = {part: processes_of(site, part) for part in ("web", "worker", "beat")}
        for file in files_of(data):
            if not file.name.startswith(DATABASES):
                damage(data / file)
        assert settled(site, operator) == dict.fromkeys(PAGES, 200) | {"/api/v1/telemetry/raw/": 400}
        # Readings go on, and are stored; a page of a chassis still finds its files.
        chassis = operator.get("chassis/")["results"][0]
        last = chassis["inventory_at"]
        wait_for(lambda: operator.get("chassis/")["results"][0]["inventory_at"] > last, "it is not read on", every=0.5)
        assert {part: processes_of(site, part) for part in before} == before
        assert site.stop() == 0


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", DATABASES)
def test_a_running_site_has_no_error_of_its_own_by_a_damaged_database_and_a_backup_restores_it(
    backup: Path, data: Path, damage: Damage, name: str, suffix: str
) -> None:
    with started(data, simulated=True) as site:
        operator = Operator(site)
        wait_for(lambda: whole(site), "it is not whole", seconds=120, every=0.5)
        file = data / (name + suffix)
        wait_for(lambda: file.exists() and file.stat().st_size, seconds=60)
        damage(file)
        for _ in range(3):
            found = settled(site, operator)
            assert set(found.values()) <= {200, 302, 400, 503, 0}, found
        if name == "readings.sqlite3":
            wait_for(lambda: operator.status("/readyz") == 200, lambda: site.get("/readyz")[1], 120, every=0.5)
        assert site.stop() == 0
    for one in data.glob(f"{name}*"):
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    shutil.copyfile(backup / name, data / name)
    with started(data) as site:
        assert site.get("/sign-in/")[0] == 200
