"""A template loader that removes the layout of template files from pages."""

from __future__ import annotations

import re

from django.template import Origin
from django.template.loaders import filesystem

INDENTATION = re.compile(r"\n[ \t]+")


class Loader(filesystem.Loader):
    """Loads templates without indentation, which is a third of a page, and without the last newline.

    So a partial can be followed directly by a full stop, as with Jinja. Line numbers do not change.
    """

    def get_contents(self, origin: Origin) -> str:
        """Return a template's source; no preformatted text has an indented line."""
        return INDENTATION.sub("\n", super().get_contents(origin)).removesuffix("\n")
