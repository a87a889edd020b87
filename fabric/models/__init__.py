"""What is composed, and how it came to be so: plans, operations, hosts' agents."""

from __future__ import annotations

from fabric.models.agents import HostAgent, HostAnswer
from fabric.models.hardware import Approvable, Chassis, Device, Drawer, Host, HostPort, Part, Port, Slot, Switch, Walk
from fabric.models.history import Attachment, Drift
from fabric.models.leases import Activity, Lease, LeaseEvent, LeaseItem, Letter, Quota, Tenure
from fabric.models.operations import Operation, Plan, Proof
from fabric.models.sight import Restricted

__all__ = [
    "Activity",
    "Approvable",
    "Attachment",
    "Chassis",
    "Device",
    "Drawer",
    "Drift",
    "Host",
    "HostAgent",
    "HostAnswer",
    "HostPort",
    "Lease",
    "LeaseEvent",
    "LeaseItem",
    "Letter",
    "Operation",
    "Part",
    "Plan",
    "Port",
    "Proof",
    "Quota",
    "Restricted",
    "Slot",
    "Switch",
    "Tenure",
    "Walk",
]
