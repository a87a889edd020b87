"""In which format an address answers, where a request asks for one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rest_framework.negotiation import DefaultContentNegotiation

from falconweb.errors import Invalid

FORMAT: Final = "format"  # what addresses call it


class Negotiation(DefaultContentNegotiation):
    """Says what is wrong with a `format` that an address does not have: it is no address that there is not."""

    def filter_renderers(self, renderers: Iterable[Any], format: str) -> Any:  # noqa: A002 - the framework's name
        """Return those of a format; raises Invalid where there is none."""
        found = [one for one in renderers if one.format == format]
        if not found:
            known = " or ".join(sorted({one.format for one in renderers}))
            raise Invalid(
                "This address does not answer in such a format.", errors={FORMAT: f"{known}, or leave it out."}
            )
        return found
