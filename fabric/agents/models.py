"""Agents of hosts and their answers to commands."""

from __future__ import annotations

from django.db import models

from core import credentials
from fabric.inventory.models import Host


class HostAgent(models.Model):
    """The agent of a host: its key, and its newest report."""

    host = models.OneToOneField(Host, primary_key=True, on_delete=models.CASCADE, related_name="agent")
    digest = models.CharField(max_length=32, unique=True, editable=False)  # of the host's identity, as messages have it
    key_encrypted = models.TextField(editable=False)  # shared with the agent only: signs messages in both directions
    created_at = models.DateTimeField(auto_now_add=True)
    reported_at = models.DateTimeField(null=True, editable=False)
    report = models.JSONField(default=dict, editable=False)  # hostwire.protocol.HostReport as JSON
    # The agent's start and the number of its report: an older one that arrives late is rejected.
    started = models.FloatField(default=0.0, editable=False)
    number = models.PositiveBigIntegerField(default=0, editable=False)
    version = models.CharField(max_length=50, blank=True)
    # The operation that has claimed the host for a release or rescan, and until when the claim is valid.
    turn_of = models.UUIDField(null=True, editable=False)
    turn_until = models.DateTimeField(null=True, editable=False)

    def __str__(self) -> str:
        return f"Agent of {self.host}"

    @property
    def key(self) -> str:
        """The key in clear text; raises Unavailable when the site's own key does not match."""
        return credentials.decrypt(self.key_encrypted)


class HostAnswer(models.Model):
    """The answer of an agent to one command, {} until it arrives; kept for a day."""

    nonce = models.CharField(max_length=64, primary_key=True)
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="answers")
    body = models.JSONField(default=dict)
    received_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.nonce
