"""The OpenAPI document: every operation has words, its errors and its tag, and what is answered has its shape."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
from django.conf import settings
from django.urls import reverse
from pytest_django import DjangoDbBlocker

from accounts.models import Token, User
from fabric.operations.services import STEP_NAMES
from falconweb.api.openapi import MAX_SUMMARY_LENGTH, METHODS
from tests.access.lab import Lab, address
from tests.api.test_api import READING, ROUTES, call

JSON = "application/vnd.oai.openapi+json"


@pytest.fixture(scope="module")
def document(made_lab: Lab, django_db_blocker: DjangoDbBlocker) -> Any:
    """The OpenAPI document."""
    with django_db_blocker.unblock():
        return made_lab.clients["member"].get(reverse("api:schema"), headers={"Accept": JSON}).json()


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return each operation by its address and method."""
    return {(path, method): found[method] for path, found in document["paths"].items() for method in METHODS
            if method in found}  # fmt: skip


def test_every_route_is_described_in_words(document: dict[str, Any]) -> None:
    found = operations(document)
    assert len(found) == sum(len(methods) for name, methods in ROUTES.items() if name != "schema")
    summaries = [one["summary"] for one in found.values()]
    assert all(0 < len(one) <= MAX_SUMMARY_LENGTH for one in summaries)
    assert len(set(summaries)) == len(summaries)
    assert all(one["description"].startswith(one["summary"]) for one in found.values())
    tags = [tag["name"] for tag in document["tags"]]
    assert {tag for one in found.values() for tag in one["tags"]} == set(tags)
    assert all(one["tags"] == [path.split("/")[3]] for (path, _), one in found.items())


def test_every_operation_declares_its_errors(document: dict[str, Any]) -> None:
    for (path, method), one in operations(document).items():
        declared = set(one["responses"])
        expected = {"401", "403", "default"}
        parameters = [found for found in one.get("parameters", []) if found["in"] != "path"]
        expected |= {"404"} if "{" in path else set()
        expected |= {"400"} if parameters or "requestBody" in one else set()
        expected |= {"409"} if method == "post" and ("operations" in path or "/mode/" in path) else set()
        expected |= {"422"} if any(found["name"] == "Idempotency-Key" for found in parameters) else set()
        expected |= {"409"} if ("/grants/" in path and method == "put") or path.endswith("/tenant/") else set()
        is_live = path.endswith(("/series/", "/readings/")) and "/benchmarks/" not in path
        expected |= {"503"} if is_live else set()
        assert expected <= declared, (path, method, expected - declared)
        for status in declared - {"200", "201", "202", "204"}:
            answer = one["responses"][status]
            if "$ref" in answer:
                answer = document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
            assert answer["description"]
            assert answer["content"] == {
                "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
            }, (path, method, status)


def test_who_may_call_is_said(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    assert schemes["session"]["name"] == settings.SESSION_COOKIE_NAME
    assert all(one["security"] == [{"session": []}, {"token": []}] for one in operations(document).values())


def plain(node: Any) -> Any:
    """Return a schema as JSON Schema has it: `nullable` is OpenAPI's own word."""
    if isinstance(node, list):
        return [plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    known = {name: plain(one) for name, one in node.items() if name != "nullable"}
    return {"anyOf": [known, {"type": "null"}]} if node.get("nullable") is True else known


@pytest.fixture(scope="module")
def components(document: dict[str, Any]) -> Any:
    """What the schemas of the document refer to, as JSON Schema has it."""
    return plain(document["components"])


def valid(components: dict[str, Any], schema: dict[str, Any], value: object) -> None:
    """Check a value against a schema of the document."""
    whole = {**plain(schema), "components": components}
    validator = jsonschema.Draft202012Validator
    validator(whole, format_checker=validator.FORMAT_CHECKER).validate(value)


# Answered as streams, or as what no schema of JSON tells in full; a comparison wants runs.
NO_LISTS = {
    "alert_rule_preview", "audit_export", "collected_log_file", "comparison", "export_run_file", "my_dashboard",
    "readings", "records",
    "schema", "series", "telemetry", "telemetry_heat_map", "telemetry_raw", "telemetry_table", "telemetry_throughput",
}  # fmt: skip


def test_what_is_read_has_the_shape_that_is_described(
    lab: Lab, document: dict[str, Any], components: dict[str, Any]
) -> None:
    person = User.objects.get(username="administrator")
    token = Token.objects.create(person=person, name="t", digest="0" * 64, expires_at=person.date_joined)
    lab.arguments["my_token"] = [token.pk]
    for name in (name for name in READING if name not in NO_LISTS):
        where, arguments = address(lab, f"api:{name}"), lab.arguments.get(name, [])
        answer = lab.clients["administrator"].get(where)
        assert answer.status_code == 200, where
        path = next(
            path for path in document["paths"]
            if path.count("{") == len(arguments)
            and where == re.sub(r"\{\w+\}", str(arguments[0] if arguments else ""), path)
        )  # fmt: skip
        content = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
        valid(components, content["schema"], answer.json())


def test_the_examples_are_of_the_shapes(lab: Lab, document: dict[str, Any], components: dict[str, Any]) -> None:
    post = document["paths"]["/api/v1/operations/"]["post"]
    asked, answered = (one["content"]["application/json"] for one in (post["requestBody"], post["responses"]["202"]))
    assert len(asked["examples"]) == 2
    for content in (asked, answered):
        for example in content["examples"].values():
            valid(components, content["schema"], example["value"])
    given = call(lab.clients["owner"], "post", reverse("api:operations"),
                 {"device_id": lab.device.pk, "target_host_port_id": None}).json()  # fmt: skip
    valid(components, answered["schema"], given)
    (example,) = answered["examples"].values()
    assert set(example["value"]) == set(given)
    assert [step["name"] for step in example["value"]["steps"]] == list(STEP_NAMES[example["value"]["kind"]])


@pytest.mark.nightly
def test_the_schema_has_no_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import call_command

    call_command("spectacular", validate=True, fail_on_warn=True, file="/dev/null")
    assert capsys.readouterr().err == ""
