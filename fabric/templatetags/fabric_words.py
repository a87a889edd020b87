"""What the wire calls things, as people read them."""

from __future__ import annotations

from django import template

register = template.Library()
LINKS = {
    "LinkUp": "up",
    "LinkDown": "down",
    "NoLink": "no link",
    "Training": "training",
    "Starting": "starting",
}


@register.filter
def link_words(status: str) -> str:
    """Return a port's LinkStatus in words."""
    return LINKS.get(status, status) or "not given"


@register.filter
def generation(pcie_type: str) -> str:
    """Return 'Gen3' as 'Gen 3'."""
    return pcie_type.replace("Gen", "Gen ")
