"""RFC 5424, read back by a parser that knows the RFC alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from telemetry.delivery.formats import BIDI_CONTROLS, SYSLOG_SEVERITIES, one_line, rfc5424_message
from tests.telemetry.delivery.readers import read_syslog

AT = datetime(2026, 3, 2, 9, 30, 1, 250, tzinfo=UTC)
TEXTS = st.text(alphabet=st.characters(codec=None), max_size=60)
HOSTILE = '"]\\ <13>1 - - [x@1 a="b"] \ud800\u2028\r\n\0é'


def test_a_message_is_to_the_letter_what_the_rfc_shows() -> None:
    made = rfc5424_message(
        at=datetime(2003, 10, 11, 22, 14, 15, 3000, tzinfo=UTC),
        severity=5,
        facility=20,
        hostname="mymachine.example.com",
        app="evntslog",
        message_id="ID47",
        data={"exampleSDID@32473": {"iut": "3", "eventSource": "Application", "eventID": "1011"}},
        text="An application event log entry...",
    )
    assert made == (
        b"<165>1 2003-10-11T22:14:15.003000Z mymachine.example.com evntslog - ID47 "
        b'[exampleSDID@32473 iut="3" eventSource="Application" eventID="1011"] '
        b"\xef\xbb\xbfAn application event log entry..."
    )


@given(
    st.tuples(TEXTS, TEXTS, TEXTS, TEXTS),
    st.dictionaries(TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3), max_size=3),
    TEXTS,
)
@example((HOSTILE, HOSTILE, HOSTILE, HOSTILE), {HOSTILE: {HOSTILE: HOSTILE}, "": {"": ""}}, HOSTILE)
def test_what_anybody_writes_is_read_back_whole(
    fields: tuple[str, str, str, str], data: dict[str, dict[str, str]], text: str
) -> None:
    host, app, process, identity = fields
    made = rfc5424_message(
        at=AT, severity="Warning", hostname=host, app=app, process=process, message_id=identity, data=data, text=text
    )
    found = read_syslog(made)
    assert (found.facility, found.severity, found.at) == (16, SYSLOG_SEVERITIES["Warning"], AT)
    assert found.text == one_line(text)
    assert found.marked == bool(text)
    values = sorted(one_line(value) for one in data.values() for value in one.values())
    assert sorted(value for one in found.data.values() for _name, value in one) == values
    assert b"\n" not in made
    assert b"\0" not in made


@given(st.text(max_size=3000), st.lists(st.text(max_size=500), max_size=8), st.integers(480, 3000))
def test_no_message_is_longer_than_it_may_be_and_each_is_whole(text: str, values: list[str], longest: int) -> None:
    data = {"falconweb@32473": {f"p{number}": value for number, value in enumerate(values)}}
    made = rfc5424_message(
        at=AT, severity=2, hostname="h", app="a", message_id="m", data=data, text=text, longest=longest
    )
    assert len(made) <= longest
    assert one_line(text).startswith(read_syslog(made).text)


def test_fields_that_are_too_long_are_cut_and_empty_ones_are_told() -> None:
    found = read_syslog(
        rfc5424_message(
            at=AT, severity=0, hostname="h" * 999, app="a" * 99, process="p" * 999, message_id="m" * 99, text=""
        )
    )
    assert [len(one) for one in (found.host, found.app, found.process, found.identity)] == [255, 48, 128, 32]
    nothing = rfc5424_message(at=AT, severity=7, hostname="", app="", message_id="", text="")
    assert nothing.endswith(b" - - - - -")


@pytest.mark.parametrize("letter", sorted(BIDI_CONTROLS))
def test_nothing_turns_the_direction_of_a_message_nor_ends_its_line(letter: str) -> None:
    said = f"port {letter}nwod\u2028si\u2029it"
    found = read_syslog(
        rfc5424_message(
            at=AT, severity=6, hostname="h", app="a", message_id="m", data={"x@1": {"subject": said}}, text=said
        )
    )
    assert found.text == "port \ufffdnwod si it"
    assert list(found.data.values()) == [[("subject", found.text)]]


def test_an_instant_of_another_zone_is_told_in_utc() -> None:
    at = datetime(2026, 3, 2, 1, 30, tzinfo=timezone(timedelta(hours=-8)))
    made = rfc5424_message(at=at, severity=6, hostname="h", app="a", message_id="m", text="x")
    assert b" 2026-03-02T09:30:00.000000Z " in made


@pytest.mark.parametrize(("severity", "facility"), [(8, 1), (-1, 1), (0, 24)])
def test_a_priority_that_is_none_is_refused(severity: int, facility: int) -> None:
    with pytest.raises(ValueError, match="severity"):
        rfc5424_message(at=AT, severity=severity, facility=facility, hostname="h", app="a", message_id="m", text="x")
