"""Celery's faces of people and sessions."""

from __future__ import annotations

from datetime import timedelta

from axes.models import AccessAttempt
from celery import shared_task
from django.contrib.sessions.models import Session
from django.utils import timezone

# Longer than a lock lasts; an administrator may want to see who tried.
ATTEMPTS_KEPT = timedelta(days=30)


@shared_task(name="accounts.forget")
def forget() -> None:
    """Delete sessions that have expired, and old wrong passwords: nothing else would."""
    Session.objects.filter(expire_date__lt=timezone.now()).delete()
    AccessAttempt.objects.filter(attempt_time__lt=timezone.now() - ATTEMPTS_KEPT).delete()
