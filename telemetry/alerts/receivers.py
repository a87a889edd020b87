"""Receivers of what rings besides measured values."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.dispatch import receiver

from accounts.models import User
from accounts.sign_in.security import break_glass_used
from telemetry.alerts.route_services import notice_send


@receiver(break_glass_used)
def ring_break_glass(person: User, address: str, **kwargs: Any) -> None:
    """Notify by every route of all alerts that the administrator for emergencies has signed in."""
    sentence = f"{person.username}, who is for when no identity provider answers, signed in from {address}."
    transaction.on_commit(lambda: notice_send(sentence), robust=True)
