"""The site's log as JSON: what a line tells, and what none ever does."""

from __future__ import annotations

import json
import logging
import logging.config
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from accounts.audit.context import add_log_context, log_context
from accounts.models import Token, User
from accounts.token_services import token_create
from falconweb.config import Config, ConfigurationError
from falconweb.logs import JsonLines, PlainLines
from tests.processes import ROOT

PASSWORD = "a password that nobody guesses"


class Lines(logging.Handler):
    """What would be written, line by line."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(self.format(record))

    @property
    def records(self) -> list[dict[str, object]]:
        """What the lines say."""
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def log() -> Iterator[Lines]:
    lines = Lines()
    root = logging.getLogger()
    root.addHandler(lines)
    yield lines
    root.removeHandler(lines)


def test_a_line_says_when_how_bad_and_what_in_one_line(log: Lines) -> None:
    logging.getLogger("falconweb.here").warning("line %s\nand 'another' ü", 1)
    (line,) = log.lines
    assert "\n" not in line
    record = json.loads(line)
    assert record["message"] == "line 1\nand 'another' ü"
    assert (record["level"], record["logger"], record["process"]) == ("WARNING", "falconweb.here", os.getpid())
    assert record["at"].endswith("Z")
    assert not {"request_id", "person_id", "chassis_id", "operation_id", "error"} & set(record)


@pytest.mark.django_db
def test_nobody_begins_a_line_of_the_plain_log_or_moves_its_cursor(log: Lines) -> None:
    log.setFormatter(PlainLines("%(levelname)s %(message)s"))
    client = Client()
    client.force_login(User.objects.create_user("bob", password=PASSWORD))
    assert client.get("/benchmarks/runs/csv/", {"state": "x\nERROR forged \x1b[2J"}).status_code == 400
    (line,) = [one for one in log.lines if "forged" in one]
    assert line.isprintable()
    assert "x\\nERROR forged \\x1b[2J" in line
    formatters: Any = settings.LOGGING["formatters"]
    assert formatters["plain"]["()"] == f"{PlainLines.__module__}.{PlainLines.__qualname__}"


def test_an_error_has_its_traceback_and_no_values_of_it(log: Lines) -> None:
    def fail(secret: str) -> None:
        raise ValueError("it broke")

    try:
        fail(PASSWORD)
    except ValueError:
        logging.getLogger("falconweb.here").exception("that was bad")
    (record,) = log.records
    assert "ValueError: it broke" in str(record["error"])
    assert PASSWORD not in log.lines[0]


def test_what_it_is_about_is_told_where_it_is_known_and_nowhere_else(log: Lines) -> None:
    with log_context(chassis_id=3, operation_id="0f"):
        logging.getLogger("a").warning("inside")
    logging.getLogger("a").warning("outside")
    logging.getLogger("a").warning("with more", extra={"chassis_id": 4, "request": object(), "password": PASSWORD})
    inside, outside, more = log.records
    assert (inside["chassis_id"], inside["operation_id"]) == (3, "0f")
    assert "chassis_id" not in outside
    assert more["chassis_id"] == 4
    assert not {"request", "password"} & set(more)


async def test_each_task_of_a_loop_has_what_it_is_about(log: Lines) -> None:
    import asyncio

    async def follow(number: int) -> None:
        add_log_context(chassis_id=number)
        await asyncio.sleep(0)
        logging.getLogger("a").warning("%s", number)

    await asyncio.gather(*(asyncio.create_task(follow(number)) for number in range(3)))
    assert [(one["message"], one["chassis_id"]) for one in log.records] == [("0", 0), ("1", 1), ("2", 2)]


@pytest.mark.django_db
def test_a_request_is_told_of_by_its_id_and_its_person_and_no_secret_is(log: Lines) -> None:
    person = User.objects.create_user("bob", password=PASSWORD)
    client = Client()
    client.force_login(person)
    answer = client.get("/chassis/99/?q=what-was-asked")
    assert answer.status_code == 404
    line = [one for one in log.records if one["logger"] == "falconweb.middleware"][-1]
    assert line["request_id"] == answer["X-Request-ID"]
    assert (line["person_id"], line["path"], line["via"]) == (person.pk, "/chassis/99/", "page")
    _, secret = token_create(person=person, name="job", scope=Token.Scope.READ, days=1)
    assert Client().get("/api/v1/people/", headers={"Authorization": f"Bearer {secret}"}).status_code == 403
    assert Client().get("/api/v1/people/", headers={"Authorization": "Bearer wrong-secret"}).status_code == 401
    Client().post("/sign-in/", {"username": "bob", "password": "wrong-secret"})
    written = "\n".join(log.lines)
    for hidden in (secret, "wrong-secret", PASSWORD, "what-was-asked", client.cookies["sessionid"].value):
        assert hidden not in written


@pytest.mark.django_db
def test_an_error_of_the_api_names_who_asked_by_token(log: Lines) -> None:
    person = User.objects.create_superuser("ada", password="x")
    _, secret = token_create(person=person, name="job", scope=Token.Scope.READ, days=1)
    answer = Client().get("/api/v1/chassis/99999/", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 404
    line = [one for one in log.records if one["logger"] == "django.request"][-1]
    assert (line["person_id"], line["via"], line["status_code"]) == (person.pk, "api", 404)


def test_the_log_is_plain_unless_json_is_asked_for_and_nothing_else_can_be() -> None:
    assert Config.from_environment({}).log == "plain"
    assert Config.from_environment({"FALCONWEB_LOG": "json"}).log == "json"
    with pytest.raises(ConfigurationError, match="FALCONWEB_LOG is 'xml'; it may be plain or json"):
        Config.from_environment({"FALCONWEB_LOG": "xml"})


@pytest.mark.process
def test_a_process_of_the_site_writes_json_where_that_is_set() -> None:
    code = (
        "import django; django.setup(); import logging, warnings; logging.getLogger('x').error('hello');"
        "warnings.warn('beware'); logging.getLogger('uvicorn.error').error('from the server')"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "FALCONWEB_LOG": "json", "DJANGO_SETTINGS_MODULE": "falconweb.settings"},
    )  # fmt: skip
    lines = [json.loads(line) for line in said.stderr.splitlines()]
    assert [line["logger"] for line in lines] == ["x", "py.warnings", "uvicorn.error"]
