"""The components of pages: each is a tag with arguments and a template; /patterns/ shows all of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from django import template
from django.forms import BaseForm
from django.forms.utils import flatatt
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from core.forms import parse_instant
from core.zones import field_text, zone_name

register = template.Library()


@register.inclusion_tag("components/fact.html")
def fact(name: str, value: object) -> dict[str, Any]:
    """Show one fact of a list of facts (`<dl>`): its name and its value."""
    return {"name": name, "value": value}


@register.inclusion_tag("components/icon.html")
def icon(name: str) -> dict[str, Any]:
    """Show a symbol of site/icons.svg, which a word beside it or a label explains."""
    return {"name": name}


@register.inclusion_tag("components/table_head.html")
def table_head(*columns: str) -> dict[str, Any]:
    """Show the head of a table; a column of numbers begins with '#', one whose head only readers name with '-'."""
    return {"columns": [(name.lstrip("#-"), name[:1]) for name in columns]}


@register.simple_block_tag
def cell(content: SafeString, label: str, look: str = "") -> SafeString:
    """Show a cell that may be empty: narrow screens, with columns as labels, then omit it."""
    held = mark_safe(content.strip())  # noqa: S308 - already safe
    return render_to_string("components/cell.html", {"content": held, "label": label, "look": look})


@register.inclusion_tag("components/sorted_column.html")
def sorted_column(
    words: str, name: str, sort: str, queries: Mapping[str, str], *, order: str = "descending", number: bool = True
) -> dict[str, Any]:
    """Show the head of a sortable column; `queries` has the query strings by column name."""
    return {"words": words, "query": queries[name], "order": order if sort == name else "", "number": number}


@register.inclusion_tag("components/timestamp.html")
def timestamp(at: datetime, form: str = "Y-m-d H:i:s") -> dict[str, Any]:
    """Show a time in the person's zone; its title has the offset."""
    return {"at": at, "form": form}


@register.inclusion_tag("components/state_badge.html")
def state_badge(state: str, words: str = "") -> dict[str, Any]:
    """Show the sign of a state, with its label unless that is shown beside it."""
    return {"state": state, "words": words}


@register.inclusion_tag("components/post_button.html")
def post_button(
    words: str, view: str, *args: Any, look: str = "", label: str = "", keep: str = "", api: str = ""
) -> dict[str, Any]:
    """Show a button that posts; `label` names the object, `keep` keeps the focus on it when the page refreshes.

    `api` is the view of the API that does the same, for `copy_curl`.
    """
    curl = copy_curl("POST", api, *args) if api else None
    address = reverse(view, args=args)
    return {"words": words, "address": address, "look": look, "label": label, "keep": keep, "curl": curl}


@register.inclusion_tag("components/copy_curl.html")
def copy_curl(method: str, view: str, *args: Any, act: str = "", same: str = "", **body: Any) -> dict[str, Any]:
    """Show a button that copies the act of its form as a curl command for a view of the API.

    Of the body, texts are names of the form's fields ('' is null) and other values are literal, one id of `_ids` too.
    `{scope}` is the field that the field `scope` names, `what:rule-` what follows this start, `what!rule-` what has
    another. `same` lists fields that have one name in both. `act` names it to screen readers in a form of several.
    """
    fields: dict[str, Any] = {name: {"field": name} for name in same.split()}
    for name, value in body.items():
        if isinstance(value, str):
            fields[name] = {"field": value} if value else None
        else:
            fields[name] = [value] if name.endswith("_ids") else value
    address = reverse(f"api:{view}", args=args)
    return {"method": method, "address": address, "body": json.dumps(fields), "act": act}


@register.inclusion_tag("components/copy_button.html")
def copy_button(source: str, label: str) -> dict[str, Any]:
    """Show a button that copies the text of the element with the id `source`; `label` names it to screen readers."""
    return {"source": source, "label": label}


@register.inclusion_tag("components/form_errors.html")
def form_errors(form: BaseForm) -> dict[str, Any]:
    """Show the errors of a form as a whole."""
    return {"errors": form.non_field_errors()}


@register.inclusion_tag("components/options.html")
def options(choices: Iterable[Any], chosen: object = None) -> dict[str, Any]:
    """Show the options of a select: pairs of value and label, triples with whether they are selected, or rows.

    `chosen` is a value, or a collection of them.
    """
    return {"options": [_option(one, chosen) for one in choices]}


@register.inclusion_tag("components/filter_select.html")
def filter_select(
    name: str,
    label: str,
    choices: Iterable[Any],
    chosen: object,
    *,
    id: str,  # noqa: A002 - as in HTML
    every: str = "",
) -> dict[str, Any]:
    """Show a select to filter by, with an option for all values if `every` has a label for it."""
    return {"name": name, "label": label, "choices": choices, "chosen": chosen, "id": id, "every": every}


@register.inclusion_tag("components/filter_field.html")
def filter_field(
    name: str,
    label: str,
    value: object,
    *,
    id: str,  # noqa: A002 - as in HTML
    **attributes: Any,
) -> dict[str, Any]:
    """Show a field to filter by, of any `type` and with any attributes."""
    return {"name": name, "label": label, "value": value, "id": id, "attributes": flatatt(attributes)}


@register.inclusion_tag("components/filter_field.html")
def filter_time(
    name: str,
    label: str,
    value: str,
    errors: Mapping[str, str],
    *,
    id: str,  # noqa: A002 - as in HTML
    why: str,
    **attributes: Any,
) -> dict[str, Any]:
    """Show a time to filter by; if it is in `errors`, the element with the id `why` describes the error.

    Its form sends the zone in which it is typed too: see zone_middleware.
    """
    attributes["type"] = "datetime-local"
    if errors and name in errors:
        attributes |= {"aria-invalid": "true", "aria-describedby": why}
    found = parse_instant(value)
    shown = field_text(found) if found else value.partition("[")[0]
    return {**filter_field(name, label, shown, id=id, **attributes), "zone": zone_name()}


@register.inclusion_tag("components/filter_buttons.html")
def filter_buttons(is_filtered: object, view: str) -> dict[str, Any]:
    """Show the button of a filter, and a link to all entries if a filter is active."""
    return {"is_filtered": is_filtered, "address": reverse(view)}


@register.simple_tag(takes_context=True)
def page_query(context: Mapping[str, Any], number: int, name: str) -> str:
    """Return the query string of this page with another page of one of its tables."""
    query = context["request"].GET.copy()
    query[name] = str(number)
    return f"?{query.urlencode()}"


@register.simple_block_tag
def empty_state(content: SafeString, title: str = "") -> SafeString:
    """Show an empty state, with the next step between the tags."""
    return render_to_string("components/empty_state.html", {"title": title, "content": content})


def _option(one: Any, chosen: object) -> tuple[object, object, bool]:
    """Return the value of an option, its label, and whether it is selected."""
    match one:
        case (value, words, bool(is_chosen)):
            return value, words, is_chosen
        case (value, words):
            pass
        case _:
            value, words = one.pk, one.name
    if isinstance(chosen, Collection) and not isinstance(chosen, str):
        return value, words, value in chosen
    return value, words, value == chosen
