"""What happened in the fabric, for rooms above that want to know; sent after the transaction is committed."""

from __future__ import annotations

from django.dispatch import Signal

inventory_changed = Signal()  # chassis_id: int
operation_changed = Signal()  # operation: Operation
plan_changed = Signal()  # plan: Plan
port_counters_reset = Signal()  # port: Port, at: datetime, person_name: str, counted: dict[str, int] (before)
access_changed = Signal()  # somebody's sight may differ from now on
