"""The OpenAPI document: words for every operation, the problems that each can answer, and what each tag is about."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_doc

from falconweb.api.errors import CONTENT_TYPE

MAX_SUMMARY_LENGTH = 60
METHODS = ("get", "post", "put", "patch", "delete")
TAG_DESCRIPTIONS = {
    "chassis": "Chassis as trees of all that you may see, their settings, and what is measured of them.",
    "drawers": "Drawers and their modes.",
    "slots": "Slots and what is in them.",
    "devices": "Devices, where they are attached, and whose they are.",
    "host-ports": "Host ports, which host is cabled to them, and whose they are.",
    "hosts": "Hosts.",
    "ports": "Ports with their links and error counters.",
    "switches": "Switch chips.",
    "operations": "Attach, detach and move devices, and see how that goes.",
    "plans": "Wanted allocations as ordered steps: drafts to look at, jobs once they are applied.",
    "allocation": "Who is attached where, as files: exported, and imported by way of a plan.",
    "drift": "What is not as it was approved: accepted, or made again as it was.",
    "history": "Who held which slot, when.",
    "telemetry": "What was measured, of anything, over any range.",
    "leases": "Who holds what from when to when: asked for, decided, given, extended and returned.",
    "links": "How healthy the links are and why, their error counters, and the states that they were in.",
    "usage": "Hours held, by tenant, kind and month.",
    "alerts": "What rings and rang, and who took notice of it.",
    "alert-rules": "What rings when, for administrators; rules are tried on what is stored before they are saved.",
    "alert-silences": "Alerts that notify nobody for a while, for administrators.",
    "alert-routes": "Who is told of alerts, and how, for administrators.",
    "alert-deliveries": "What was delivered, and what waits, for administrators.",
    "me": "Yourself, your tokens and your dashboards.",
    "people": "People, for administrators.",
    "events": "What happened: of BMCs, operations, alerts, sign-ins and the site itself.",
    "exports": "Events that leave the site: what, how, whereto and when; and each time that they did.",
    "audit": "Who changed or tried to change what, for administrators.",
    "pipeline": "How readings come in, and what is wrong with that, for administrators.",
    "tenants": "Tenants and what they hold, for administrators.",
    "benchmarks": "Runs of benchmarks: what they recorded, what they come to, and what follows from them.",
}
STATUS_DESCRIPTIONS = {
    "400": "Fields, parameters or JSON are wrong; `errors` says which",
    "401": "There is no token and no session, or the token is unknown, expired or revoked",
    "403": "You may not do this, or the token only reads",
    "404": "There is no such thing, or you may not see it",
    "409": "Somebody else, or the hardware, changed what the request was based on",
    "422": "The Idempotency-Key came with another request before",
    "503": "A part of the site does not answer; try again later",
}
OTHER_PROBLEMS = (
    "Any other error: 405 and 406, 413 and 415 for bodies, 429, 503 while the database does not answer, or an error of "
    "the site (500)"
)
PROBLEM_SCHEMA = {
    "type": "object",
    "description": "What every error is answered with (RFC 9457).",
    "properties": {
        "type": {"type": "string", "format": "uri-reference", "enum": ["about:blank"]},
        "title": {"type": "string", "description": "The name of the status"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string", "description": "A sentence for people"},
        "code": {
            "type": "string",
            "description": "A word for programs, such as invalid, not_authenticated, forbidden, not_found, conflict, "
            "rule, key_reused, unavailable or internal",
        },
        "errors": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "A sentence for each wrong field or parameter; `device_ids.0` is the first of a list",
        },
        "problems": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "line": {"type": "integer"},
                    "column": {"type": "integer"},
                    "sentence": {"type": "string"},
                },
            },
            "description": "With 400 for an allocation file: each problem with its place in the file",
        },
        "more_problems": {"type": "boolean", "description": "With 400: whether more is wrong than `problems` says"},
        "near": {
            "type": "array",
            "items": {"type": "string"},
            "description": "With 400 for a metric that nothing knows: those that are written much alike",
        },
        "operation_id": {
            "type": "string",
            "format": "uuid",
            "description": "With 409: the operation that has not ended and stands in the way",
        },
        "device_id": {"type": "integer", "description": "With `in_use`: the device that somebody uses on its host"},
        "holders": {"type": "string", "description": "With `in_use`: who uses it"},
        "plan_id": {"type": "string", "format": "uuid", "description": "With 409: the plan that stands in the way"},
        "lease_id": {"type": "integer", "description": "With 409: the lease that stands in the way"},
        "found_fingerprint": {
            "type": "string",
            "description": "With 400: the certificate that a BMC showed and that nothing vouches for",
        },
        "reference": {"type": "string", "description": "With 500: the id under which the log tells more"},
    },
    "required": ["type", "title", "status", "detail", "code"],
    "example": {
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "detail": "GPU 3 is taken: carol asked at 10:02:11 UTC to 'Detach GPU 3 (Slot 3) from node-1 (H1)', which has "
        "not ended.",
        "code": "conflict",
        "operation_id": "6e1c9f0e-61a5-4d4b-9c62-6a1f7a1d5a3c",
    },
}


class DocumentedAutoSchema(AutoSchema):
    """Gives every operation a summary: the first words of the docstring of its method, or of the view that inherits it.

    A class of views such as 'List drawers.' and 'List slots.' shares one method; a list has the framework's.
    """

    def get_description(self) -> str:  # type: ignore[override]
        """Return the docstring."""
        name = getattr(self.view, "action", self.method.lower())
        method = getattr(type(self.view), name)
        own = get_doc(method) if name in vars(type(self.view)) else ""
        return str(own or get_doc(type(self.view)))

    def get_summary(self) -> str:
        """Return what stands before the first full stop, colon or semicolon."""
        return re.split(r"[.:;](?:\s|$)", self.get_description(), maxsplit=1)[0]


def declare_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Declare what each operation can answer besides success; a hook of drf-spectacular."""
    components = result.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = PROBLEM_SCHEMA
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    components["responses"] = {
        f"Problem{status}": {"description": why, "content": content} for status, why in STATUS_DESCRIPTIONS.items()
    } | {"OtherProblem": {"description": OTHER_PROBLEMS, "content": content}}
    for path, operations in result["paths"].items():
        for method in METHODS:
            if method in operations:
                _declare_responses(operations[method], content, has_id="{" in path)
    result["tags"] = [{"name": name, "description": description} for name, description in TAG_DESCRIPTIONS.items()]
    return result


def _declare_responses(operation: dict[str, Any], content: dict[str, Any], *, has_id: bool) -> None:
    answers = operation["responses"]
    parameters = [one for one in operation.get("parameters", []) if one["in"] != "path"]
    expected = {"401", "403"}
    if parameters or "requestBody" in operation:
        expected.add("400")
    if has_id:
        expected.add("404")
    if any(one["name"] == "Idempotency-Key" for one in parameters):
        expected.add("422")
    for status in expected:
        answers.setdefault(status, {"$ref": f"#/components/responses/Problem{status}"})
    for status, answer in answers.items():
        if status >= "400" and "$ref" not in answer:
            answer["content"] = content
    answers["default"] = {"$ref": "#/components/responses/OtherProblem"}
    operation["responses"] = dict(sorted(answers.items()))
