"""News of this room, sent after the transaction is committed."""

from __future__ import annotations

from django.dispatch import Signal

alerts_changed = Signal()  # chassis_id: int
