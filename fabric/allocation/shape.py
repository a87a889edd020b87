"""A value held against the published schema: as much of JSON Schema as the schema uses, with sentences for people."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from fabric.allocation.nodes import Node
from fabric.allocation.places import Problems, member_path, quoted
from fabric.allocation.schema import SCHEMA

WORDS = {
    "string": "text", "integer": "a whole number", "object": "an object", "array": "a list", "null": "null",
}  # fmt: skip


def check_shape(root: Node, problems: Problems) -> None:
    """Note everything in which a value is not as the schema says."""
    _check(root, SCHEMA, "", "The file", problems)


def type_of(value: object) -> str:
    """Return the type of a value in the words of JSON Schema."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


def unknown_word(word: str, known: Collection[str]) -> str:
    """Return the sentence for a name that is none of those known: with the nearest of them, or else with all."""
    near = difflib.get_close_matches(word[:60], known, n=1)
    hint = f"Is '{near[0]}' meant?" if near else f"Known here: {', '.join(known) or 'none'}."
    return f"{quoted(word)} is not known here. {hint}"


def _check(node: Node, schema: dict[str, Any], path: str, name: str, problems: Problems) -> None:
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        # Of the schema's choices one is null: what is none is held against the other.
        if node.value is None:
            return
        schema = SCHEMA["$defs"][schema["anyOf"][0]["$ref"].rpartition("/")[2]]
    if reason := _why_not(node, schema, name):
        problems.add(reason, path, node.offset)
    elif isinstance(node.value, dict):
        for missing in schema["required"]:
            if missing not in node.value:
                problems.add(f"{name} has no '{missing}'.", path, node.offset)
        _check_members(node, schema["properties"], path, problems)
    elif isinstance(node.value, list):
        for place, item in enumerate(node.value):
            _check(item, schema["items"], f"{path}[{place}]", f"{name}[{place}]", problems)


def _why_not(node: Node, schema: dict[str, Any], name: str) -> str:
    """Return '' if a value is what the schema says of it alone, else the sentence that says why not."""
    value, found = node.value, type_of(node.value)
    allowed = schema.get("type", found)
    allowed = [allowed] if isinstance(allowed, str) else allowed
    if "const" in schema and (value != schema["const"] or found == "boolean"):
        return f"{name} must be {_shown(schema['const'])}, not {_shown(value)}."
    if "enum" in schema and value not in schema["enum"]:
        return f"{name} must be one of {', '.join(schema['enum'])}, not {_shown(value)}."
    if found not in allowed:
        hint = " Put it in quotes." if found in {"integer", "number", "boolean"} and "string" in allowed else ""
        return f"{name} must be {' or '.join(WORDS[one] for one in allowed)}, not {_shown(value)}.{hint}"
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            return f"{name} must not be empty."
        if len(value) > schema.get("maxLength", len(value)):
            return f"{name} has {len(value)} characters: at most {schema['maxLength']} are allowed."
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{name} must be from {schema['minimum']} to {schema['maximum']}, not {value}."
    return ""


def _check_members(node: Node, known: dict[str, Any], path: str, problems: Problems) -> None:
    assert isinstance(node.value, dict)  # noqa: S101 - its caller asked
    for word, value in node.value.items():
        inner = member_path(path, word)
        if word in known:
            _check(value, known[word], inner, f"'{word}'", problems)
        else:
            problems.add(unknown_word(word, known), inner, node.keys[word])


def _shown(value: object) -> str:
    kind = type_of(value)
    if kind == "null":
        return "null"
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower() if kind in {"boolean", "integer", "number"} else WORDS[kind]
