"""Query parameters of GET: $expand with levels, $select, $top, $skip and only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.errors import RedfishError
from simulator.odata import Body

MAX_LEVELS = 6
MAX_PAGE = 1000
_EXPAND = re.compile(r"^(?P<what>[.~*])(\(\$levels=(?P<levels>\d+)\))?$")


@dataclass(frozen=True)
class Query:
    """The parameters of one request, checked."""

    expand: str | None = None
    levels: int = 1
    select: tuple[str, ...] = ()
    top: int | None = None
    skip: int = 0
    only: bool = False

    @property
    def plain(self) -> bool:
        """Whether there are no parameters."""
        return self == Query()


def parse(parameters: Mapping[str, str], *, expand_allowed: bool) -> Query:
    """Check the parameters of a request.

    An unknown one that starts with `$` is answered 501, an invalid value 400; others are ignored.
    """
    values: dict[str, Any] = {}
    for name, value in parameters.items():
        if name == "only":
            if value:
                raise _invalid_value(name, value)
            values["only"] = True
        elif name == "$expand":
            if not expand_allowed:
                raise _not_supported(name)
            match = _EXPAND.match(value)
            if match is None or not 1 <= int(match["levels"] or 1) <= MAX_LEVELS:
                raise _invalid_value(name, value)
            values.update(expand=match["what"], levels=int(match["levels"] or 1))
        elif name == "$select":
            values["select"] = tuple(part.strip() for part in value.split(",") if part.strip())
        elif name in ("$top", "$skip"):
            if not value.isdigit():
                raise _invalid_value(name, value)
            values[name[1:]] = int(value)
        elif name.startswith("$"):
            raise _not_supported(name)
    return Query(**values)


def _not_supported(name: str) -> RedfishError:
    key = "QueryParameterNotSupported" if name != "$expand" else "QueryNotSupported"
    sentence = f"The query parameter {name} is not supported by this service."
    return RedfishError(501, key, sentence, arguments=(name,))


def _invalid_value(name: str, value: str) -> RedfishError:
    sentence = f"The value '{value}' for the query parameter {name} is of a different format than it can accept."
    return RedfishError(400, "QueryParameterValueFormatError", sentence, arguments=(value, name))


def apply(body: Body, query: Query, render: Callable[[str], Body | None], uri: str) -> Body:
    """Return the body with the query applied; `render` returns the body of another resource or None."""
    if query.only:
        members = body.get("Members")
        if members is None:
            raise RedfishError(400, "QueryNotSupportedOnResource", "The query 'only' works on collections only.")
        if len(members) == 1:
            return render(members[0]["@odata.id"]) or body
    if query.top is not None or query.skip or len(body.get("Members", ())) > MAX_PAGE:
        body = _page(body, query, uri)
    if query.expand is not None:
        body = _expanded(body, query.expand, query.levels, render, in_links=False)
    if query.select:
        body = _selected(body, query.select)
    return body


def _page(body: Body, query: Query, uri: str) -> Body:
    if "Members" not in body:
        raise RedfishError(400, "QueryNotSupportedOnResource", "The queries $top and $skip work on collections only.")
    members = body["Members"]
    size = MAX_PAGE if query.top is None else min(query.top, MAX_PAGE)
    end = query.skip + size
    page = {**body, "Members": members[query.skip : end]}
    if size and end < len(members):
        expand = f"&$expand={query.expand}($levels={query.levels})" if query.expand is not None else ""
        select = f"&$select={','.join(query.select)}" if query.select else ""
        page["Members@odata.nextLink"] = f"{uri}?$skip={end}&$top={size}{expand}{select}"
    return page


def _expanded(body: Body, what: str, levels: int, render: Callable[[str], Body | None], *, in_links: bool) -> Body:
    result: Body = {}
    for key, value in body.items():
        inside = in_links or key == "Links"
        expands = not key.startswith("@") and (what == "*" or (what == "~") == inside)
        result[key] = _expand_value(value, what, levels, render, expands=expands, in_links=inside)
    return result


def _expand_value(
    value: Any, what: str, levels: int, render: Callable[[str], Body | None], *, expands: bool, in_links: bool
) -> Any:
    if isinstance(value, list):
        return [_expand_value(one, what, levels, render, expands=expands, in_links=in_links) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) != {"@odata.id"}:
        return _expanded(value, what, levels, render, in_links=in_links)
    uri = value["@odata.id"]
    if not expands or "#" in uri:
        return value
    other = render(uri)
    if other is None:
        return value
    return _expanded(other, what, levels - 1, render, in_links=False) if levels > 1 else other


def _selected(body: Body, names: tuple[str, ...]) -> Body:
    if "Members" in body:
        # For a collection they select properties of its members, if expanded.
        return {**body, "Members": [_selected(one, names) if len(one) > 1 else one for one in body["Members"]]}
    keep = {"@odata.id", "@odata.type", "@odata.etag", "@odata.context", "Id", "Name"}
    paths = [name.split("/") for name in names]
    selected = {
        key: value for key, value in body.items() if key in keep or key.startswith("Members@") or "@Message" in key
    }
    for path in paths:
        _copy_path(body, selected, path)
    return selected


def _copy_path(source: Body, target: Body, path: list[str]) -> None:
    head, *rest = path
    if head not in source:
        return
    if not rest or not isinstance(source[head], dict):
        target[head] = source[head]
        return
    inner = target.setdefault(head, {})
    if isinstance(inner, dict):
        _copy_path(source[head], inner, rest)
