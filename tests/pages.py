"""What a site answers, as a person reads it."""

from __future__ import annotations

import re
from typing import Any

# Drawn anew for each answer: short words are in one of them now and then.
TOKEN = re.compile(r'(value|data-csrf)="[A-Za-z0-9]{64}"')


def page_text(answer: Any) -> str:
    """Return the text of an answer, whether it is streamed or not, without its tokens against forged requests.

    Of a page, each run of whitespace is one space: where the lines of a template break is the formatter's choice.
    """
    text = TOKEN.sub("", (answer.getvalue() if answer.streaming else answer.content).decode())
    return " ".join(text.split()) if answer["Content-Type"].startswith("text/html") else text
