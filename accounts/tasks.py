"""Celery tasks for users, sessions and the audit log."""

from __future__ import annotations

from datetime import timedelta

from axes.models import AccessAttempt
from celery import shared_task
from django.utils import timezone

from accounts.approvals.services import approvals_expire
from accounts.audit.services import refusals_summarise
from accounts.audit.verification import audit_verify
from accounts.models import User
from accounts.sign_in.change_mails import change_mail_send
from accounts.sign_in.password_mails import password_mail_send
from accounts.sign_in.services import sessions_delete_old

# Longer than a lock lasts, so that administrators can review the attempts.
ATTEMPTS_KEPT = timedelta(days=30)


@shared_task(name="accounts.forget")
def forget() -> None:
    """Delete expired sessions and old records of wrong passwords."""
    sessions_delete_old()
    AccessAttempt.objects.filter(attempt_time__lt=timezone.now() - ATTEMPTS_KEPT).delete()


@shared_task(name="accounts.verify_audit")
def verify_audit(person_id: int | None = None) -> None:
    """Verify the audit log, daily and at an administrator's request."""
    audit_verify(actor=None if person_id is None else User.objects.filter(pk=person_id).first())


@shared_task(name="accounts.summarise_refusals")
def summarise_refusals() -> None:
    """Record the numbers of refused requests beyond those with their own entries."""
    refusals_summarise()


@shared_task(name="accounts.expire_approvals")
def expire_approvals() -> None:
    """End requests for an approval that nobody decided in time."""
    approvals_expire()


@shared_task(name="accounts.send_password_mail")
def send_password_mail(name: str) -> None:
    """Send a mail with a link to set a new password to those whom the typed name or address names, if any."""
    password_mail_send(name=name)


@shared_task(name="accounts.send_change_mail")
def send_change_mail(person_id: int, what: str, address: str = "") -> None:
    """Mail a person what was changed of their means to sign in."""
    change_mail_send(person_id=person_id, what=what, address=address)
