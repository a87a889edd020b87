"""Changes of hardware: plans, their operations, and the proof that no other link changed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from accounts.models import Tenant
from accounts.visibility import RestrictedQuerySet
from core.language import gettext_lazy
from fabric.inventory.models import Approvable, Chassis, Device, Drawer, Host, HostPort, ManagedPart, Port


class Plan(models.Model):
    """A desired state as ordered operations: a draft for review until it is applied, one job from then on."""

    class State(models.TextChoices):
        """The state of a plan. STOPPED waits for a decision: resume, roll back or leave; DRAFT can be discarded."""

        DRAFT = "draft", gettext_lazy("Draft")
        RUNNING = "running", gettext_lazy("Running")
        CANCELLING = "cancelling", gettext_lazy("Cancelling")  # no further step starts; running ones end first
        STOPPED = "stopped", gettext_lazy("Stopped")
        RESUMING = "resuming", gettext_lazy("Resuming")  # the hardware is read, then the rest is replanned
        ROLLING_BACK = (
            "rolling_back",
            gettext_lazy("Rolling back"),
        )  # the hardware is read, then the rollback is planned and run
        DONE = "done", gettext_lazy("Done")
        CANCELLED = "cancelled", gettext_lazy("Cancelled")
        ROLLED_BACK = "rolled_back", gettext_lazy("Rolled back")
        LEFT = "left", gettext_lazy("Left as it is")  # after a stop: a user decided that it stays half done

    ACTIVE = ("running", "cancelling", "resuming", "rolling_back")
    FINAL = ("done", "cancelled", "rolled_back", "left")

    class PlanQuerySet(RestrictedQuerySet):
        """A tenant sees the plans that its members made while they were its members."""

        def granted_to(self, tenant_id: int) -> Q:
            return Q(tenant=tenant_id)

        def active(self) -> Self:
            """Return those that are being applied."""
            return self.filter(state__in=Plan.ACTIVE)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    title = models.CharField(max_length=200)
    state = models.CharField(max_length=15, choices=State, default=State.DRAFT)
    origin = models.CharField(max_length=20, blank=True)  # topology, file, api, drift, lease, undo
    # Both are fabric.plans.rules's DesiredState, as JSON: the desired one, and the one that the plan is based on.
    wanted = models.JSONField(default=dict)
    base = models.JSONField(default=dict)
    # The steps of the preview, as fabric.plans.services writes them: the record of what was approved.
    preview = models.JSONField(default=list)
    on_failure = models.CharField(max_length=10, default="stop")  # stop, or roll_back
    then = models.CharField(max_length=10, blank=True)  # while CANCELLING: 'roll_back' or ''
    round = models.PositiveIntegerField(default=0)  # +1 with every resume and every rollback
    # Until when a worker may read the hardware to plan a resume or rollback; it renews that, or is dead.
    planning_until = models.DateTimeField(null=True, editable=False)
    by_site = models.BooleanField(default=False)  # requested by the site itself, such as at the end of a lease
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="plans"
    )
    requested_by_name = models.CharField(max_length=150)
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.SET_NULL, related_name="plans")
    request_id = models.CharField(max_length=64, blank=True)  # of the request that applied it, as in the audit log
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    applied_at = models.DateTimeField(null=True, editable=False)
    finished_at = models.DateTimeField(null=True, editable=False)
    # Who applied, resumed, cancelled, rolled back or left it last: further changes are made in their name.
    acting = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    acting_name = models.CharField(max_length=150, blank=True)
    sentence = models.TextField(blank=True)  # why it stopped, or what it waits for
    idempotency_key = models.CharField(max_length=200, blank=True)
    request_digest = models.CharField(max_length=64, blank=True)

    objects = PlanQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["requested_by", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="one_plan_an_idempotency_key",
            ),
        ]
        indexes = [models.Index(fields=["state"])]

    def __str__(self) -> str:
        return self.title

    @property
    def is_active(self) -> bool:
        """Whether it is being applied."""
        return self.state in self.ACTIVE

    @property
    def is_final(self) -> bool:
        """Whether its state can no longer change."""
        return self.state in self.FINAL


class Operation(models.Model):
    """A change of hardware: requested, carried out by a worker, done only after a read-back."""

    class Kind(models.TextChoices):
        """The kind of change."""

        ATTACH = "attach", gettext_lazy("Attach")  # from no host to target
        DETACH = "detach", gettext_lazy("Detach")  # from source to no host
        MOVE = "move", gettext_lazy("Move")  # from source to target
        MODE = "mode", gettext_lazy("Change mode")  # of a drawer
        PORT = "port", gettext_lazy("Configure port")  # its type and lanes
        TRIAL = "trial", gettext_lazy("Try a way to attach")  # to target and back, to find the dialect of the chassis
        CABLE = "cable", gettext_lazy("Move cable")  # of a host port, by a person, to another host
        RESET = "reset", gettext_lazy("Reset")  # of a part, or its power on or off
        FIRMWARE = "firmware", gettext_lazy("Update firmware")  # of a part
        LOGS = "logs", gettext_lazy("Collect logs")  # of a BMC, into a file of the site

    class State(models.TextChoices):
        """The state of an operation. DONE, FAILED and CANCELLED are final."""

        REQUESTED = "requested", gettext_lazy("Requested")
        RUNNING = "running", gettext_lazy("Running")
        VERIFYING = "verifying", gettext_lazy("Verifying")
        DONE = "done", gettext_lazy("Done")
        FAILED = "failed", gettext_lazy("Failed")
        CANCELLED = "cancelled", gettext_lazy("Cancelled")

    # Those that run alone in their chassis: whatever else works on it may lose the BMC or a link.
    EXCLUSIVE = ("reset", "trial", "firmware")
    # Those that change nothing, and may take half an hour: only what runs alone waits for them.
    READING = ("logs",)
    FINAL = ("done", "failed", "cancelled")
    AT_WORK = ("running", "verifying")

    class OperationQuerySet(RestrictedQuerySet):
        """A tenant sees the operations on its devices since they were granted, and those its members requested."""

        def granted_to(self, tenant_id: int) -> Q:
            since = Q(device__tenant_since=None) | Q(requested_at__gte=F("device__tenant_since"))
            return Q(Q(device__tenant=tenant_id) & since) | Q(tenant=tenant_id)

        def open(self) -> Self:
            """Return those that have not ended."""
            return self.exclude(state__in=Operation.FINAL)

        def in_turn(self) -> Self:
            """Return them in the order in which they are carried out within a drawer."""
            return self.order_by("requested_at", "position", "pk")

        def in_turn_to_run(self) -> Self:
            """Return them in the same order, but one that has begun comes first: clocks are set back."""
            return self.order_by("-attempts", "requested_at", "position", "pk")

        def in_queue_of(self, operation: Operation) -> Self:
            """Return those that are carried out one after the other with an operation, itself included."""
            rows = self.filter(chassis=operation.chassis_id)
            if operation.kind in Operation.EXCLUSIVE:
                return rows
            if operation.kind in Operation.READING:
                return rows.filter(kind__in=(*Operation.READING, *Operation.EXCLUSIVE))
            in_drawer = Q(drawer=operation.drawer_id) & ~Q(kind__in=Operation.READING)
            return rows.filter(in_drawer | Q(kind__in=Operation.EXCLUSIVE))

        def at_work_since(self, at: datetime) -> Self:
            """Return those running now, or ended since: their read-back is newer than values read then."""
            return self.filter(Q(state__in=Operation.AT_WORK) | Q(finished_at__gte=at))

        def subjects(self) -> Iterator[tuple[type[Approvable], int | None]]:
            """Return the part that each changes, as the model and the id."""
            return map(operation_subject_key, self.values(*SUBJECT_FIELDS))

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=10, choices=Kind)
    state = models.CharField(max_length=10, choices=State, default=State.REQUESTED)
    plan = models.ForeignKey(Plan, null=True, on_delete=models.CASCADE, related_name="operations")
    position = models.PositiveIntegerField(default=0)  # in its plan; those of the rollback come last
    round = models.PositiveIntegerField(default=0)  # of its plan, when it was planned
    is_rollback = models.BooleanField(default=False)
    # Positions in the plan that come before it, for display: the queue of the drawer orders them.
    after = models.JSONField(default=list)
    chassis = models.ForeignKey(Chassis, on_delete=models.CASCADE, related_name="operations")
    drawer = models.ForeignKey(Drawer, null=True, on_delete=models.CASCADE, related_name="operations")
    device = models.ForeignKey(Device, null=True, on_delete=models.CASCADE, related_name="operations")
    device_identity = models.CharField(max_length=700, blank=True)  # of the device that was in the slot at the request
    # Of CABLE, the source is the host port whose cable is moved.
    source = models.ForeignKey(HostPort, null=True, on_delete=models.SET_NULL, related_name="operations_from")
    target = models.ForeignKey(HostPort, null=True, on_delete=models.SET_NULL, related_name="operations_to")
    port = models.ForeignKey(Port, null=True, on_delete=models.SET_NULL, related_name="operations")
    host = models.ForeignKey(Host, null=True, on_delete=models.SET_NULL, related_name="operations")
    managed_part = models.ForeignKey(ManagedPart, null=True, on_delete=models.SET_NULL, related_name="operations")
    mode = models.CharField(max_length=30, blank=True)
    # Of PORT: {"port_type", "configured_width"}; of TRIAL: {"dialect"}; of RESET and FIRMWARE: `ResetSetting` and
    # `FirmwareSetting` of fabric.operations.rules.
    setting = models.JSONField(default=dict)
    forced = models.BooleanField(default=False)  # detach although it is in use; confirmed by typing
    # Names at the time of the request: the sentence stays true when hardware or users are removed.
    summary = models.CharField(max_length=300)
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    requested_by_name = models.CharField(max_length=150)
    # The requester's tenant then: a user who moves to another tenant takes nothing along.
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.SET_NULL, related_name="operations")
    request_id = models.CharField(max_length=64, blank=True)  # of the requesting request, as in the audit log
    requested_at = models.DateTimeField(default=timezone.now, editable=False)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    # [{"name", "state": "waiting|running|done|failed|skipped", "started_at", "finished_at", "sentence"}]
    steps = models.JSONField(default=list)
    error = models.TextField(blank=True)
    idempotency_key = models.CharField(max_length=200, blank=True)
    request_digest = models.CharField(max_length=64, blank=True)
    worker = models.CharField(max_length=100, blank=True)  # the worker that has claimed it
    lease_until = models.DateTimeField(null=True)  # its claim, which it renews; None: nobody has
    attempts = models.PositiveIntegerField(default=0)

    objects = OperationQuerySet.as_manager()

    class Meta:
        ordering = ["-requested_at", "-position"]
        constraints = [
            models.UniqueConstraint(
                fields=["device"],
                # A plan may detach a device, change the mode, and reattach it; its lock serialises the rest.
                condition=~Q(state__in=["done", "failed", "cancelled"])
                & Q(device__isnull=False)
                & Q(plan__isnull=True),
                name="one_open_operation_a_device",
            ),
            models.UniqueConstraint(
                fields=["requested_by", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="one_operation_an_idempotency_key",
            ),
            models.UniqueConstraint(
                fields=["plan", "position"], condition=Q(plan__isnull=False), name="one_operation_a_position"
            ),
        ]
        indexes = [models.Index(fields=["state", "lease_until"])]

    def __str__(self) -> str:
        return self.summary

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state not in self.FINAL

    @property
    def subject(self) -> Approvable | None:
        """The part that it changes."""
        found: Approvable | None = getattr(self, SUBJECTS.get(self.kind, DEFAULT_SUBJECT)[1])
        return found


# The part that an operation of a kind changes, and the column that names it.
DEFAULT_SUBJECT: tuple[type[Approvable], str] = (Device, "device")
SUBJECTS: dict[str, tuple[type[Approvable], str]] = {
    Operation.Kind.MODE: (Drawer, "drawer"), Operation.Kind.CABLE: (HostPort, "source"),
    Operation.Kind.PORT: (Port, "port"),
}  # fmt: skip
SUBJECT_FIELDS = ("kind", "device", "drawer", "source", "port")


def operation_subject_key(row: Mapping[str, Any]) -> tuple[type[Approvable], int | None]:
    """Return the part that an operation changes as the model and the id, from its row as `SUBJECT_FIELDS`."""
    model, column = SUBJECTS.get(row["kind"], DEFAULT_SUBJECT)
    return model, row[column]


class Proof(models.Model):
    """Snapshots of all other hardware before and after an operation, and the conclusion from them."""

    operation = models.OneToOneField(Operation, primary_key=True, on_delete=models.CASCADE, related_name="proof")
    # {"zones": {uri: [members]}, "links": {port uri: [status, width, active width, Gb/s]}}, without its own devices
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    before_at = models.DateTimeField(null=True)
    after_at = models.DateTimeField(null=True)
    untouched = models.BooleanField(null=True)  # None: it could not be read
    differences = models.JSONField(default=list)  # [{"uri", "name", "tenant", "before", "after", "because"}]
    sentence = models.CharField(max_length=500, blank=True)  # for everybody who sees the operation: names nobody else

    def __str__(self) -> str:
        return self.sentence
