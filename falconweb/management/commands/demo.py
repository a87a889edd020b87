"""The contents of a first `make up` (see falconweb.demo)."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from falconweb.demo import demo_fill


class Command(BaseCommand):
    """Fills a site of simulated chassis that has neither runs nor plans; changes no other."""

    help = "Give a new site of simulated chassis an hour of simulated readings, two runs and a plan to look at."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Run."""
        demo_fill()
