"""What happened to runs, for who wants to know; sent after the transaction is committed."""

from __future__ import annotations

from django.dispatch import Signal

run_changed = Signal()  # run: Run; its state is another one
