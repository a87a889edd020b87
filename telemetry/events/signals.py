"""News of this room, sent after the transaction is committed."""

from __future__ import annotations

from django.dispatch import Signal

events_recorded = Signal()  # events: list[Event], with their numbers
