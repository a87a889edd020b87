"""Export definitions, and their runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from accounts.visibility import RestrictedQuerySet
from core.claims import LONGEST_WAIT, unclaimed, wait_is_over
from core.credentials import SecretHolder
from core.language import gettext_lazy, gettext_noop
from telemetry.exports.times import schedule_times


class ExportFormat(models.TextChoices):
    CSV = "csv", "CSV"
    JSONL = "jsonl", "JSON Lines"
    SYSLOG = "syslog", "Syslog (RFC 5424)"
    CEF = "cef", "CEF"


class ExportTarget(models.TextChoices):
    DOWNLOAD = "download", gettext_lazy("Download")
    DIRECTORY = "directory", gettext_lazy("Directory")
    WEBHOOK = "webhook", gettext_lazy("Webhook")
    SYSLOG = "syslog", gettext_lazy("Syslog server")


class ExportSchedule(models.TextChoices):
    """When a definition runs."""

    NONE = "none", gettext_lazy("On request")
    CRON = "cron", gettext_lazy("On a schedule")
    STREAM = "stream", gettext_lazy("Continuously")


class ExportSpan(models.TextChoices):
    """Which of the matching events a run takes."""

    ALL = "all", gettext_lazy("All matching, each time")
    NEW = "new", gettext_lazy("New since the last run")


class AdministratorOnlyQuerySet(RestrictedQuerySet):
    """Rows that administrators alone may see."""

    def granted_to(self, tenant_id: int) -> Q:
        return Q(pk__in=[])


class ExportDefinition(SecretHolder):
    """An export defined by administrators. It belongs to the site and stays when its owner is removed.

    The secret signs webhooks.
    """

    described_as = gettext_noop("this export")

    name = models.CharField(max_length=100, unique=True)
    filter = models.JSONField(default=dict)  # as telemetry.events.filters reads it: names to lists of texts
    columns = models.JSONField(default=list)
    format = models.CharField(max_length=10, choices=ExportFormat)
    target = models.CharField(max_length=10, choices=ExportTarget)
    options = models.JSONField(default=dict)  # as telemetry.exports.options reads it
    schedule = models.CharField(max_length=10, choices=ExportSchedule, default=ExportSchedule.NONE)
    cron = models.CharField(max_length=100, blank=True)
    span = models.CharField(max_length=10, choices=ExportSpan, default=ExportSpan.ALL)
    enabled = models.BooleanField(default=True)
    # All events up to it were delivered or are in a complete file; advances only for ExportSpan.NEW.
    cursor = models.BigIntegerField(default=0)
    next_at = models.DateTimeField(null=True, db_index=True)
    note = models.CharField(max_length=500, blank=True)  # why the schedule could not start a run
    version = models.PositiveIntegerField(default=1)  # incremented when delivery changes: a stream starts a new run
    owner = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    owner_name = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)

    objects = AdministratorOnlyQuerySet.as_manager()

    class Meta:
        verbose_name = "export"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_stream(self) -> bool:
        """Whether its run never ends."""
        return self.schedule == ExportSchedule.STREAM

    @property
    def times_words(self) -> str:
        """The times of its schedule, in words; '' where only cron says them."""
        times = schedule_times(self.cron)
        return times.words if times is not None else ""


class AuditPosition(models.Model):
    """Up to which entry the audit log was added to the events, in one row."""

    sequence = models.BigIntegerField()


class ExportRunQuerySet(AdministratorOnlyQuerySet):
    def open(self) -> Self:
        """Return those that have not ended."""
        return self.filter(state__in=ExportRun.OPEN)

    def unclaimed(self) -> Self:
        """Return those that no worker has claimed."""
        return self.filter(unclaimed())

    def due(self, now: datetime) -> Self:
        """Return those that a worker may continue now."""
        return self.open().unclaimed().filter(wait_is_over("retry_at", now, LONGEST_WAIT))


class ExportRun(models.Model):
    """One execution of a definition; kept when the definition is removed."""

    class State(models.TextChoices):
        QUEUED = "queued", gettext_lazy("Queued")
        RUNNING = "running", gettext_lazy("Running")
        DONE = "done", gettext_lazy("Done")
        FAILED = "failed", gettext_lazy("Failed")
        CANCELLED = "cancelled", gettext_lazy("Cancelled")

    OPEN = (State.QUEUED, State.RUNNING)

    definition = models.ForeignKey(ExportDefinition, null=True, on_delete=models.SET_NULL, related_name="runs")
    name = models.CharField(max_length=100)  # of the definition at the time
    snapshot = models.JSONField()  # of the definition, without its secret
    version = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    trigger = models.CharField(
        max_length=10,
        choices=[
            ("person", gettext_lazy("A person")), ("schedule", gettext_lazy("Its schedule")),
            ("stream", gettext_lazy("Continuous export")),
        ],
    )  # fmt: skip
    requested_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    requested_by_name = models.CharField(max_length=150, blank=True)
    begun_after = models.BigIntegerField()  # number of the last event before it
    cursor = models.BigIntegerField()  # all events up to it are delivered, or in the file
    pending = models.BigIntegerField(null=True)  # last event of the batch that is being sent
    until = models.BigIntegerField(null=True)  # number of its last event; None: not started, or a stream
    counted = models.BigIntegerField(default=0)
    total = models.BigIntegerField(null=True)
    bytes = models.BigIntegerField(default=0)
    file = models.CharField(max_length=300, blank=True)  # below the folder of exports
    file_removed_at = models.DateTimeField(null=True)
    checksum = models.CharField(max_length=64, blank=True)  # SHA-256 of the complete file
    attempts = models.PositiveIntegerField(default=0)  # failures since the last success
    failing_since = models.DateTimeField(null=True)
    retry_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=500, blank=True)
    cancel_requested_at = models.DateTimeField(null=True)
    worker = models.CharField(max_length=120, blank=True)
    lease_until = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    resumed_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    objects = ExportRunQuerySet.as_manager()

    class Meta:
        verbose_name = "export run"
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["definition"], condition=Q(state__in=["queued", "running"]), name="one_open_run_an_export"
            )
        ]
        indexes = [
            models.Index(fields=["definition", "-id"], name="exports_run_of"),
            models.Index(fields=["state"], name="exports_run_open", condition=Q(state__in=["queued", "running"])),
        ]

    def __str__(self) -> str:
        return f"Run {self.pk} of {self.name}"

    @property
    def is_open(self) -> bool:
        return self.state in self.OPEN

    @property
    def is_stream(self) -> bool:
        """Whether it never ends by itself."""
        return bool(self.snapshot["schedule"] == ExportSchedule.STREAM)

    @property
    def makes_file(self) -> bool:
        """Whether it writes a file of this site."""
        return self.snapshot["target"] in {ExportTarget.DOWNLOAD, ExportTarget.DIRECTORY}

    @property
    def has_file(self) -> bool:
        """Whether there is a complete file to download."""
        return self.state == self.State.DONE and bool(self.file) and self.file_removed_at is None

    @property
    def percent(self) -> int | None:
        """Progress in percent; None where it is not known."""
        if self.state == self.State.DONE:
            return 100
        if self.total is None or self.is_stream:
            return None
        return min(99, 100 * self.counted // self.total) if self.total else 0

    @property
    def took(self) -> timedelta | None:
        """Duration until its end, or until now."""
        return (self.ended_at or timezone.now()) - self.started_at if self.started_at else None
