"""Parsers of the formats, written from their descriptions alone: what a receiver of ours would have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

BOM = b"\xef\xbb\xbf"
HEADER = re.compile(
    rb"<(?P<pri>0|[1-9]\d{0,2})>1 (?P<at>\S+) (?P<host>[!-~]{1,255}) (?P<app>[!-~]{1,48}) (?P<process>[!-~]{1,128}) "
    rb"(?P<identity>[!-~]{1,32}) "
)
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")
NAME = re.compile(r'[^\x00-\x20="\]\x7f-\uffff]{1,32}')


@dataclass(frozen=True)
class Message:
    """A message of RFC 5424."""

    facility: int
    severity: int
    at: datetime
    host: str
    app: str
    process: str
    identity: str
    data: dict[str, list[tuple[str, str]]]
    marked: bool
    text: str


def read_syslog(message: bytes) -> Message:
    """Read a message by the ABNF of RFC 5424, section 6; AssertionError where it is none."""
    header = HEADER.match(message)
    assert header, message[:80]
    priority = int(header["pri"])
    assert priority <= 191
    stamp = header["at"].decode()
    assert STAMP.fullmatch(stamp), stamp
    data, rest = _data(message[header.end() :])
    assert rest == b"" or rest[:1] == b" ", rest[:20]
    said = rest[1:]
    marked = said.startswith(BOM)
    return Message(
        facility=priority // 8,
        severity=priority % 8,
        at=datetime.fromisoformat(stamp),
        host=header["host"].decode(),
        app=header["app"].decode(),
        process=header["process"].decode(),
        identity=header["identity"].decode(),
        data=data,
        marked=marked,
        text=said.removeprefix(BOM).decode("utf-8"),
    )


def _data(raw: bytes) -> tuple[dict[str, list[tuple[str, str]]], bytes]:
    if raw[:1] == b"-":
        return {}, raw[1:]
    found: dict[str, list[tuple[str, str]]] = {}
    at = 0
    while raw[at : at + 1] == b"[":
        at += 1
        identity, at = _name(raw, at, b" ]")
        assert identity not in found, f"{identity} comes twice"
        found[identity] = []
        while raw[at : at + 1] == b" ":
            name, at = _name(raw, at + 1, b"=")
            assert raw[at : at + 2] == b'="', raw[at : at + 20]
            value, at = _value(raw, at + 2)
            found[identity].append((name, value))
        assert raw[at : at + 1] == b"]", raw[at : at + 20]
        at += 1
    assert found
    return found, raw[at:]


def _name(raw: bytes, at: int, ends: bytes) -> tuple[str, int]:
    begin = at
    while raw[at] not in ends:
        at += 1
    name = raw[begin:at].decode("ascii")
    assert NAME.fullmatch(name), name
    return name, at


def _value(raw: bytes, at: int) -> tuple[str, int]:
    found = bytearray()
    while raw[at : at + 1] != b'"':
        assert raw[at : at + 1] not in {b"]", b""}, "a bracket that is not escaped"
        if raw[at : at + 1] == b"\\" and raw[at + 1] in b'"\\]':
            at += 1
        found.append(raw[at])
        at += 1
    return found.decode("utf-8"), at + 1


def read_cef(line: str) -> tuple[list[str], dict[str, str]]:
    """Return the seven fields of the header behind 'CEF:', and the extension."""
    assert line.startswith("CEF:")
    assert "\n" not in line
    assert "\r" not in line
    parts, at = [""], len("CEF:")
    while len(parts) < 8:
        letter = line[at]
        if letter == "\\":
            assert line[at + 1] in "\\|", line[at : at + 2]
            parts[-1] += line[at + 1]
            at += 2
            continue
        if letter == "|":
            parts.append("")
        else:
            parts[-1] += letter
        at += 1
    return parts[:7], _extension(line[at:])


def _extension(text: str) -> dict[str, str]:
    """A key is what stands between a space and an equals sign that is not escaped."""
    keys = list(re.finditer(r"(?:^| )([A-Za-z0-9]+)=", _unescaped_marked(text)))
    found = {}
    for number, key in enumerate(keys):
        end = keys[number + 1].start() if number + 1 < len(keys) else len(text)
        assert key[1] not in found
        found[key[1]] = re.sub(r"\\(.)", lambda one: {"n": "\n", "r": "\r"}.get(one[1], one[1]), text[key.end() : end])
    return found


def _unescaped_marked(text: str) -> str:
    """Return the text with what is escaped made harmless, as long as before."""
    return re.sub(r"\\.", "__", text)
