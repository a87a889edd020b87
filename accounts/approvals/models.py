"""The policy that names dangers, and the requests that wait for a second person or have come to their end."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from accounts.models import User
from accounts.visibility import RestrictedQuerySet
from core.language import _, gettext_noop


class Danger(models.TextChoices):
    """What an act may do that a policy has a second administrator approve; codes never change."""

    FORCE = "force", gettext_noop("Detach a device by force while it is in use")
    MODE = "mode", gettext_noop("Change the mode of a drawer")
    TENANT = "tenant", gettext_noop("Change or take back, as an administrator, what a tenant holds")
    CHASSIS_REMOVE = "chassis_remove", gettext_noop("Delete a chassis")
    OVER_QUOTA = "over_quota", gettext_noop("Give a tenant more than its quota, or raise that")
    POWER = "power", gettext_noop("Reset a part, or switch its power")
    FIRMWARE = "firmware", gettext_noop("Update firmware")
    POLICY = "policy", gettext_noop("Take an act out of this policy")


# Whoever could loosen the policy alone would not need the second person for anything.
CHOSEN_DANGERS = [one for one in Danger if one != Danger.POLICY]


class ApprovalPolicy(models.Model):
    """The dangers that need a second administrator, in one row."""

    dangers = models.JSONField(default=list)


class ApprovalRequestQuerySet(RestrictedQuerySet):
    """Requests: administrators see all, others their own."""

    def visible_to(self, person: User) -> Any:
        if person.is_administrator:
            return self.all()
        return self.filter(requested_by=person) if person.is_active else self.none()


class ApprovalRequest(models.Model):
    """An act that somebody asked for, with all its parameters, and what a second administrator decided.

    `facts` are what the act was asked on: it is carried out only while they are the same.
    """

    class State(models.TextChoices):
        """Where a request is; all but waiting are final."""

        WAITING = "waiting", gettext_noop("Waiting")
        DONE = "done", gettext_noop("Approved and carried out")
        FAILED = "failed", gettext_noop("Approved, but not possible any more")
        REFUSED = "refused", gettext_noop("Refused")
        WITHDRAWN = "withdrawn", gettext_noop("Withdrawn")
        EXPIRED = "expired", gettext_noop("Expired")

    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    dangers = models.JSONField()
    sentence = models.CharField(max_length=1000)
    target_kind = models.CharField(max_length=30, blank=True)
    target_id = models.CharField(max_length=100, blank=True)
    target_name = models.CharField(max_length=200, blank=True)
    service = models.CharField(max_length=60)
    parameters = models.JSONField()
    facts = models.JSONField()
    requested_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    requested_by_name = models.CharField(max_length=150)
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    idempotency_key = models.CharField(max_length=200, blank=True)
    request_digest = models.CharField(max_length=64)
    decided_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    decided_by_name = models.CharField(max_length=150, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=1000, blank=True)
    result_kind = models.CharField(max_length=30, blank=True)
    result_id = models.CharField(max_length=100, blank=True)

    objects = ApprovalRequestQuerySet.as_manager()

    class Meta:
        verbose_name = "approval"
        ordering = ["-pk"]
        indexes = [models.Index(fields=["state", "expires_at"])]
        constraints = [
            models.UniqueConstraint(
                fields=["requested_by", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="one_approval_an_idempotency_key",
            ),
        ]

    @property
    def danger_words(self) -> list[str]:
        """The labels of its dangers that the policy named."""
        return [_(Danger(one).label) if one in Danger.values else str(one) for one in self.dangers]
