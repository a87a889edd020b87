"""Models of history: the attachments of each device over time."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from accounts.models import Tenant
from accounts.visibility import RestrictedQuerySet
from fabric.inventory.models import Chassis, Device, HostPort, Slot
from fabric.operations.models import Operation


class Attachment(models.Model):
    """A period of one device in one slot, attached to one host port or none, granted to one tenant or none.

    Names are those of the time. Periods of a device follow each other; while it is missing there is none.
    """

    class Origin(models.TextChoices):
        """What started or ended a period."""

        OPERATION = "operation", "an operation"
        OUTSIDE = "outside", "outside FalconWeb"
        FOUND = "found", "found there"  # at the first discovery of the device
        GRANT = "grant", "another tenant"
        SWAP = "swap", "another device"
        MISSING = "missing", "missing"

    class AttachmentQuerySet(RestrictedQuerySet):
        """A tenant sees the periods of its devices since they were granted."""

        def granted_to(self, tenant_id: int) -> Q:
            since = Q(device__tenant_since=None) | Q(since__gte=F("device__tenant_since"))
            return Q(device__tenant=tenant_id) & since

    chassis = models.ForeignKey(Chassis, on_delete=models.CASCADE, related_name="attachments")
    device = models.ForeignKey(Device, on_delete=models.CASCADE, related_name="attachments")
    slot = models.ForeignKey(Slot, null=True, on_delete=models.SET_NULL, related_name="attachments")
    host_port = models.ForeignKey(HostPort, null=True, on_delete=models.SET_NULL, related_name="attachments")
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.SET_NULL, related_name="attachments")
    device_name = models.CharField(max_length=200)
    serial_number = models.CharField(max_length=200, blank=True)
    slot_name = models.CharField(max_length=200, blank=True)
    host_port_label = models.CharField(max_length=50, blank=True)  # '' for no host port
    host_name = models.CharField(max_length=200, blank=True)
    tenant_name = models.CharField(max_length=100, blank=True)  # '' while it was unassigned
    since = models.DateTimeField()
    until = models.DateTimeField(null=True)
    origin = models.CharField(max_length=10, choices=Origin)
    begun_by = models.ForeignKey(Operation, null=True, on_delete=models.SET_NULL, related_name="attachments_begun")
    ending = models.CharField(max_length=10, choices=Origin, blank=True)
    ended_by = models.ForeignKey(Operation, null=True, on_delete=models.SET_NULL, related_name="attachments_ended")

    objects = AttachmentQuerySet.as_manager()

    class Meta:
        ordering = ["-since", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["device"], condition=Q(until=None), name="one_open_attachment_a_device")
        ]
        indexes = [models.Index(fields=["slot", "-since"])]

    def __str__(self) -> str:
        return f"{self.device_name} in {self.slot_name or 'no slot'}"
