"""Signals of the fabric for features and rooms above."""

from __future__ import annotations

from django.dispatch import Signal

# Sent after the transaction is committed: an error of a receiver rolls nothing back.
inventory_changed = Signal()  # chassis_id: int
sign_in_due = Signal()  # chassis_id: int; its password may be tried now
operation_changed = Signal()  # operation: Operation, which was requested, has begun or ended
operation_progressed = Signal()  # operation: Operation, a step of which began, ended or waits
plan_changed = Signal()  # plan: Plan
port_counters_reset = Signal()  # port: Port, at: datetime, person_name: str, counted: dict[str, int] (before)
access_changed = Signal()  # the visibility of parts may have changed

# Sent in the transaction, with `send`: an error of a receiver rolls it back.
walk_mirrored = Signal()  # chassis: Chassis (locked), walk: MirroredWalk, begun_at: datetime | None
device_replaced = Signal()  # device: Device, not saved yet; a receiver returns when its tenure ended
chassis_removing = Signal()  # chassis: Chassis (locked, as are its devices and host ports)
