"""What a BMC's answer says: its JSON, its ETag, and the sentence of its extended error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from fabric.bmc.errors import Malformed

LONGEST_SENTENCE = 500


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP answer with a JSON object as its body ({} where it had none).

    `digest` is that of the body's bytes, the same in this process for the same bytes.
    """

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]
    etag: str = ""
    digest: int = 0


def json_object(raw: bytes, *, where: str) -> dict[str, Any]:
    """Return the JSON object in `raw`, {} for an empty body; raises Malformed, which names `where`."""
    if not raw.strip():
        return {}
    try:
        decoded = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"{where} answered with something that is no JSON.") from error
    if not isinstance(decoded, dict):
        raise Malformed(f"{where} answered with JSON that is no object.")
    return decoded


def etag_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return the ETag of the header, else the one inside the body, else ''."""
    header = headers.get("ETag", "")
    inside = body.get("@odata.etag")
    return header or (inside if isinstance(inside, str) else "")


def error_sentence(body: Mapping[str, Any]) -> str:
    """Return what an error body says to people (Base extended error), on one line and of bounded length."""
    error = body.get("error")
    source = error if isinstance(error, dict) else body
    entries = source.get("@Message.ExtendedInfo")
    messages = (
        [entry.get("Message") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )
    texts = [message for message in messages if isinstance(message, str) and message.strip()]
    if not texts and isinstance(source.get("message"), str):
        texts = [source["message"]]
    return one_line(" ".join(dict.fromkeys(texts)))


def one_line(text: str) -> str:
    """Return text of a BMC without control characters and cut to a readable length."""
    flat = re.sub(r"[\x00-\x20\x7f-\x9f]+", " ", text).strip()
    return flat if len(flat) <= LONGEST_SENTENCE else flat[: LONGEST_SENTENCE - 1] + "…"
