"""Images of firmware that administrators have uploaded, and logs of BMCs that they have collected."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from core.database import natural
from core.language import gettext_lazy
from fabric.inventory.models import ManagedPart
from fabric.operations.models import Operation


class FirmwareImage(models.Model):
    """An uploaded image; its content is a file named by the id, see `fabric.maintenance.files`."""

    name = models.CharField(max_length=200)
    size = models.BigIntegerField()  # bytes
    sha256 = models.CharField(max_length=64)
    uploaded_by_name = models.CharField(max_length=150)
    uploaded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = [natural("name"), "pk"]
        verbose_name = gettext_lazy("firmware image")

    def __str__(self) -> str:
        return self.name


class CollectedLog(models.Model):
    """Logs of a BMC as a file, named by the id."""

    managed_part = models.ForeignKey(ManagedPart, null=True, on_delete=models.SET_NULL, related_name="collected_logs")
    operation = models.OneToOneField(Operation, null=True, on_delete=models.SET_NULL, related_name="collected_log")
    name = models.CharField(max_length=300)
    size = models.BigIntegerField()  # bytes
    sha256 = models.CharField(max_length=64)
    collected_by_name = models.CharField(max_length=150)
    collected_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-collected_at", "-pk"]
        verbose_name = gettext_lazy("collected log")

    def __str__(self) -> str:
        return self.name
