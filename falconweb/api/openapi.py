"""The OpenAPI document: descriptions of operations, their problems, and descriptions of tags."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_doc

from falconweb.api.errors import CONTENT_TYPE

MAX_SUMMARY_LENGTH = 60
METHODS = ("get", "post", "put", "patch", "delete")
TAG_DESCRIPTIONS = {
    "chassis": "Chassis as trees of what you may see, their settings and their readings.",
    "drawers": "Drawers and their modes.",
    "slots": "Slots and their devices.",
    "devices": "Devices, their attachments and their tenants.",
    "host-ports": "Host ports, their hosts and their tenants.",
    "hosts": "Hosts.",
    "ports": "Ports with their links and error counters.",
    "switches": "Switch chips.",
    "collected-logs": "Logs of BMCs, collected as files.",
    "firmware-images": "Uploaded images of firmware.",
    "managed-parts": "Parts with their firmware, location LEDs and resets.",
    "operations": "Attach, detach and move devices, and follow the progress.",
    "plans": "Desired allocations as ordered steps: drafts to review, jobs once they are applied.",
    "allocation": "Allocations as files: exported, and imported as a plan.",
    "drift": "Differences from the approved allocation: accepted, or re-applied.",
    "failure-policies": "What is done when an attached device fails.",
    "failures": "Attached devices that failed, and their replacement.",
    "history": "Attachments over time.",
    "telemetry": "Readings of any object over any range.",
    "leases": "Leases of devices: requested, decided, created, extended and returned.",
    "links": "Health of links with reasons, their error counters, and their earlier states.",
    "usage": "Leased hours by tenant, kind and month.",
    "alerts": "Open and resolved alerts, and who acknowledged them.",
    "alert-rules": "Conditions of alerts, for administrators; rules can be tested on stored readings.",
    "alert-silences": "Times without notifications of alerts, for administrators.",
    "alert-routes": "Recipients of alerts, for administrators.",
    "identity-providers": "Providers through which people sign in, and their rules, for administrators.",
    "alert-deliveries": "Delivered and waiting notifications, for administrators.",
    "me": "Your account, your tokens and your dashboards.",
    "people": "People and service accounts, for administrators.",
    "tokens": "The tokens of everybody, for administrators.",
    "events": "Events of BMCs, operations, alerts, sign-ins and the site itself.",
    "exports": "Exports of events, and their runs.",
    "approvals": "Acts that wait for a second administrator, and the policy that names them.",
    "audit": "Who changed or tried to change what, for administrators.",
    "pipeline": "Arrival of readings, and problems with it, for administrators.",
    "tenants": "Tenants and their devices, for administrators.",
    "benchmarks": "Runs of benchmarks, their records and results, and recommendations.",
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
    "Any other error: 405 and 406, 408, 413 and 415 for bodies, 429, 503 while the database or Redis does not answer, "
    "or an error of the site (500)"
)
PROBLEM_SCHEMA = {
    "type": "object",
    "description": "The body of every error (RFC 9457).",
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
        "more_problems": {"type": "boolean", "description": "With 400: whether there are more problems than listed"},
        "near": {
            "type": "array",
            "items": {"type": "string"},
            "description": "With 400 for an unknown metric: those with similar names",
        },
        "operation_id": {
            "type": "string",
            "format": "uuid",
            "description": "With 409: the open operation that conflicts",
        },
        "device_id": {"type": "integer", "description": "With `in_use`: the device that somebody uses on its host"},
        "holders": {"type": "string", "description": "With `in_use`: who uses it"},
        "affected": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"device_id": {"type": "integer"}, "sentence": {"type": "string"}},
            },
            "description": "With `in_use`: the attached devices that a reset or an update may interrupt",
        },
        "plan_id": {"type": "string", "format": "uuid", "description": "With 409: the plan that conflicts"},
        "lease_id": {"type": "integer", "description": "With 409: the lease that conflicts"},
        "found_fingerprint": {
            "type": "string",
            "description": "With 400: the fingerprint of the untrusted certificate of a BMC",
        },
        "reference": {"type": "string", "description": "With 500: the id of the error in the log"},
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
        """Return the description up to the first full stop, colon or semicolon."""
        return re.split(r"[.:;](?:\s|$)", self.get_description(), maxsplit=1)[0]


def declare_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Declare the error responses of each operation; a hook of drf-spectacular."""
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
                _declare_bounds(operations[method])
    result["tags"] = [{"name": name, "description": description} for name, description in TAG_DESCRIPTIONS.items()]
    return result


def _declare_bounds(operation: dict[str, Any]) -> None:
    """Declare that whole numbers in queries, mostly ids, are not negative (`core.api.fields.query_integer`)."""
    for one in operation.get("parameters", []):
        for schema in (one["schema"], one["schema"].get("items", {})):
            if one["in"] == "query" and schema.get("format") == "int64":
                schema.setdefault("minimum", 0)


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
