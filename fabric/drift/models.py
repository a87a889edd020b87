"""Models of drift: differences from the approved state."""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from accounts.visibility import RestrictedQuerySet
from core.language import gettext_lazy
from fabric.inventory.models import Approvable, Chassis, Device, Drawer, HostPort, Port
from fabric.operations.models import Operation


class Drift(models.Model):
    """A part that differs from its approved state, from when it was noticed until it ended."""

    class Kind(models.TextChoices):
        """The kind of difference."""

        ATTACHMENT = "attachment", gettext_lazy("Attachment")  # where a device is attached
        DEVICE = "device", gettext_lazy("Device")  # another device is in the slot
        MODE = "mode", gettext_lazy("Mode")  # of a drawer
        CABLE = "cable", gettext_lazy("Cable")  # the host that a host port's cable leads to
        PORT = "port", gettext_lazy("Port")  # a port's type or its lanes

    class Cause(models.TextChoices):
        """What is known of the cause."""

        OPERATION = "operation", gettext_lazy("An operation left it so")
        LOG = "log", gettext_lazy("The BMC's log tells")
        UNKNOWN = "unknown", gettext_lazy("Not known")

    class End(models.TextChoices):
        """How a drift ended."""

        ACCEPTED = "accepted", gettext_lazy("Accepted")  # the found state was approved
        REAPPLIED = "re_applied", gettext_lazy("Re-applied")  # an operation restored the approved state
        WENT_AWAY = (
            "went_away",
            gettext_lazy("Went away"),
        )  # the approved state returned without an operation of the site
        SUPERSEDED = (
            "superseded",
            gettext_lazy("Superseded"),
        )  # the state changed again: by an operation, another drift, or missing

    class DriftQuerySet(RestrictedQuerySet):
        """A tenant sees the drift of its parts since they were granted, and of the drawers in which it has a part."""

        def granted_to(self, tenant_id: int) -> Q:
            own = Q()
            for part in ("device", "host_port"):
                since = Q((f"{part}__tenant_since", None)) | Q(noticed_at__gte=F(f"{part}__tenant_since"))
                own |= Q((f"{part}__tenant", tenant_id)) & since
            shared = Q(drawer__slots__device__tenant=tenant_id) | Q(drawer__host_ports__tenant=tenant_id)
            return own | (Q(kind=Drift.Kind.MODE) & shared)

        def open(self) -> Self:
            """Return those that have not ended."""
            return self.filter(ended_at=None)

    chassis = models.ForeignKey(Chassis, on_delete=models.CASCADE, related_name="drifts")
    kind = models.CharField(max_length=12, choices=Kind)
    uri = models.CharField(max_length=400)  # of the part that it is about
    # The part, and of a port the device or host port on it as well.
    device = models.ForeignKey(Device, null=True, on_delete=models.CASCADE, related_name="drifts")
    drawer = models.ForeignKey(Drawer, null=True, on_delete=models.CASCADE, related_name="drifts")
    host_port = models.ForeignKey(HostPort, null=True, on_delete=models.CASCADE, related_name="drifts")
    port = models.ForeignKey(Port, null=True, on_delete=models.CASCADE, related_name="drifts")
    what = models.CharField(max_length=300)  # names at the time, for everybody who sees the part
    # As rows name it (a host port's or host's id, a mode, 'type/lanes', a serial number; '' for none), and in words
    # that may name hosts: pages show them through fabric.drift.selectors, which checks what the user may read.
    expected = models.CharField(max_length=450, blank=True)
    expected_words = models.CharField(max_length=450, blank=True)
    found = models.CharField(max_length=450, blank=True)
    found_words = models.CharField(max_length=450, blank=True)

    # It happened between these two: the last walk without it, and the first with it.
    not_before = models.DateTimeField(null=True)
    noticed_at = models.DateTimeField()
    cause = models.CharField(max_length=10, choices=Cause, default=Cause.UNKNOWN)
    operation = models.ForeignKey(Operation, null=True, on_delete=models.SET_NULL, related_name="drifts")
    log_asked_at = models.DateTimeField(null=True)
    originator = models.CharField(max_length=150, blank=True)  # the account on the BMC, '' where its log has none
    origin_address = models.CharField(max_length=150, blank=True)  # the address of its request
    log_message = models.CharField(max_length=500, blank=True)
    changed_at = models.DateTimeField(null=True)  # by the BMC's clock

    ended_at = models.DateTimeField(null=True)
    end = models.CharField(max_length=12, choices=End, blank=True)
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    ended_by_name = models.CharField(max_length=150, blank=True)
    ended_in = models.ForeignKey(Operation, null=True, on_delete=models.SET_NULL, related_name="+")

    objects = DriftQuerySet.as_manager()

    class Meta:
        ordering = ["-noticed_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["chassis", "kind", "uri"], condition=Q(ended_at=None), name="one_open_drift_a_part"
            )
        ]
        indexes = [models.Index(fields=["chassis", "ended_at"])]

    def __str__(self) -> str:
        return f"{self.what}: {self.found_words}, approved: {self.expected_words}"

    @property
    def part(self) -> Approvable | None:
        """The part that it is about."""
        column = {"mode": "drawer", "cable": "host_port", "port": "port"}.get(self.kind, "device")
        found: Approvable | None = getattr(self, column)
        return found

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.ended_at is None
