"""Execution traces that people imported."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Tenant
from accounts.visibility import TenantQuerySet


class ImportedTrace(models.Model):
    """A trace of Chakra of one device: what it holds, and the file, compressed. A tenant has each file once."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    title = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64)  # of the file as it was imported, hexadecimal
    size = models.PositiveIntegerField()  # bytes of it
    content = models.BinaryField()  # the file, zstd
    # Its nodes by benchmarks.simulation.chakra.NodeKind, and its bytes by kind of collective.
    nodes = models.JSONField(default=dict)
    collective_bytes = models.JSONField(default=dict)
    compute_seconds = models.FloatField()
    imported_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="imported_traces"
    )
    imported_by_name = models.CharField(max_length=150)
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.SET_NULL, related_name="imported_traces")
    imported_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["-imported_at"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "sha256"], name="one_trace_a_tenant"),
            models.UniqueConstraint(fields=["sha256"], condition=Q(tenant=None), name="one_trace_without_tenant"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def node_count(self) -> int:
        return sum(self.nodes.values())
