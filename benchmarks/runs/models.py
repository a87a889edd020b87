"""Runs, the resources that they hold, and their recorded series and logs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Final, Self

import msgspec
from django.conf import settings
from django.db import models
from django.db.models import Q
from django.dispatch import Signal
from django.utils import timezone

from accounts.models import Tenant
from accounts.visibility import RestrictedQuerySet
from core.language import gettext_lazy
from fabric.inventory.models import Device, Host
from fabric.operations.models import Plan
from hostwire.training import Spec

EXERCISE_SUFFIX: Final = " (exercise)"  # ends the title of a run that fails on purpose


class Run(models.Model):
    """A requested benchmark: queued, composed, run on a host, recorded, its devices restored."""

    class State(models.TextChoices):
        QUEUED = "queued", gettext_lazy("Queued")  # waits for its devices, its sweep, or its position
        COMPOSING = "composing", gettext_lazy("Composing")  # a plan attaches its devices to its host
        STARTING = "starting", gettext_lazy("Starting")  # the host was requested to start it
        RUNNING = "running", gettext_lazy("Running")
        STOPPING = "stopping", gettext_lazy("Stopping")  # the host was requested to stop it
        RETURNING = "returning", gettext_lazy("Returning devices")  # it has ended; a plan restores its devices
        COMPLETED = "completed", gettext_lazy("Completed")
        FAILED = "failed", gettext_lazy("Failed")
        CANCELLED = "cancelled", gettext_lazy("Cancelled")

    FINAL = ("completed", "failed", "cancelled")
    ON_HOST = ("starting", "running", "stopping")

    class Provenance(models.TextChoices):
        MEASURED = "measured", gettext_lazy("Measured")
        SIMULATED = "simulated", gettext_lazy("Simulated")
        PREDICTED = "predicted", gettext_lazy("Predicted")
        IMPORTED = "imported", gettext_lazy("Imported")

    class RunQuerySet(RestrictedQuerySet):
        """A tenant sees the runs of its users."""

        def granted_to(self, tenant_id: int) -> Q:
            return Q(tenant=tenant_id)

        def open(self) -> Self:
            return self.exclude(state__in=Run.FINAL)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    title = models.CharField(max_length=200)
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    workload = models.CharField(max_length=40)  # a name of the catalogue; imported runs may have others
    preset = models.CharField(max_length=10, blank=True)
    spec = models.JSONField(default=dict)  # hostwire.training.Spec as JSON
    spec_hash = models.CharField(max_length=64, blank=True)
    executor = models.CharField(max_length=10, blank=True)  # torch, simulated; '' for an imported run
    provenance = models.CharField(max_length=10, choices=Provenance)
    # Where it runs: benchmarks.runs.rules.Composition as JSON.
    composition = models.JSONField(default=dict)
    host = models.ForeignKey(Host, null=True, on_delete=models.SET_NULL, related_name="runs")
    devices = models.ManyToManyField(Device, related_name="runs")
    plan = models.ForeignKey(Plan, null=True, on_delete=models.SET_NULL, related_name="+")  # that composed it
    plan_back = models.ForeignKey(Plan, null=True, on_delete=models.SET_NULL, related_name="+")
    keep_composed = models.BooleanField(default=False)  # its devices stay attached after its end
    may_share = models.BooleanField(default=False)  # its host and its switches, with runs that may, too
    # What used them meanwhile: benchmarks.runs.isolation.Overlap as JSON.
    overlaps = models.JSONField(default=list)
    limit_seconds = models.FloatField(default=3600.0)
    # Immutable once it runs: benchmarks.model.topology.Topology, and hostwire.training.Software, as JSON.
    topology = models.JSONField(default=dict)
    software = models.JSONField(default=dict)
    # Summary, once there is one: benchmarks.runs.results.Summary as JSON (medians, percentiles, units).
    results = models.JSONField(default=dict)
    outcome = models.CharField(max_length=10, blank=True)  # known before its devices are restored
    error = models.TextField(blank=True)
    trouble = models.CharField(max_length=20, blank=True)  # out_of_memory, crash, hang, limit, lost, refused, compose
    exit_code = models.IntegerField(null=True)
    sentence = models.TextField(blank=True)  # current activity, or the reason for waiting
    phase = models.CharField(max_length=20, blank=True)
    steps_done = models.PositiveIntegerField(default=0)
    # By name, because sweeps import runs.
    sweep = models.ForeignKey("sweeps.Sweep", null=True, on_delete=models.SET_NULL, related_name="runs")
    position = models.PositiveIntegerField(default=0)  # within its sweep
    point = models.JSONField(default=dict)  # the values of the sweep's axes
    repeat_of = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="repeats")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="runs"
    )
    requested_by_name = models.CharField(max_length=150)
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.SET_NULL, related_name="runs")
    request_id = models.CharField(max_length=64, blank=True)
    queued_at = models.DateTimeField(default=timezone.now, editable=False)
    begun_at = models.DateTimeField(null=True)  # it left the queue
    state_since = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)  # on the host
    ended_at = models.DateTimeField(null=True)  # on the host
    finished_at = models.DateTimeField(null=True)  # its devices restored
    cancel_requested_at = models.DateTimeField(null=True)
    cancelled_by_name = models.CharField(max_length=150, blank=True)
    # The next event and log byte to read from the host, and the claim of a worker, which expires if the worker dies.
    next_event = models.PositiveBigIntegerField(default=0)
    next_byte = models.PositiveBigIntegerField(default=0)
    worker = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True)
    source = models.JSONField(default=dict)  # of an imported run: file, format, line, importer
    idempotency_key = models.CharField(max_length=200, blank=True)
    request_digest = models.CharField(max_length=64, blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ["-queued_at", "-position"]
        constraints = [
            models.UniqueConstraint(
                fields=["requested_by", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="one_run_an_idempotency_key",
            ),
        ]
        indexes = [
            models.Index(fields=["state", "lease_until"]),
            models.Index(fields=["workload", "provenance"]),
            models.Index(fields=["spec_hash"]),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def is_open(self) -> bool:
        return self.state not in self.FINAL

    @property
    def keeps_devices(self) -> bool:
        """Whether its requester keeps its devices attached; the sweep restores the devices of its runs."""
        return self.keep_composed and self.sweep_id is None and not self.point

    def specification(self) -> Spec:
        """Return its specification; raises msgspec.ValidationError for an imported run of another program."""
        return msgspec.convert(self.spec, Spec)

    @property
    def is_on_several_hosts(self) -> bool:
        return bool(self.composition.get("others"))

    def all_nodes(self) -> list[RunNode]:
        """Return its hosts in the order of ranks; the first has its position in the run itself, and is not stored."""
        first = RunNode(run=self, host=self.host, next_event=self.next_event, next_byte=self.next_byte)
        return [first, *(self.nodes.all() if self.is_on_several_hosts else ())]

    @property
    def host_names(self) -> str:
        """The name of its host, of several 'node-a + node-b', those after the first as recorded; '' without one."""
        return "" if self.host is None else " + ".join((self.host.name, *self.topology.get("other_hosts", ())))

    @property
    def exercise(self) -> dict[str, Any]:
        """Its deliberate failure, {"fails": "crash", "after": 5}; {} without one."""
        asked: dict[str, Any] = self.source.get("exercise", {}) if self.executor else {}
        return asked


def host_names(hosts: Iterable[Host]) -> str:
    """Return the name of a run's host, of several 'node-a + node-b'."""
    return " + ".join(one.name for one in hosts)


