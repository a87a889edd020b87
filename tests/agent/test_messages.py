"""Signed messages: what is believed, and what is not."""

from __future__ import annotations

import json
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostwire.protocol import (
    CommandAnswer,
    DeviceHolder,
    DeviceSelector,
    DrainRequest,
    HostReport,
    PciDevice,
    ReportRequest,
    Request,
    RescanRequest,
)
from hostwire.signing import (
    MAX_BYTES,
    MAX_LIFETIME,
    ExpiredError,
    WireError,
    claimed_digest,
    decode_key,
    digest,
    new_command,
    new_key,
    open_answer,
    open_command,
    open_report,
    queue_name,
    seal_answer,
    seal_command,
    seal_report,
)

HOST, KEY = "4C4C4544-0042-3510", new_key()
COMMAND = new_command(HOST, DrainRequest(DeviceSelector("0000:41:00.0")), now=1000.0)


@given(
    st.sampled_from(
        [
            (ReportRequest(), "agent.report"),
            (DrainRequest(DeviceSelector("0000:41:00.0"), 5.0, force=True), "agent.drain"),
            (RescanRequest((DeviceSelector("a"),), 3.0), "agent.rescan"),
        ]
    )
)
def test_a_command_is_read_as_it_was_written(case: tuple[Request, str]) -> None:
    request, task = case
    command = new_command(HOST, request, now=1000.0)
    assert open_command(seal_command(command, KEY), KEY, identity=HOST, now=1001.0) == command
    assert command.task == task


@given(st.text(max_size=40), st.text(max_size=200))
def test_answers_and_reports_are_read_as_they_were_written(name: str, sentence: str) -> None:
    answer = CommandAnswer(HOST, name, "agent.drain", "removed", sentence, 1.0, 2.0)
    report = HostReport(HOST, 3, 1.0, 1000.0, "1", problems=(sentence,), devices=(PciDevice(name, "", ""),))
    assert open_answer(seal_answer(answer, KEY), KEY, identity=HOST) == answer
    assert open_report(seal_report(report, KEY), KEY, identity=HOST, now=1000.0) == report


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=127))
def test_a_message_with_one_letter_changed_is_rejected(place: int, letter: int) -> None:
    text = seal_command(COMMAND, KEY)
    place %= len(text)
    changed = text[:place] + chr(letter) + text[place + 1 :]
    if changed == text:
        assert open_command(text, KEY, identity=HOST, now=1001.0) == COMMAND
    else:
        with pytest.raises(WireError):
            open_command(changed, KEY, identity=HOST, now=1001.0)


@given(st.one_of(st.text(), st.binary(), st.none(), st.integers(), st.lists(st.text())))
def test_whatever_else_comes_is_no_message(rubbish: object) -> None:
    for read in (open_command, open_report, open_answer):
        with pytest.raises(WireError):
            read(rubbish, KEY, identity=HOST)
    with pytest.raises(WireError):
        claimed_digest(rubbish)


def test_a_message_says_whose_it_is_whatever_the_case_of_the_identity() -> None:
    text = seal_command(COMMAND, KEY)
    assert claimed_digest(text) == digest(HOST) == digest(HOST.lower())
    assert queue_name(HOST) == f"host.{digest(HOST)}"
    assert open_command(text, KEY, identity=HOST.lower(), now=1001.0).nonce == COMMAND.nonce


def test_no_message_passes_as_another_kind_or_at_another_host_or_with_another_key() -> None:
    report = HostReport(HOST, 1, 1.0, 1000.0, "1")
    for text in (seal_report(report, KEY), seal_answer(CommandAnswer(HOST, "n", "t", "done", "", 0, 0), KEY)):
        with pytest.raises(WireError, match="not signed"):
            open_command(text, KEY, identity=HOST)
    with pytest.raises(WireError, match="another host"):
        open_command(seal_command(COMMAND, KEY), KEY, identity="other", now=1001.0)
    with pytest.raises(WireError, match="not signed"):
        open_command(seal_command(COMMAND, KEY), new_key(), identity=HOST, now=1001.0)


def test_a_message_out_of_its_time_is_distinguished_from_a_false_one() -> None:
    text = seal_command(COMMAND, KEY)
    for now in (1061.0, 930.0):
        with pytest.raises(ExpiredError) as refused:
            open_command(text, KEY, identity=HOST, now=now)
        assert refused.value.message == COMMAND
    with pytest.raises(ExpiredError):
        open_report(seal_report(HostReport(HOST, 1, 1.0, 1000.0, "1"), KEY), KEY, identity=HOST, now=1100.0)


def test_no_command_is_good_for_ever_or_without_a_nonce() -> None:
    assert (
        new_command(HOST, ReportRequest(), life=1e9).expires - new_command(HOST, ReportRequest()).issued
        < MAX_LIFETIME + 5
    )
    payload = {"host": HOST, "nonce": "", "issued": 0.0, "expires": 1e18, "request": {"task": "report"}}
    for change in ({}, {"nonce": "x" * 65}, {"nonce": "x"}, {"nonce": "x", "expires": -1.0}):
        with pytest.raises(WireError):
            open_command(_signed({**payload, **change}), KEY, identity=HOST, now=1.0)


def test_numbers_and_fields_outside_of_the_shape_are_refused() -> None:
    good = {"host": HOST, "nonce": "n", "issued": 0.0, "expires": 50.0}
    for request in (
        {"task": "drain", "device": {}, "wait": -1},
        {"task": "drain", "device": {}, "wait": 1e9},
        {"task": "drain", "device": {"path": "/etc"}},
        {"task": "drain"},
        {"task": "reboot"},
        {},
    ):
        with pytest.raises(WireError, match="cannot be understood"):
            open_command(_signed({**good, "request": request}), KEY, identity=HOST, now=1.0)


def test_a_message_is_never_longer_than_may_be() -> None:
    with pytest.raises(WireError, match=str(MAX_BYTES)):
        seal_answer(CommandAnswer(HOST, "n", "t", "done", "x" * MAX_BYTES, 0, 0), KEY)
    with pytest.raises(WireError, match="are allowed"):
        open_answer("ä" * (MAX_BYTES // 2 + 1), KEY, identity=HOST)


@pytest.mark.parametrize("key", ["", "x", "A" * 20, "ä" * 44, "=" * 44, "*" * 44])
def test_a_key_is_thirty_two_bytes(key: str) -> None:
    with pytest.raises(WireError):
        decode_key(key)
    decode_key(new_key())


def _signed(payload: dict[str, object], kind: Literal["command", "report"] = "command") -> str:
    from hostwire.signing import _signature

    body = json.dumps(payload)
    return f"1.{digest(HOST)}.{_signature(kind, digest(HOST), body, KEY)}.{body}"


def test_the_start_of_a_process_may_be_unknown_to_either_side() -> None:
    """An older agent sends none, and an older site skips a field that it does not know."""
    old = {"kind": "process", "what": "/dev/nvidia0", "pid": 4711}

    def opened(**more: float) -> DeviceHolder:
        report = {"host": HOST, "number": 1, "started": 1.0, "sent": 1000.0, "version": "1"}
        text = _signed({**report, "holders": {"0000:41:00.0": [{**old, **more}]}}, "report")
        return open_report(text, KEY, identity=HOST, now=1001.0).holders["0000:41:00.0"][0]

    assert msgspec.to_builtins(opened()) == old
    assert opened(started=900, newer=1).started == 900.0
    with pytest.raises(WireError, match="cannot be understood"):
        opened(started=-1)
