"""The recipe of the chain, against its own description and against tampering."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.audit import chain

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def log(length: int) -> list[dict[str, Any]]:
    """Return a chain of so many entries."""
    records: list[dict[str, Any]] = []
    for number in range(1, length + 1):
        record = {"sequence": number, "what": f"thing {number}", "after": {"b": 1, "a": None}}
        record["previous"] = records[-1]["digest"] if records else chain.GENESIS_DIGEST
        records.append(record | {"digest": chain.digest_of(record)})
    return records


def found(records: list[dict[str, Any]], **more: Any) -> list[str]:
    return [one.sentence for one in chain.chain_breaks(records, **more)]


def test_the_canonical_form_is_that_of_rfc_8785() -> None:
    # Members of the RFC's example of sorting, and its example of what is escaped.
    value = {"€": "Euro", "\r": "CR", "\ufb33": "Hebrew", "1": "One", "😀": "Smile", "\x80": "Control", "ö": "O"}
    names = list(json.loads(chain.canonical(value)))
    assert names == ["\r", "1", "\x80", "ö", "€", "😀", "\ufb33"]
    assert chain.canonical({"s": '€$\x0f\nA\'B"\\\\"/'}) == '{"s":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'.encode()


def test_a_third_party_needs_but_the_standard_library() -> None:
    for line in map(json.dumps, log(3)):
        record = json.loads(line)
        digest = record.pop("digest")
        text = json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        assert hashlib.sha256(text.encode()).hexdigest() == digest


def test_a_whole_chain_has_no_breaks() -> None:
    assert found(log(5)) == []
    assert found(log(5)[2:], first=3, previous=log(2)[-1]["digest"]) == []
    assert found([log(5)[0], *log(5)[3:]], gaps=True) == []


def test_each_kind_of_tampering_is_named_with_the_first_entry() -> None:
    changed = log(5)
    changed[2]["what"] = "another thing"
    assert found(changed) == ["Entry 3 was changed: its content does not fit its digest."]
    replaced = log(5)
    replaced[2]["what"] = "another thing"
    replaced[2]["digest"] = chain.digest_of(replaced[2])
    assert found(replaced) == ["Entry 4 does not follow the one before it: one of the two was replaced."]
    assert found([*log(5)[:1], *log(5)[2:]]) == ["Entry 2 is missing."]
    assert found([*log(5)[:1], *log(5)[3:]]) == ["Entries 2 to 3 are missing."]
    one, two, three, *_ = log(5)
    assert found([one, three, two])[0] == "Entry 2 is missing."
    assert "out of order" in found([one, three, two])[1]
    assert found(log(5)[1:])[0] == "Entry 1 is missing."


@given(VALUES)
def test_whatever_is_kept_is_plain_bounded_and_stays_itself(value: Any) -> None:
    kept = chain.clean_values({"value": value})
    text = chain.canonical(kept)
    assert len(text) <= chain.MAX_VALUES_BYTES
    assert chain.clean_values(kept) == kept
    # What a database gives back has the same digest.
    assert chain.canonical(json.loads(text)) == text
    assert b"\0" not in text
    assert b"\\u0000" not in text


@pytest.mark.parametrize(
    "name", ["password", "new_password", "Passwort-passwd", "csrfmiddlewaretoken", "token", "secret_key", "api_key",
             "credentials", "Authorization", "Set-Cookie", "sessionid", "private_key", "digest"],
)  # fmt: skip
def test_members_named_like_secrets_are_not_kept(name: str) -> None:
    kept = chain.clean_values({name: "tell nobody", "inside": [{name: ["tell nobody"]}]})
    assert "tell nobody" not in json.dumps(kept)


def test_whether_there_is_a_secret_may_be_told() -> None:
    assert chain.clean_values({"password kept": True, "token": None}) == {"password kept": True, "token": None}


@pytest.mark.parametrize(
    "text",
    ["fw_abcdefghijklmnopqrstuvwxyz", "https://root:hunter2hunter2@10.0.0.5/", "Bearer hunter2hunter2",
     "-----BEGIN RSA PRIVATE KEY-----\nhunter2hunter2\n-----END RSA PRIVATE KEY-----"],
)  # fmt: skip
def test_texts_lose_what_looks_like_a_secret(text: str) -> None:
    kept = chain.clean_text(f"before {text}")
    assert kept.startswith("before ")
    assert "hunter2" not in kept
    assert "abcdefghij" not in kept


def test_what_is_large_is_cut_and_says_so() -> None:
    assert chain.clean_text("x" * 5000, 100) == "x" * 99 + "…"
    many = chain.clean_values({"all": list(range(5000))})
    assert many is not None
    assert many["all"][-1] == "and 4900 more"
    huge = chain.clean_values({str(number): "x" * 1000 for number in range(90)})
    assert huge is not None
    assert list(huge) == ["(too large to keep)"]
    deep: Any = "bottom"
    for _ in range(50):
        deep = [deep]
    assert len(chain.canonical(chain.clean_values({"deep": deep}))) < 2000
