"""Execution traces of Chakra (MLCommons): what one device did, read from its protobuf stream or its JSON.

A file is bounded in bytes, nodes and dependencies, and refused with a sentence where it is malformed, where a node
depends on one that is not there, and where nodes wait for each other in a circle.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from core.language import _

MAX_TRACE_BYTES: Final = 32 * 2**20
MAX_NODES: Final = 100_000
MAX_DEPENDENCIES: Final = 1_000_000
MAX_SECONDS: Final = 86_400.0  # of a node
MAX_MOVED_BYTES: Final = 1e15  # of a node

NodeKind = Literal["none", "compute", "host", "collective", "point", "load", "store"]
# NodeType of the schema. Others, such as metadata, take no time.
KINDS: Final[dict[int, NodeKind]] = {2: "load", 3: "store", 4: "compute", 5: "point", 6: "point", 7: "collective"}
TYPE_NAMES: Final = {
    "MEM_LOAD_NODE": 2, "MEM_STORE_NODE": 3, "COMP_NODE": 4, "COMM_SEND_NODE": 5, "COMM_RECV_NODE": 6,
    "COMM_COLL_NODE": 7,
}  # fmt: skip
COLLECTIVES: Final = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all", "reduce_scatter",
    "reduce_scatter", "barrier",
)  # fmt: skip


JSON_SIGNS: Final = re.compile(rb'"(?:ctrl|data)_?[dD]eps"|"(?:COMP|COMM_COLL|COMM_SEND|COMM_RECV|MEM_LOAD)_NODE"')
TEXT_BYTES: Final = re.compile(rb"[^\x00-\x08\x0e-\x1a\x1c-\x1f]*")


class TraceError(ValueError):
    """A trace was refused; `sentence` says why."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node: its kind, seconds that it took, bytes that it moved, and the nodes (places in the trace) before it.

    `collective` is one of COLLECTIVES, for collectives alone; `size` is 0 where the file names none.
    """

    kind: NodeKind
    seconds: float
    size: float
    before: tuple[int, ...]
    collective: str = ""


@dataclass(frozen=True)
class Trace:
    """The nodes of one device, in the order in which they began."""

    nodes: tuple[TraceNode, ...]

    @property
    def collective_bytes(self) -> dict[str, float]:
        """The bytes of each kind of collective."""
        found: Counter[str] = Counter()
        for one in self.nodes:
            if one.collective:
                found[one.collective] += one.size  # type: ignore[assignment]
        return dict(found)

    @property
    def counts(self) -> dict[str, int]:
        """The number of nodes of each kind."""
        return dict(Counter(one.kind for one in self.nodes))

    @property
    def compute_seconds(self) -> float:
        """The seconds of all kernels."""
        return sum(one.seconds for one in self.nodes if one.kind == "compute")


@dataclass(frozen=True, slots=True)
class _RawNode:
    number: int
    kind: int
    began: int
    micros: int
    before: tuple[int, ...]
    attributes: Mapping[str, Any]


def read_trace(content: bytes) -> Trace:
    """Return a trace. Raises TraceError."""
    if len(content) > MAX_TRACE_BYTES:
        raise TraceError(_("The trace is larger than {size} MiB.", size=MAX_TRACE_BYTES // 2**20))
    is_json = content.lstrip()[:1] in (b"{", b"[")
    raw: list[_RawNode] = []
    dependencies = 0
    for one in _json_nodes(content) if is_json else _binary_nodes(content):
        raw.append(one)
        dependencies += len(one.before)
        if len(raw) > MAX_NODES or dependencies > MAX_DEPENDENCIES:
            raise TraceError(
                _(
                    "The trace has more than {nodes:,} nodes or {dependencies:,} dependencies: cut it to a few steps.",
                    nodes=MAX_NODES,
                    dependencies=MAX_DEPENDENCIES,
                )
            )
    if not raw:
        raise TraceError(_("The trace has no nodes."))
    return _trace_of(raw)


def is_trace(head: bytes) -> bool:
    """Whether a file begins like a trace: its JSON names kinds of nodes, or its first message begins with a field."""
    if head.lstrip()[:1] in (b"{", b"["):
        return JSON_SIGNS.search(head) is not None
    head = head.removeprefix(b"\x00")  # empty metadata
    try:
        size, begin = _varint(head, 0, min(len(head), 10))
    except TraceError:
        return False
    # The first field of Node, or of its metadata: no text has these bytes behind any that could be a length.
    return size > 0 and head[begin : begin + 1] in (b"\x08", b"\x0a", b"\x12") and TEXT_BYTES.fullmatch(head) is None


def _trace_of(raw: list[_RawNode]) -> Trace:
    raw.sort(key=lambda one: (one.began, one.number))
    places = {one.number: place for place, one in enumerate(raw)}
    if len(places) < len(raw):
        (number, _count), *_rest = Counter(one.number for one in raw).most_common(1)
        raise TraceError(_("Node {number} is there twice.", number=number))
    for one in raw:
        if missing := next((number for number in one.before if number not in places), None):
            raise TraceError(
                _("Node {number} depends on node {other}, which is not there.", number=one.number, other=missing)
            )
    nodes = tuple(_node_of(one, tuple(places[number] for number in dict.fromkeys(one.before))) for one in raw)
    _refuse_circles(nodes, raw)
    return Trace(nodes=nodes)


def _node_of(raw: _RawNode, before: tuple[int, ...]) -> TraceNode:
    kind = KINDS.get(raw.kind, "none")
    if kind == "compute" and raw.attributes.get("is_cpu_op") in (True, 1):
        kind = "host"
    seconds = raw.micros / 1e6
    size = raw.attributes.get("comm_size" if kind in ("collective", "point") else "tensor_size", 0)
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 <= size <= MAX_MOVED_BYTES:
        raise TraceError(_("Node {number} moves an impossible number of bytes.", number=raw.number))
    if not 0 <= seconds <= MAX_SECONDS:
        raise TraceError(_("Node {number} takes more than a day, or less than nothing.", number=raw.number))
    moves = kind not in ("none", "compute", "host")
    collective = _collective_name(raw) if kind == "collective" else ""
    return TraceNode(kind, seconds if kind != "none" else 0.0, float(size) if moves else 0.0, before, collective)


def _collective_name(raw: _RawNode) -> str:
    named = raw.attributes.get("comm_type", 0)
    if isinstance(named, str):
        word = named.lower().removesuffix("_block")
        if word in COLLECTIVES:
            return word
        named = int(named) if named.isascii() and named.isdecimal() and len(named) < 4 else -1
    if isinstance(named, int) and not isinstance(named, bool) and 0 <= named < len(COLLECTIVES):
        return COLLECTIVES[named]
    raise TraceError(_("Node {number} is a collective of an unknown kind.", number=raw.number))


def dependents(nodes: Sequence[TraceNode]) -> list[list[int]]:
    """Return, for each node, those that depend on it."""
    after: list[list[int]] = [[] for _node in nodes]
    for place, one in enumerate(nodes):
        for before in one.before:
            after[before].append(place)
    return after


def _refuse_circles(nodes: Sequence[TraceNode], raw: Sequence[_RawNode]) -> None:
    left, after = [len(one.before) for one in nodes], dependents(nodes)
    ready = [place for place, count in enumerate(left) if not count]
    done = 0
    while ready:
        done += 1
        for place in after[ready.pop()]:
            left[place] -= 1
            if not left[place]:
                ready.append(place)
    if done < len(nodes):
        number = next(raw[place].number for place, count in enumerate(left) if count)
        raise TraceError(_("Nodes depend on each other in a circle; node {number} is behind it.", number=number))


# --- JSON, as the tools of Chakra print it: one object after the other, or a list of them


def _json_nodes(content: bytes) -> Iterator[_RawNode]:
    try:
        text = content.decode()
        for one in _json_objects(text):
            if "id" in one or "type" in one:
                yield _json_node(one)
    except UnicodeDecodeError:
        raise TraceError(_("The trace is not UTF-8.")) from None
    except RecursionError:
        raise TraceError(_("The trace nests too deeply.")) from None
    except json.JSONDecodeError as error:
        sentence = _("Line {line}, column {column} is no JSON: {message}.", line=error.lineno, column=error.colno,
                     message=error.msg)  # fmt: skip
        raise TraceError(sentence) from None
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(_("A node of the trace has a value of another type than the schema.")) from None


def _json_objects(text: str) -> Iterator[Mapping[str, Any]]:
    decoder, place = json.JSONDecoder(), 0
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        if place == len(text):
            return
        found, place = decoder.raw_decode(text, place)
        if isinstance(found, dict) and isinstance(found.get("nodes"), list):
            found = found["nodes"]
        for one in found if isinstance(found, list) else [found]:
            if not isinstance(one, dict):
                raise TraceError(_("A node of the trace is no object."))
            yield one


def _json_node(plain: Mapping[str, Any]) -> _RawNode:
    def value(name: str, default: Any = 0) -> Any:
        head, *rest = name.split("_")
        return plain.get(name, plain.get(head + "".join(word.title() for word in rest), default))

    kind = value("type", "")
    attributes: dict[str, Any] = {}
    for one in value("attr", []):
        attributes[str(one.get("name"))] = 0
        for key, found in one.items():
            if key not in ("name", "doc_string", "docString"):
                attributes[str(one.get("name"))] = _number(found)
    before = (*value("ctrl_deps", ()), *value("data_deps", ()))
    return _RawNode(
        number=int(value("id")),
        kind=TYPE_NAMES.get(kind, 0) if isinstance(kind, str) else int(kind),
        began=int(value("start_time_micros")),
        micros=int(value("duration_micros")),
        before=tuple(int(one) for one in before),
        attributes=attributes,
    )


def _number(value: Any) -> Any:
    """Return what JSON has as a text because it is an integer of 64 bits."""
    if isinstance(value, str) and value.removeprefix("-").isascii() and value.removeprefix("-").isdecimal():
        return int(value) if len(value) <= 20 else -1
    return value


# --- Protobuf: each message behind its length, first the metadata, then nodes

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# Fields of Node, and the values of AttributeProto by how they are written.
ID, TYPE, CONTROL, DATA, BEGAN, TOOK, ATTRIBUTE = 1, 3, 4, 5, 6, 7, 10
NAME, TEXT = 1, 29
ZIGZAG: Final = (15, 17)
FORMATS: Final = {3: "<d", 5: "<f", 19: "<I", 21: "<Q", 23: "<i", 25: "<q"}


def _binary_nodes(content: bytes) -> Iterator[_RawNode]:
    place, is_first = 0, True
    while place < len(content):
        size, begin = _varint(content, place, len(content))
        place = begin + size
        if place > len(content):
            raise TraceError(
                _("The trace ends within a message, at byte {place}: it is cut off, or no trace.", place=begin)
            )
        node = _binary_node(content, begin, place)
        # Metadata has no type, and a version in the place of a node's number.
        if node is not None and (node.kind or not is_first):
            yield node
        is_first = False


def _binary_node(content: bytes, begin: int, end: int) -> _RawNode | None:
    """Return a node; None for a message whose first field is a text."""
    values = dict.fromkeys((ID, TYPE, BEGAN, TOOK), 0)
    before: list[int] = []
    attributes: dict[str, Any] = {}
    for field, form, value in _fields(content, begin, end):
        if field == ID and form == BYTES:
            return None
        if field in values and form == VARINT:
            values[field] = value
        elif field in (CONTROL, DATA) and form in (VARINT, BYTES):
            before += [value] if form == VARINT else _packed(content, *value)
        elif field == ATTRIBUTE and form == BYTES:
            name, found = _attribute(content, *value)
            attributes[name] = found
    return _RawNode(values[ID], values[TYPE], values[BEGAN], values[TOOK], tuple(before), attributes)


def _fields(content: bytes, begin: int, end: int) -> Iterator[tuple[int, int, Any]]:
    """Yield the fields of a message: number, wire type, and an integer, or the begin and end of bytes."""
    while begin < end:
        tag, begin = _varint(content, begin, end)
        field, form = tag >> 3, tag & 7
        if form == VARINT:
            value, begin = _varint(content, begin, end)
            yield field, form, value
            continue
        if form == BYTES:
            size, begin = _varint(content, begin, end)
        elif form in (FIXED64, FIXED32):
            size = 8 if form == FIXED64 else 4
        else:
            raise TraceError(_("Byte {place} is no field of a message: this is no trace.", place=begin))
        if begin + size > end:
            raise TraceError(_("A field at byte {place} is longer than its message.", place=begin))
        yield field, form, (begin, begin + size)
        begin += size


def _varint(content: bytes, place: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while place < end and shift < 70:
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), place
        shift += 7
    raise TraceError(_("A number at byte {place} does not end: this is no trace.", place=place))


def _packed(content: bytes, begin: int, end: int) -> list[int]:
    found = []
    while begin < end:
        value, begin = _varint(content, begin, end)
        found.append(value)
        if len(found) > MAX_DEPENDENCIES:
            break  # the reader refuses them together
    return found


def _attribute(content: bytes, begin: int, end: int) -> tuple[str, Any]:
    name: str = ""
    found: Any = 0  # which writers may leave out
    for field, form, value in _fields(content, begin, end):
        if form == VARINT:
            signed = value - 2**64 if value >= 2**63 else value
            found = (value >> 1) ^ -(value & 1) if field in ZIGZAG else signed
        elif field in (NAME, TEXT) and form == BYTES:
            text = content[value[0] : min(value[1], value[0] + 100)].decode(errors="replace")
            name, found = (text, found) if field == NAME else (name, text)
        elif field in FORMATS and value[1] - value[0] == struct.calcsize(FORMATS[field]):
            (found,) = struct.unpack(FORMATS[field], content[slice(*value)])
    return name, found
