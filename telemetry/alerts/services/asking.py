"""Asks a worker to do at once what beat would ask for in a moment."""

from __future__ import annotations

import logging
from functools import partial

from django.db import transaction
from kombu.exceptions import OperationalError

from core.enqueue import enqueue

logger = logging.getLogger(__name__)


def send_soon() -> None:
    """Have what is due delivered once the transaction is committed; a broker that is away only makes it later."""
    transaction.on_commit(partial(_ask), robust=True)


def _ask() -> None:
    try:
        enqueue("alerts.notify", expires=10)
    except (OperationalError, OSError) as error:
        logger.info("deliveries wait for beat: %s", error)
