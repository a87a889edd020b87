"""The document has the bounds and forms of parameters as the API checks them."""

from __future__ import annotations

import contextlib
from typing import Any

import jsonschema
import pytest
from django.urls import reverse

from fabric.inventory.models import Chassis
from telemetry.alerts.rule_services import MAX_HOLD_SECONDS
from telemetry.events.models import EventSource
from telemetry.history.selectors import MAX_POINTS
from tests.access.lab import Lab, address
from tests.api.test_openapi import document

__all__ = ["document"]

IDS = (["0", "1", str(2**63 - 1)], ["-1", "1.5", "x"])
# The address, a parameter, values that are accepted, and some that are not.
CASES: list[tuple[str, str, list[str], list[str]]] = [
    ("devices", "limit", ["1", "100"], ["0", "-1", "x"]),
    ("devices", "offset", ["0", "5"], ["-1", "x"]),
    ("devices", "chassis_id", *IDS),
    ("devices", "search", ["a" * 200], ["a" * 201]),
    ("operations", "device_id", *IDS),
    ("runs", "host", *IDS),
    ("events", "limit", ["1", "100"], ["0", "-1", "x"]),
    ("events", "last", ["90m", "7d"], ["90", "0m", "x"]),
    ("events", "before", ["0-1"], ["x", "1"]),
    ("events", "chassis", ["1", "1,2"], ["x", "-1"]),
    ("events", "severity", ["Warning", "Warning,Critical"], ["warning", "x"]),
    ("events", "source", [",".join(EventSource.values)], ["x"]),
    ("events_pull", "after", ["0", "7"], ["-1", "x"]),
    ("usage", "until", ["2026-03"], ["2026-13", "2026", "x"]),
    ("telemetry_heat_map", "points", ["1", str(MAX_POINTS)], ["0", str(MAX_POINTS + 1), "x"]),
    ("readings", "seconds", ["0.5", "600"], ["0", "-1", "601", "x"]),
    ("alert_rule_preview", "hold_seconds", ["0", "60"], ["-1", str(MAX_HOLD_SECONDS + 1), "x"]),
]


def is_described(schema: dict[str, Any], text: str) -> bool:
    """Return whether the schema of a parameter allows a text."""
    whole = dict(schema)
    if whole.pop("exclusiveMinimum", False):  # in OpenAPI 3.0 it says how the minimum is meant
        whole["exclusiveMinimum"] = whole.pop("minimum")
    value: Any = text
    if schema["type"] in {"integer", "number"}:
        with contextlib.suppress(ValueError):
            value = float(text) if "." in text else int(text)
    return bool(jsonschema.Draft202012Validator(whole).is_valid(value))


@pytest.mark.django_db
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_a_parameter_is_described_as_it_is_checked(
    lab: Lab, document: Any, case: tuple[str, str, list[str], list[str]]
) -> None:
    name, parameter, accepted, refused = case
    Chassis.objects.update(inventory_at=None)  # never read: it has no readings, and none are missing
    slot = lab.device.slot
    assert slot is not None
    needed: dict[str, dict[str, Any]] = {
        "telemetry_heat_map": {"drawer_id": slot.drawer_id},
        "readings": {"keys": ""},
        "alert_rule_preview": {"metric": "temperature_celsius", "condition": "above", "value": "80"},
    }
    where = address(lab, f"api:{name}")
    path = where if name != "readings" else reverse("api:readings", args=[0]).replace("/0/", "/{id}/")
    found = {one["name"]: one["schema"] for one in document["paths"][path]["get"]["parameters"]}
    for text in (*accepted, *refused):
        answer = lab.clients["administrator"].get(where, {**needed.get(name, {}), parameter: text})
        assert answer.status_code == (200 if text in accepted else 400), (text, answer.content)
        assert is_described(found[parameter], text) == (text in accepted), (text, found[parameter])
