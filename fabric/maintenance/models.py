"""Images of firmware that administrators have uploaded."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from core.database import natural
from core.language import gettext_lazy


class FirmwareImage(models.Model):
    """An uploaded image; its content is a file named by the id, see `fabric.maintenance.images`."""

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
