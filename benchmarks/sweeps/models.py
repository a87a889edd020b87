"""Sweeps: a grid, and the progress of its runs."""

from __future__ import annotations

import uuid
from typing import Self

import msgspec
from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Tenant
from accounts.visibility import RestrictedQuerySet
from core.database import lock_rows
from core.language import gettext_lazy
from hostwire.training import Spec


class Sweep(models.Model):
    """A grid of runs, which refer to it as their `sweep`."""

    class State(models.TextChoices):
        """Its state. PAUSED starts no further run; HALTED has also stopped the running ones."""

        RUNNING = "running", gettext_lazy("Running")
        PAUSED = "paused", gettext_lazy("Paused")
        HALTED = "halted", gettext_lazy("Halted")
        COMPLETED = "completed", gettext_lazy("Completed")

    class SweepQuerySet(RestrictedQuerySet):
        """A tenant sees the sweeps of its users."""

        def granted_to(self, tenant_id: int) -> Q:
            return Q(tenant=tenant_id)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    title = models.CharField(max_length=200)
    state = models.CharField(max_length=10, choices=State, default=State.RUNNING)
    # benchmarks.sweeps.grid.SweepGrid as JSON: axes, common fields, placements, early stopping.
    grid = models.JSONField(default=dict)
    manifest = models.TextField(blank=True)  # as submitted, without secrets
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="sweeps"
    )
    requested_by_name = models.CharField(max_length=150)
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.SET_NULL, related_name="sweeps")
    request_id = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    going_since = models.DateTimeField(default=timezone.now, editable=False)  # requested, or last resumed
    finished_at = models.DateTimeField(null=True, editable=False)
    sentence = models.TextField(blank=True)  # the reason for its state
    # The first combinations that were left out: [{"values": {...}, "why": "..."}], and the number of all.
    left_out = models.JSONField(default=list)
    left_out_count = models.PositiveIntegerField(default=0)
    # The predicted cost of composing: devices moved, and compositions.
    moves = models.PositiveIntegerField(default=0)
    compositions = models.PositiveIntegerField(default=0)
    note = models.TextField(blank=True)  # the reason for waiting, or its last failure
    # Whether all devices of its runs are restored, and the plan (id) that restores them.
    settled = models.BooleanField(default=True)
    plan_back = models.UUIDField(null=True, editable=False)
    settled_at = models.DateTimeField(null=True, editable=False)  # earlier compositions do not matter
    again_at = models.DateTimeField(null=True, editable=False)  # when restoring devices, or starting a run, is retried
    # The claim of a worker; it expires if the worker dies.
    worker = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True)
    idempotency_key = models.CharField(max_length=200, blank=True)
    request_digest = models.CharField(max_length=64, blank=True)

    objects = SweepQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["requested_by", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="one_sweep_an_idempotency_key",
            ),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def is_open(self) -> bool:
        """Whether it may still start a run."""
        return self.state in {self.State.RUNNING, self.State.PAUSED}

    @property
    def is_suspended(self) -> bool:
        """Whether it starts no further run until it is resumed."""
        return self.state in {self.State.PAUSED, self.State.HALTED}

    def locked(self) -> Self | None:
        """Lock this sweep, and return its current row; None if it was deleted."""
        row: Self | None = lock_rows(type(self)._default_manager.filter(pk=self.pk)).first()  # noqa: SLF001 - public
        return row


class Point(models.Model):
    """A point of a sweep, whose newest run has the same sweep and position. Its visibility is that of its sweep."""

    class State(models.TextChoices):
        """Its state; a BEGUN point has the state of its run."""

        WAITING = "waiting", gettext_lazy("Waiting")
        BEGUN = "begun", gettext_lazy("Begun")
        SKIPPED = "skipped", gettext_lazy("Skipped")

    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="points")
    position = models.PositiveIntegerField()  # in the order of starting
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    values = models.JSONField(default=dict)  # of the axes, by name
    spec = models.JSONField(default=dict)  # hostwire.training.Spec as JSON
    composition = models.JSONField(default=dict)  # benchmarks.runs.rules.Composition as JSON
    # {"step_seconds", "low", "high", "samples_per_second", "basis"}; empty where nothing is predicted.
    predicted = models.JSONField(default=dict)
    sentence = models.TextField(blank=True)  # the reason why it was skipped, or could not be started
    attempts = models.PositiveIntegerField(default=0)  # refused attempts to start it

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["sweep", "position"], name="one_point_a_position")]

    def __str__(self) -> str:
        return f"{self.sweep_id} {self.position}"

    def specification(self) -> Spec:
        return msgspec.convert(self.spec, Spec)
