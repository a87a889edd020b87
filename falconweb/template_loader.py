"""The layout of template files is for those who read them, and stays out of pages."""

from __future__ import annotations

import re

from django.template import Origin
from django.template.loaders import filesystem

INDENTATION = re.compile(r"\n[ \t]+")


class Loader(filesystem.Loader):
    """Loads templates without the indentation of their lines, a third of a page, and without the last newline.

    A partial whose file ends in a newline may stand before a full stop, as with Jinja. Lines keep their numbers.
    """

    def get_contents(self, origin: Origin) -> str:
        """Return a template's source; no text that keeps its whitespace has a line that begins there."""
        return INDENTATION.sub("\n", super().get_contents(origin)).removesuffix("\n")
