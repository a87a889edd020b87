"""Prometheus' own tool judges what the site serves and what the documentation gives to run beside it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accounts.models import Role, User
from falconweb.testing import add_chassis
from falconweb.testing.processes import SimulatorProcess
from telemetry.instrumentation.publisher import MetricsPublisher
from telemetry.pipeline.exposition import FAMILY_ORDER, exposition
from tests.processes import ROOT
from tests.telemetry.polling.worker import polling
from tests.waiting import wait_for

FOLDER = ROOT / "docs" / "prometheus"
pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True, databases="__all__")]


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    return found


def judged(promtool: str, *arguments: str, given: bytes = b"") -> str:
    """Let promtool judge; return what it says, which is nothing bad."""
    done = subprocess.run([promtool, *arguments], input=given, capture_output=True, check=False, timeout=60)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


@pytest.fixture
def served(empty_redis: Any) -> Iterator[str]:
    """What /metrics says to an administrator of a simulated chassis that a worker reads."""
    person = User.objects.create(username="ada", role=Role.ADMINISTRATOR, is_superuser=True)
    with SimulatorProcess(chassis="falcon-1") as simulator:
        chassis = add_chassis(simulator)
        publisher = MetricsPublisher("worker")
        try:
            with polling():
                wait_for(lambda: empty_redis.exists(f"live:counted:{chassis.pk}"), "nothing was read")
                publisher.publish()
                yield b"".join(exposition(person, version="1")).decode()
        finally:
            publisher.end()


def test_what_is_served_is_as_prometheus_wants_it_and_the_documentation_names_what_is_served(
    promtool: str, served: str
) -> None:
    assert judged(promtool, "check", "metrics", given=served.encode()) == ""
    names = set(re.findall(r"^# TYPE (\S+) ", served, re.MULTILINE))
    names |= {f"{name}_bucket" for name in set(re.findall(r"^# TYPE (\S+) histogram", served, re.MULTILINE))}
    # Counters of prometheus_client's own writing have their name in the header, too.
    samples = set(re.findall(r"^(falconweb_\w+)[{ ]", served, re.MULTILINE))
    assert "falconweb_port_receive_bytes_total" in samples
    wanted = {name for path in ("dashboard.json", "rules.yml") for name in named(FOLDER / path)}
    assert wanted - names - samples == set()
    described = set(re.findall(r"`(falconweb_\w*[a-z])`", (ROOT / "docs" / "observe.md").read_text()))
    known = names | samples | {family.name for family in FAMILY_ORDER}
    assert described - known == set()
    # And the other way round: whatever is served is described.
    assert {name for name in names if not name.endswith("_bucket")} - described == set()


def named(path: Path) -> set[str]:
    """Return the metrics that a file names; 'falconweb:...' are those that the rules record."""
    return set(re.findall(r"\bfalconweb_[a-z_]+", path.read_text()))


def test_the_rules_are_right_and_ring_when_they_should(promtool: str) -> None:
    assert "SUCCESS" in judged(promtool, "check", "rules", str(FOLDER / "rules.yml"))
    assert "SUCCESS" in judged(promtool, "test", "rules", str(FOLDER / "rules.test.yml"))
    assert "SUCCESS" in judged(promtool, "check", "config", "--syntax-only", str(FOLDER / "scrape.yml"))


def test_a_rule_that_is_wrong_is_found_out(promtool: str, tmp_path: Path) -> None:
    text = (FOLDER / "rules.yml").read_text().replace("falconweb_chassis_up == 0", "falconweb_chassis_up == 1")
    (tmp_path / "rules.yml").write_text(text)
    (tmp_path / "rules.test.yml").write_text((FOLDER / "rules.test.yml").read_text())
    tested = [promtool, "test", "rules", str(tmp_path / "rules.test.yml")]
    done = subprocess.run(tested, capture_output=True, check=False, timeout=60)
    assert done.returncode != 0
    assert b"FalconWebChassisDown" in done.stdout + done.stderr


def test_every_recorded_name_on_the_dashboard_is_recorded_and_every_query_can_be_read(
    promtool: str, tmp_path: Path
) -> None:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(queries) > 20
    recorded = set(re.findall(r"record: (\S+)", (FOLDER / "rules.yml").read_text()))
    assert {name for query in queries for name in re.findall(r"\bfalconweb:[\w:]+", query)} <= recorded
    lines = ["groups:", "- name: dashboard", "  rules:"]
    for number, query in enumerate(queries):
        filled = query.replace("$__rate_interval", "1m").replace("$chassis", ".+")
        lines += [f"  - record: panel:{number}", f"    expr: {json.dumps(filled)}"]
    (tmp_path / "queries.yml").write_text("\n".join(lines))
    assert f"{len(queries)} rules found" in judged(promtool, "check", "rules", str(tmp_path / "queries.yml"))
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_every_metric_of_readings_is_named_as_prometheus_wants_it(promtool: str) -> None:
    text = "".join(f'{family.header()}{family.name}{{chassis="x"}} 1\n' for family in FAMILY_ORDER)
    assert judged(promtool, "check", "metrics", given=text.encode()) == ""
