"""Stored state of links: counts that survive resets, the history of states, the verdicts."""

from __future__ import annotations

from django.db import models
from django.db.models import Exists, F, OuterRef, Q

from accounts.models import Tenant
from accounts.visibility import RestrictedQuerySet
from core.language import gettext_lazy
from fabric.history.models import Attachment
from fabric.inventory.models import Chassis, Port
from telemetry.links.rules import LinkLevel


class Watched(models.Model):
    """A chassis whose links are watched: when it was last read, so that gaps without readings are shown.

    `judged_at` is the newest reading up to which its verdicts are valid; it lags where links cannot be judged.
    """

    chassis = models.OneToOneField(Chassis, primary_key=True, on_delete=models.CASCADE, related_name="+")
    seen_at = models.DateTimeField()
    judged_at = models.DateTimeField(null=True)


class LinkCount(models.Model):
    """A port's counters, their totals since the start of the watch, and the state of its link.

    `totals` continue over resets; `raw` are the BMC's counters, since `reset_at` or their own start.
    """

    port = models.OneToOneField(Port, primary_key=True, on_delete=models.CASCADE, related_name="link_count")
    watched_since = models.DateTimeField()
    raw = models.JSONField(default=dict)  # with the byte counters, which a reset clears, too
    totals = models.JSONField(default=dict)
    counted_at = models.DateTimeField(null=True)  # of `raw`
    reset_at = models.DateTimeField(null=True)
    status = models.CharField(max_length=30, blank=True)
    width = models.PositiveIntegerField(null=True)
    speed_gbps = models.FloatField(null=True)
    state_since = models.DateTimeField()


class LinkMinute(models.Model):
    """Gains of a port's error counters within a minute; no row without a gain."""

    port = models.ForeignKey(Port, on_delete=models.CASCADE, related_name="link_minutes")
    minute = models.DateTimeField()
    counts = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["port", "minute"], name="link_minute")]


class PortHistoryQuerySet(RestrictedQuerySet):
    """A tenant sees rows that ended after the start of its lease of the port's device or host port.

    Rows that ended while another device was in the slot are not visible to it, however old its lease is.
    """

    when = "until"

    def granted_to(self, tenant_id: int) -> Q:
        seen = Q()
        for owner in ("port__slot__device", "port__host_port"):
            lasts = Q((f"{owner}__tenant_since", None)) | Q((f"{self.when}__gt", F(f"{owner}__tenant_since")))
            if owner == "port__slot__device":
                others = Attachment.objects.exclude(device=OuterRef(owner))
                lasts &= Q(~Exists(others.filter(slot=OuterRef("port__slot"), until__gte=OuterRef(self.when))))
            if self.when == "until":
                lasts |= Q(until=None)
            seen |= Q((f"{owner}__tenant", tenant_id)) & lasts
        return seen


class LinkSpan(models.Model):
    """A span in which a link was in one state, at one width and speed; the newest of a port has no end.

    Where a link changes too often, one row with the status 'Flapping' counts the `drops`.
    """

    class LinkSpanQuerySet(PortHistoryQuerySet):
        """See PortHistoryQuerySet; for a tenant, a span starts no earlier than its lease of the port."""

    port = models.ForeignKey(Port, on_delete=models.CASCADE, related_name="link_spans")
    since = models.DateTimeField()
    until = models.DateTimeField(null=True)
    status = models.CharField(max_length=30, blank=True)
    width = models.PositiveIntegerField(null=True)
    speed_gbps = models.FloatField(null=True)
    asked = models.BooleanField(default=False)  # an operation of this site was changing the link at its start
    drops = models.PositiveIntegerField(default=0)

    objects = LinkSpanQuerySet.as_manager()

    class Meta:
        ordering = ["-since", "-pk"]
        indexes = [models.Index(fields=["port", "-since"], name="link_span_since")]
        constraints = [models.UniqueConstraint(fields=["port"], condition=Q(until=None), name="link_span_open")]


class CounterReset(models.Model):
    """A reset of a port's counters, between `not_before` and `at`."""

    class How(models.TextChoices):
        ASKED = "asked", gettext_lazy("asked for here")
        BMC = "bmc", gettext_lazy("by the BMC")
        REBOOT = "reboot", gettext_lazy("the BMC restarted")

    class CounterResetQuerySet(PortHistoryQuerySet):
        when = "at"

    port = models.ForeignKey(Port, on_delete=models.CASCADE, related_name="counter_resets")
    at = models.DateTimeField()
    not_before = models.DateTimeField(null=True)
    how = models.CharField(max_length=10, choices=How)
    person_name = models.CharField(max_length=150, blank=True)
    counted = models.JSONField(default=dict)  # the error counters before the reset
    seen = models.BooleanField(default=False)  # the readings show it; for ASKED only

    objects = CounterResetQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [models.Index(fields=["port", "-at"], name="counter_reset_at")]


class LinkVerdict(models.Model):
    """The verdict on a link, on all facts (no tenant), or on those visible to its tenant: since the start of its lease.

    `base` are the totals, `before` the counters themselves, at the start of the lease.
    """

    port = models.ForeignKey(Port, on_delete=models.CASCADE, related_name="link_verdicts")
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="+")
    held_since = models.DateTimeField(null=True)
    base = models.JSONField(default=dict)
    before = models.JSONField(default=dict)
    level = models.CharField(max_length=10, choices=[(one.value, one.value) for one in LinkLevel])
    rank = models.PositiveSmallIntegerField()
    since = models.DateTimeField()  # start of the current level
    judged_at = models.DateTimeField()
    reasons = models.JSONField(default=list)  # [{"code", "level", "sentence"}], worst first
    sent_rate = models.FloatField(default=0.0)  # 1/s
    received_rate = models.FloatField(default=0.0)
    correctable_rate = models.FloatField(default=0.0)
    flaps = models.PositiveIntegerField(default=0)  # of the last hour
    recoveries = models.PositiveIntegerField(default=0)
    errors = models.PositiveBigIntegerField(default=0)  # of all counters, since the start of the watch, or of the lease

    class Meta:
        indexes = [models.Index(fields=["tenant", "-rank"], name="link_verdict_worst")]
        constraints = [
            models.UniqueConstraint(fields=["port"], condition=Q(tenant=None), name="link_verdict_of_all"),
            models.UniqueConstraint(fields=["port", "tenant"], name="link_verdict_of_tenant"),
        ]
