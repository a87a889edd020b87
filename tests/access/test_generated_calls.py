"""Calls that Schemathesis generates from the OpenAPI document, valid and invalid, as three people and as nobody."""

from __future__ import annotations

import logging
import re
import uuid
from contextlib import ExitStack
from typing import Any

import hypothesis
import pytest
import requests
import schemathesis
from django.db import connections, transaction
from django.test import Client
from django.urls import resolve
from hypothesis import strategies as st
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.failures import FailureGroup

from tests.access.lab import Lab, lab, made_lab
from tests.api.test_openapi import document

__all__ = ["document", "lab", "made_lab"]
pytestmark = [pytest.mark.nightly, pytest.mark.django_db]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 6  # of each operation, person and mode


def send(client: Client, case: Any) -> schemathesis.Response:
    """Send a case by a test client, and undo what it changed."""
    given = case.as_transport_kwargs(base_url="http://testserver")
    parts = {"method", "url", "headers", "params", "data", "json", "cookies"}
    prepared = requests.Request(**{name: value for name, value in given.items() if name in parts}).prepare()
    ours = {"content-length", "cookie"}  # of the test client
    headers: dict[str, Any] = {name: value for name, value in prepared.headers.items() if name.lower() not in ours}
    with ExitStack() as undone:
        for alias in connections:
            undone.enter_context(transaction.atomic(using=alias))
            undone.callback(transaction.set_rollback, True, using=alias)
        found = client.generic(
            prepared.method or "GET",
            prepared.path_url,
            prepared.body or b"",
            content_type=headers.pop("Content-Type", "application/json"),
            headers=headers,
        )
        content = found.getvalue() if found.streaming else found.content
    return schemathesis.Response(
        status_code=found.status_code,
        headers={name.lower(): [value] for name, value in found.headers.items()},
        content=content,
        request=prepared,
        elapsed=0.0,
        verify=False,
    )


def route_name(path: str) -> str:
    """Return the name of an address of the document: its ids are numbers or UUIDs."""
    names = (resolve(re.sub(r"{[^}]*}", one, path)).url_name for one in ("1", str(uuid.UUID(int=1))))
    return next((name for name in names if name and name != "nothing"), "")


@pytest.mark.parametrize("person", ["administrator", "member", "stranger", ""])
def test_no_generated_call_is_answered_by_an_error_of_the_server_or_by_what_is_not_documented(
    lab: Lab, document: dict[str, Any], person: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    client = lab.clients[person] if person else Client()
    client.raise_request_exception = False
    failed: dict[str, str] = {}
    sent = 0
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]  # the document is valid
        for mode in schemathesis.GenerationMode:

            @hypothesis.settings(
                max_examples=EXAMPLES, deadline=None, database=None, phases=[hypothesis.Phase.generate],
                suppress_health_check=list(hypothesis.HealthCheck), print_blob=False,
            )  # fmt: skip
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
            def run(case: Any, known: bool) -> None:
                nonlocal sent
                values = lab.arguments.get(route_name(case.path), [])
                if known and values:
                    case.path_parameters = dict(zip(case.path_parameters, map(str, values), strict=False))
                answer = send(client, case)
                sent += 1
                case.validate_response(answer, checks=CHECKS)

            try:
                run()
            except hypothesis.errors.Unsatisfiable:
                continue  # nothing fits, or nothing does not
            except (Exception, FailureGroup) as error:  # noqa: BLE001 - all are wanted at once
                failed.setdefault(f"{operation.method} {operation.path}", f"{type(error).__name__}: {error}")
    assert sent > 1000
    assert not failed, f"{len(failed)} operations of {sent} calls:\n" + "\n".join(
        f"{k}: {v}" for k, v in failed.items()
    )
