"""What docs/exports.md shows is what happens."""

from __future__ import annotations

import textwrap
from datetime import UTC, datetime
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from falconweb.config import BASE_DIR, Config
from telemetry.delivery.senders import send_webhook
from telemetry.events.filters import FILTERS
from telemetry.events.models import Event
from telemetry.exports.formats import COLUMNS, DEFAULT_COLUMNS, EventFormatter
from tests.telemetry.delivery.sinks import HttpSink

TEXT = (BASE_DIR / "docs" / "exports.md").read_text()
SHOWN = Event(
    id=4711, at=datetime(2026, 3, 2, 9, 30, 1, 250_000, tzinfo=UTC), source="bmc", severity="Warning",
    message_id="Fabric.1.0.LinkDowngraded", message="Fabric.LinkDowngraded",
    text="The link of slot 3 came up at x8 instead of x16.", chassis_id=1, chassis_name="falcon-1",
    subject_name="GPU 3", tenant_name="Vision group", link="/devices/7/",
)  # fmt: skip


@pytest.mark.parametrize("format_", ["csv", "jsonl", "syslog", "cef"])
def test_an_event_looks_as_the_documentation_shows_it(settings: Settings, format_: str) -> None:
    settings.CONFIG = Config(https=True, allowed_hosts=("falcon.example.org",))
    shape = EventFormatter(format_, DEFAULT_COLUMNS)
    for line in filter(None, [shape.heading, *shape.lines([SHOWN])]):
        assert f"\n    {line.decode().rstrip().replace(chr(0xFEFF), '')}\n" in TEXT


def test_the_receiver_of_the_documentation_knows_what_is_ours(webhook: HttpSink) -> None:
    begin = TEXT.index("    import base64")
    recipe = textwrap.dedent(TEXT[begin : TEXT.index("\nRedirects are not")])
    names: dict[str, Any] = {}
    exec(recipe, names)  # noqa: S102 - our own documentation
    for secret in ("a long random text", "whsec_c2VjcmV0"):
        send_webhook(url=webhook.url, body=b"{}\n", content_type="application/jsonl", secret=secret)
        got = webhook.got[-1]
        assert names["is_ours"](secret, got.headers, got.body)
        assert not names["is_ours"](secret, got.headers, b"{}")
        assert not names["is_ours"]("another", got.headers, got.body)


def test_every_column_and_every_member_of_a_filter_is_told() -> None:
    usual = TEXT[TEXT.index("    id,at") :].splitlines()[0].strip().split(",")
    assert set(usual) | {name for name in COLUMNS if f"`{name}`" in TEXT} == set(COLUMNS)
    assert all(f"`{name}`" in TEXT for name in FILTERS)
