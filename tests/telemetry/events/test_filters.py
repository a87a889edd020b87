"""A filter keeps what a plain list would, whatever is asked for, and its parameters read as the same filter."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.http import QueryDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import Invalid
from telemetry.events.filters import IDS, EventFilter
from telemetry.events.models import Event
from telemetry.events.rules import message_name
from telemetry.events.selectors import events_after, events_page, list_position
from telemetry.exports.execution import run_events
from telemetry.exports.formats import EventFormatter
from telemetry.exports.models import ExportRun

pytestmark = pytest.mark.django_db

START = datetime(2026, 3, 1, tzinfo=UTC)
WORDS = ("link", "Fan", "100%", "a_b", "x", "GPU 3", "Äh", "'; --")
IDENTIFIERS = st.none() | st.integers(1, 3)
MOMENTS = st.integers(0, 12).map(lambda hours: START + timedelta(hours=hours))
ROWS = st.fixed_dictionaries(
    {
        "at": MOMENTS,
        "source": st.sampled_from(["bmc", "operation", "sign_in"]),
        "severity": st.sampled_from(["OK", "Warning", "Critical"]),
        "message_id": st.sampled_from(["Fabric.1.0.PortDown", "Fabric.1.2.PortDown", "FalconWeb.1.0.SignedIn", ""]),
        "text": st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join),
        "person_name": st.sampled_from(["", "ada", "Bob"]),
        "chassis_name": st.sampled_from(["", "falcon-1"]),
        **{f"{name}_id": IDENTIFIERS for name in IDS},
    }
)
SOME = st.lists(st.integers(1, 4), max_size=2, unique=True)


def has_length(asked: dict[str, Any]) -> bool:
    """Tell whether an end, where there is one, is later than the begin: others are refused."""
    return not {"since", "until"} <= asked.keys() or asked["since"] < asked["until"]


FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "q": st.lists(st.sampled_from([*WORDS, "LINK", "falcon", "port"]), min_size=1, max_size=2).map(" ".join),
        "since": MOMENTS.map(datetime.isoformat),
        "until": MOMENTS.map(datetime.isoformat),
        "last": st.sampled_from(["90m", "3h", "1d"]),
        "source": st.lists(st.sampled_from(["bmc", "alert", "sign_in"]), max_size=2, unique=True),
        "severity": st.lists(st.sampled_from(["OK", "Warning", "Critical"]), max_size=2, unique=True),
        "message": st.lists(st.sampled_from(["Fabric.PortDown", "FalconWeb.1.0.SignedIn"]), max_size=2, unique=True),
        "person": st.sampled_from(["ADA", "bob", "nobody"]),
        **dict.fromkeys(IDS, SOME),
    },
).filter(has_length)


def fits(row: dict[str, Any], asked: dict[str, Any], now: datetime) -> bool:
    """Tell whether a row fits, said as plainly as can be."""
    searched = " | ".join([row["text"], row["chassis_name"], row["message_id"], row["person_name"]])
    begins = [datetime.fromisoformat(asked["since"])] if "since" in asked else []
    if "last" in asked:
        begins.append(
            now - {"90m": timedelta(minutes=90), "3h": timedelta(hours=3), "1d": timedelta(days=1)}[asked["last"]]
        )
    return all(
        (
            all(word.lower() in searched.lower() for word in asked.get("q", "").split()),
            all(row["at"] >= begin for begin in begins),
            "until" not in asked or row["at"] < datetime.fromisoformat(asked["until"]),
            all(not asked.get(name) or row[name] in asked[name] for name in ("source", "severity")),
            all(not asked.get(name) or row[f"{name}_id"] in asked[name] for name in IDS),
            not asked.get("message")
            or message_name(row["message_id"]) in [message_name(one) for one in asked["message"]],
            "person" not in asked or row["person_name"].lower() == asked["person"].lower(),
        )
    )


@given(st.lists(ROWS, max_size=25), FILTERS, st.integers(1, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_filter_keeps_what_a_plain_list_would_page_by_page(
    rows: list[dict[str, Any]], asked: dict[str, Any], limit: int
) -> None:
    Event.objects.all().delete()
    Event.objects.bulk_create(Event(message=message_name(row["message_id"]), **row) for row in rows)
    now = START + timedelta(hours=12)
    stored = list(Event.objects.order_by("pk"))
    wanted = EventFilter.of(asked)
    expected = [one for one, row in zip(stored, rows, strict=True) if fits(row, asked, now)]
    newest_first = sorted(expected, key=lambda one: (one.at, one.pk), reverse=True)
    found = wanted.apply(Event.objects.all(), now=now)
    assert list(found.order_by("-at", "-pk")) == newest_first

    older: list[Event] = []
    place = ""
    for _ in range(len(rows) + 1):
        page = events_page(found, before=place, limit=limit)
        older += page.rows
        if not (place := page.older):
            break
    assert older == newest_first
    if newest_first:
        newer: list[Event] = []
        place = list_position(newest_first[-1])
        while True:
            page = events_page(found, after=place, limit=limit)
            newer = [*page.rows, *newer]
            if not (place := page.newer):
                break
        assert newer == newest_first[:-1]
    pulled = list(itertools.chain.from_iterable(events_after(found, 0, at_once=limit)))
    assert pulled == expected


@given(FILTERS)
def test_the_parameters_of_a_filter_read_as_the_same_filter(asked: dict[str, Any]) -> None:
    wanted = EventFilter.of(asked)
    assert EventFilter.of(QueryDict(urlencode(wanted.parameters()))) == wanted
    assert EventFilter.of({}) == EventFilter()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("since", "yesterday"), ("until", "9999-12-31T23:59:59-23:00"), ("last", "0h"), ("last", "1y"), ("last", "-3h"),
        ("source", "bmc,moon"), ("severity", "bad"), ("chassis", "x"), ("device", "-1"),
        ("port", "99999999999999999999"),
        ("host", "²"), ("q", "x" * 201), ("drawer", ",".join(map(str, range(60)))), ("since", "99999999999999"),
    ],
)  # fmt: skip
def test_what_cannot_be_filtered_by_is_refused_with_its_name(name: str, text: str) -> None:
    with pytest.raises(Invalid) as caught:
        EventFilter.of({name: text})
    assert list(caught.value.details["errors"]) == [name]


def test_an_end_that_is_not_later_than_the_begin_is_refused() -> None:
    for until in (START, START - timedelta(microseconds=1)):
        with pytest.raises(Invalid) as caught:
            EventFilter.of({"since": START.isoformat(), "until": until.isoformat()})
        assert list(caught.value.details["errors"]) == ["until"]
    assert EventFilter.of({"since": START.isoformat(), "until": (START + timedelta(microseconds=1)).isoformat()})


def test_one_that_was_kept_before_such_were_refused_finds_nothing() -> None:
    Event.objects.create(at=START, source="bmc", severity="OK", text="x")
    Event.objects.create(at=START - timedelta(minutes=1), source="bmc", severity="OK", text="x")
    kept = {"since": [START.isoformat()], "until": [(START - timedelta(minutes=2)).isoformat()]}
    wanted = EventFilter.of(kept, is_kept=True)
    assert not wanted.apply(Event.objects.all()).exists()
    run = ExportRun(snapshot={"filter": kept}, created_at=START)
    assert not run_events(run, EventFormatter("csv", ("at",))).exists()
    with pytest.raises(Invalid):
        EventFilter.of({**kept, "source": ["nonsense"]}, is_kept=True)


@pytest.mark.parametrize("place", ["x", "1", "-", "1-x", "1-99999999999999999999", "-99999999999999999-1", "1-1-1"])
def test_what_is_no_place_in_the_list_is_refused(place: str) -> None:
    with pytest.raises(Invalid):
        events_page(Event.objects.all(), before=place)
