"""Traces of Chakra, written by protobuf's own library from a description of the schema."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

TEXT, INTEGER, UNSIGNED, FLAG, MESSAGE, NAMED = 9, 3, 4, 8, 11, 14
OPTIONAL, REPEATED = 1, 3
NODE_FIELDS = (
    ("id", 1, UNSIGNED, OPTIONAL), ("name", 2, TEXT, OPTIONAL), ("type", 3, NAMED, OPTIONAL),
    ("ctrl_deps", 4, UNSIGNED, REPEATED), ("data_deps", 5, UNSIGNED, REPEATED),
    ("start_time_micros", 6, UNSIGNED, OPTIONAL), ("duration_micros", 7, UNSIGNED, OPTIONAL),
    ("attr", 10, MESSAGE, REPEATED),
)  # fmt: skip
ATTRIBUTE_FIELDS = (
    ("name", 1, TEXT, OPTIONAL), ("double_val", 3, 1, OPTIONAL), ("int64_val", 9, INTEGER, OPTIONAL),
    ("sint64_val", 17, 18, OPTIONAL), ("fixed64_val", 21, 6, OPTIONAL), ("bool_val", 27, FLAG, OPTIONAL),
    ("string_val", 29, TEXT, OPTIONAL),
)  # fmt: skip
TYPES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
    "COMM_RECV_NODE", "COMM_COLL_NODE",
)  # fmt: skip
COMPUTE, SEND, COLLECTIVE, LOAD = 4, 5, 7, 2


@cache
def message_classes() -> dict[str, Any]:
    """Return the classes of messages; skips a test where protobuf is not installed."""
    pytest.importorskip("google.protobuf", reason="protobuf is not installed: nobody writes traces.")
    from google.protobuf import (  # type: ignore[import-untyped]
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="tests", syntax="proto3")
    types = file.enum_type.add(name="NodeType")
    for number, name in enumerate(TYPES):
        types.value.add(name=name, number=number)
    metadata = (("version", 1, TEXT, OPTIONAL), ("attr", 2, MESSAGE, REPEATED))
    messages = (("Attribute", ATTRIBUTE_FIELDS), ("Node", NODE_FIELDS), ("Metadata", metadata))
    for name, fields in messages:
        message = file.message_type.add(name=name)
        for field, number, kind, label in fields:
            added = message.field.add(name=field, number=number, type=kind, label=label)
            if kind in (MESSAGE, NAMED):
                added.type_name = ".tests.Attribute" if kind == MESSAGE else ".tests.NodeType"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tests.{name}")) for name, _ in messages}


def node(number: int, kind: int, micros: int = 0, *before: int, **attributes: Any) -> Any:
    """Return a node that begins in the order of the numbers."""
    classes = message_classes()
    made = classes["Node"](
        id=number, name=f"node {number}", type=kind, data_deps=before, duration_micros=micros, start_time_micros=number
    )
    for name, value in attributes.items():
        field = {bool: "bool_val", str: "string_val", float: "double_val"}.get(type(value), "int64_val")
        made.attr.append(classes["Attribute"](name=name, **{field: value}))
    return made


def binary(*nodes: Any, version: str = "0.0.4") -> bytes:
    """Return a trace as the converters write it."""
    parts = [message_classes()["Metadata"](version=version), *nodes]
    found = b""
    for one in parts:
        content = one.SerializeToString()
        found += varint(len(content)) + content
    return found


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it, seven bits a byte."""
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def as_json(*nodes: Any) -> bytes:
    """Return a trace as the jsonizer prints it: one object after the other."""
    from google.protobuf.json_format import MessageToJson  # type: ignore[import-untyped]

    parts = [message_classes()["Metadata"](version="0.0.4"), *nodes]
    return "".join(MessageToJson(one) for one in parts).encode()