class RunNode(models.Model):
    """A further host of a run over several, from number 1 on, and the next event and log byte to read from it."""

    class InOrder(models.Manager["RunNode"]):
        """Reads the hosts with them."""

        def get_queryset(self) -> models.QuerySet[RunNode]:
            return super().get_queryset().select_related("host")

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="nodes")
    number = models.PositiveSmallIntegerField(default=0)
    host = models.ForeignKey(Host, null=True, on_delete=models.SET_NULL, related_name="run_nodes")
    next_event = models.PositiveBigIntegerField(default=0)
    next_byte = models.PositiveBigIntegerField(default=0)

    objects = InOrder()

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="one_node_a_number")]

    @property
    def name(self) -> str:
        return self.host.name if self.host is not None else "Its host"


class Hold(models.Model):
    """A resource that a run holds: 'device/12', 'host/3/gpu/0', 'host/3', 'switch/5/shared/…'. One run a key."""

    key = models.CharField(max_length=60, unique=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="holds")


class Series(models.Model):
    """A sequence of values of a run: 'steps/timed/seconds', 'steps/timed/loss', 'gpu/0000:41:00.0/utilisation'."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="series")
    key = models.CharField(max_length=200)
    unit = models.CharField(max_length=20, blank=True)
    source = models.CharField(max_length=40, blank=True)
    interval = models.FloatField(default=0.0)  # seconds between values, or averaged by each
    count = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["key"]
        constraints = [models.UniqueConstraint(fields=["run", "key"], name="one_series_a_key")]


class Chunk(models.Model):
    """Values of a series from number `first` on: little-endian float64, NaN for none; `at` are Unix seconds alike."""

    series = models.ForeignKey(Series, on_delete=models.CASCADE, related_name="chunks")
    first = models.PositiveIntegerField()
    at = models.BinaryField()
    values = models.BinaryField()

    class Meta:
        ordering = ["first"]
        constraints = [models.UniqueConstraint(fields=["series", "first"], name="one_chunk_a_place")]


class LogPart(models.Model):
    """A part of the log of a run's processes, from byte `first` on."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="log_parts")
    first = models.PositiveBigIntegerField()
    text = models.TextField()

    class Meta:
        ordering = ["first"]
        constraints = [models.UniqueConstraint(fields=["run", "first"], name="one_log_part_a_place")]


run_changed = Signal()  # run: Run, whose state has changed
