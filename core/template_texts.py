"""How `make texts` reads a template: Django shows it as Python, and Babel reads that."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from io import BytesIO
from typing import IO, Any

from babel.messages.extract import extract_python
from django.utils.translation.template import templatize


def template_texts(
    file: IO[bytes], keywords: dict[str, Any], comment_tags: Collection[str], options: Any
) -> Iterator[Any]:
    """Yield the texts of a template, as an extraction method of Babel does."""
    lines = "\n".join(line.strip() for line in templatize(file.read().decode()).splitlines())
    yield from extract_python(BytesIO(lines.encode()), keywords, comment_tags, options)
