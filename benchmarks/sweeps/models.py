"""Sweeps: a grid, and how far its runs are."""

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
from hostwire.training import Spec


class Sweep(models.Model):
    """A grid of runs: its children have it as their `sweep`."""

    class State(models.TextChoices):
        """Where it is. PAUSED begins no further run; HALTED also ended those that ran."""

        RUNNING = "running", "Running"
        PAUSED = "paused", "Paused"
        HALTED = "halted", "Halted"
        COMPLETED = "completed", "Completed"

    class SweepQuerySet(RestrictedQuerySet):
        """A tenant sees the sweeps of its people."""

        def granted_to(self, tenant_id: int) -> Q:
            return Q(tenant=tenant_id)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    title = models.CharField(max_length=200)
    state = models.CharField(max_length=10, choices=State, default=State.RUNNING)
    # benchmarks.sweeps.grid.SweepGrid as JSON: axes, what is the same for all, places, what ends early.
    grid = models.JSONField(default=dict)
    manifest = models.TextField(blank=True)  # as it was given, without secrets
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="sweeps"
    )
    requested_by_name = models.CharField(max_length=150)
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.SET_NULL, related_name="sweeps")
    request_id = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    going_since = models.DateTimeField(default=timezone.now, editable=False)  # asked for, or last resumed
    finished_at = models.DateTimeField(null=True, editable=False)
    sentence = models.TextField(blank=True)  # why it is where it is
    # Combinations that became no point: [{"values": {...}, "why": "..."}], the first of them, and how many they were.
    left_out = models.JSONField(default=list)
    left_out_count = models.PositiveIntegerField(default=0)
    # What it predicted to bring devices: how many are moved, and how often.
    moves = models.PositiveIntegerField(default=0)
    compositions = models.PositiveIntegerField(default=0)
    note = models.TextField(blank=True)  # what it waits for, or could not do
    # Whether nothing that its runs brought is attached any more, and the plan (id) that brings it back.
    settled = models.BooleanField(default=True)
    plan_back = models.UUIDField(null=True, editable=False)
    settled_at = models.DateTimeField(null=True, editable=False)  # earlier compositions are no matter any more
    again_at = models.DateTimeField(null=True, editable=False)  # when giving back, or beginning a run, is tried again
    # Who tends it: a worker that died lets the lease expire.
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
        """Whether it may still begin a run."""
        return self.state in {self.State.RUNNING, self.State.PAUSED}

    @property
    def is_suspended(self) -> bool:
        """Whether it begins no further run until somebody resumes it."""
        return self.state in {self.State.PAUSED, self.State.HALTED}

    def locked(self) -> Self | None:
        """Wait until nobody else changes this sweep, and return its row as it is then; None where it was deleted."""
        row: Self | None = lock_rows(type(self)._default_manager.filter(pk=self.pk)).first()  # noqa: SLF001 - public
        return row


class Point(models.Model):
    """A run that a sweep wants: its newest run has the same sweep and position. It is seen through its sweep."""

    class State(models.TextChoices):
        """Where it is. Of one that is BEGUN, its run says the rest."""

        WAITING = "waiting", "Waiting"
        BEGUN = "begun", "Begun"
        SKIPPED = "skipped", "Skipped"

    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="points")
    position = models.PositiveIntegerField()  # in the order in which they are begun
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    values = models.JSONField(default=dict)  # of the axes, by name
    spec = models.JSONField(default=dict)  # hostwire.training.Spec as JSON
    composition = models.JSONField(default=dict)  # benchmarks.runs.rules.Composition as JSON
    # {"step_seconds", "low", "high", "samples_per_second", "basis"}; empty where nothing is predicted.
    predicted = models.JSONField(default=dict)
    sentence = models.TextField(blank=True)  # why it was skipped, or could not be begun
    attempts = models.PositiveIntegerField(default=0)  # that were refused when it was to begin

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["sweep", "position"], name="one_point_a_position")]

    def __str__(self) -> str:
        return f"{self.sweep_id} {self.position}"

    def specification(self) -> Spec:
        """Return what its runs do."""
        return msgspec.convert(self.spec, Spec)
