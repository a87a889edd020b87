"""Signal receivers of links."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import DatabaseError
from django.dispatch import receiver

from fabric.inventory.models import Port
from fabric.signals import access_changed, inventory_changed, port_counters_reset
from telemetry.links.recorder import process_recorder
from telemetry.links.services import counter_reset_record, tenant_baselines_record
from telemetry.live.receivers import publish_access_changed

logger = logging.getLogger(__name__)


@receiver(port_counters_reset)
def record_reset(port: Port, at: datetime, person_name: str, counted: Mapping[str, int], **_: Any) -> None:
    """Record a reset of counters that was requested here."""
    counter_reset_record(port=port, at=at, person_name=person_name, counted=counted)


@receiver(inventory_changed)
def request_judging(chassis_id: int, **_: Any) -> None:
    """Have the links of a chassis judged by the worker that polls and walks it."""
    process_recorder().request_judging(chassis_id)


@receiver(access_changed)
def record_tenant_baselines(**_: Any) -> None:
    """Record the baselines of links that were just leased or released."""
    try:
        tenant_baselines_record()
    except DatabaseError:
        # The worker that polls the chassis records them with its next verdicts.
        logger.exception("baselines of links were not recorded")
    # Values that were read before this have another baseline.
    publish_access_changed(Port)
