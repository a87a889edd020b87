"""Leases and their items, e-mails, quotas, tenures, and the activity of leased devices."""

from __future__ import annotations

from typing import Any, Final, Self

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Tenant
from accounts.visibility import TenantQuerySet
from core.language import gettext_lazy
from fabric.inventory.models import Device, HostPort
from fabric.operations.models import Plan

HOST_PORT: Final = "host_port"
# What can be leased: each kind of device, and host ports.
KINDS: Final = [*Device.Kind.choices, (HOST_PORT, gettext_lazy("Host port"))]


class Lease(models.Model):
    """A tenant's lease of devices and host ports from a start to an end (None: until further notice)."""

    class State(models.TextChoices):
        """The state of a lease. DECLINED, WITHDRAWN and ENDED are final."""

        REQUESTED = "requested", gettext_lazy("Waiting for a decision")
        DECLINED = "declined", gettext_lazy("Declined")
        WITHDRAWN = "withdrawn", gettext_lazy("Withdrawn")
        APPROVED = "approved", gettext_lazy("Approved")  # starts later
        ACTIVE = "active", gettext_lazy("Active")
        ENDING = "ending", gettext_lazy("Returning")  # its end has passed: attached devices are detached first
        ENDED = "ended", gettext_lazy("Ended")

    OPEN = ("requested", "approved", "active", "ending")
    BOOKED = ("approved", "active")  # those whose time is reserved
    IN_EFFECT = ("active", "ending")  # those whose parts are the tenant's

    class LeaseQuerySet(TenantQuerySet):
        def open(self) -> Self:
            """Return those that have not ended."""
            return self.filter(state__in=Lease.OPEN)

    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.SET_NULL, related_name="leases")
    tenant_name = models.CharField(max_length=100)  # kept for a tenant that was removed
    state = models.CharField(max_length=10, choices=State, default=State.REQUESTED)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)
    # The request: [{"kind": one of KINDS, "count": int, "chassis": id of a chassis or None}]
    wishes = models.JSONField(default=list)
    note = models.TextField(blank=True)  # what it is for
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    asked_by_name = models.CharField(max_length=150)
    asked_at = models.DateTimeField(default=timezone.now, editable=False)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    decided_by_name = models.CharField(max_length=150, blank=True)
    decided_at = models.DateTimeField(null=True)
    reason = models.TextField(blank=True)  # of the decision
    # The requested new end, None: no request.
    extension_to = models.DateTimeField(null=True)
    extension_note = models.TextField(blank=True)
    extension_by_name = models.CharField(max_length=150, blank=True)
    warned_seconds = models.PositiveIntegerField(null=True)  # the shortest warning threshold that was reported
    # While it is ENDING.
    plan = models.ForeignKey(Plan, null=True, on_delete=models.SET_NULL, related_name="leases")
    tries = models.PositiveIntegerField(default=0)
    tried_at = models.DateTimeField(null=True)
    trouble = models.TextField(blank=True)  # why it could not be returned at the last try
    ended_at = models.DateTimeField(null=True)

    objects = LeaseQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        indexes = [models.Index(fields=["state", "ends_at"])]
        constraints = [
            models.CheckConstraint(
                name="lease_ends_after_it_starts", condition=Q(ends_at=None) | Q(ends_at__gte=models.F("starts_at"))
            )
        ]

    def __str__(self) -> str:
        return f"Lease {self.pk}"

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state in self.OPEN


class LeaseItem(models.Model):
    """A device or host port of a lease, from `taken_at` (None: not yet) to `released_at` (None: not yet)."""

    lease = models.ForeignKey(Lease, on_delete=models.CASCADE, related_name="items")
    device = models.ForeignKey(Device, null=True, on_delete=models.SET_NULL, related_name="lease_items")
    host_port = models.ForeignKey(HostPort, null=True, on_delete=models.SET_NULL, related_name="lease_items")
    kind = models.CharField(max_length=10, choices=KINDS)
    name = models.CharField(max_length=300)  # with its location, as it was when the lease was made
    taken_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)
    idle_told_at = models.DateTimeField(null=True)  # once for as long as it stays idle

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=[part],
                condition=Q(released_at=None) & Q(taken_at__isnull=False) & Q(**{f"{part}__isnull": False}),
                name=f"one_lease_holds_a_{part}",
            )
            for part in ("device", "host_port")
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def thing(self) -> Device | HostPort | None:
        """The part that it is about; None where that was removed from the site."""
        return self.device if self.device is not None else self.host_port


class LeaseEvent(models.Model):
    """A line of a lease's timeline."""

    lease = models.ForeignKey(Lease, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    by_name = models.CharField(max_length=150)
    sentence = models.TextField()

    class Meta:
        ordering = ["at", "pk"]

    def __str__(self) -> str:
        return self.sentence


class Letter(models.Model):
    """An e-mail about a lease, written with the change that it reports and sent after it, once per address and key."""

    key = models.CharField(max_length=200)
    address = models.EmailField()
    subject = models.CharField(max_length=200)
    body = models.TextField()
    lease = models.ForeignKey(Lease, null=True, on_delete=models.CASCADE, related_name="letters")
    created_at = models.DateTimeField(default=timezone.now)
    claimed_at = models.DateTimeField(null=True)  # by the worker that sends it
    sent_at = models.DateTimeField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["key", "address"], name="one_letter_a_key_and_address")]
        indexes = [models.Index(fields=["sent_at", "created_at"])]

    def __str__(self) -> str:
        return self.subject


class Quota(models.Model):
    """The most that a tenant may have of a kind; a limit of None is no limit."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="quotas")
    kind = models.CharField(max_length=10, choices=KINDS)
    most_at_once = models.PositiveIntegerField(null=True)
    most_hours_a_month = models.PositiveIntegerField(null=True)  # of all parts of the kind together

    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["tenant", "kind"]
        constraints = [models.UniqueConstraint(fields=["tenant", "kind"], name="one_quota_a_kind")]

    def __str__(self) -> str:
        return f"{self.tenant} {self.get_kind_display()}"


class Tenure(models.Model):
    """The tenant of a device or host port over time (end None: present): written wherever `tenant` of one changes.

    Those of one device follow each other and never overlap, so that sums over them are exact.
    """

    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.SET_NULL, related_name="tenures")
    tenant_name = models.CharField(max_length=100)
    device = models.ForeignKey(Device, null=True, on_delete=models.SET_NULL, related_name="tenures")
    host_port = models.ForeignKey(HostPort, null=True, on_delete=models.SET_NULL, related_name="tenures")
    kind = models.CharField(max_length=10, choices=KINDS)
    name = models.CharField(max_length=300)
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["began_at", "pk"]
        indexes = [models.Index(fields=["tenant", "began_at"]), models.Index(fields=["ended_at"])]
        constraints = [
            models.UniqueConstraint(
                fields=[part],
                condition=Q(ended_at=None) & Q(**{f"{part}__isnull": False}),
                name=f"one_tenure_a_{part}",
            )
            for part in ("device", "host_port")
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.tenant_name}"


class Activity(models.Model):
    """The last measured activity of a device; `quiet_since` is None while it is used."""

    device = models.OneToOneField(Device, primary_key=True, on_delete=models.CASCADE, related_name="activity")
    measured_at = models.DateTimeField()
    # Start of the gapless time in which it was measured and idle.
    quiet_since = models.DateTimeField(null=True)
    active_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"Activity of {self.device}"


def kind_of(thing: Any) -> str:
    """Return which of KINDS a device or host port is."""
    return str(thing.kind) if isinstance(thing, Device) else HOST_PORT
