"""What is remembered of links beyond the newest reading: counts that survive resets, states in time, the verdict."""

from __future__ import annotations

from django.db import models
from django.db.models import Exists, F, OuterRef, Q

from accounts.models import Tenant
from accounts.visibility import RestrictedQuerySet
from fabric.history.models import Attachment
from fabric.inventory.models import Chassis, Port
from telemetry.links.rules import LinkLevel


class Watched(models.Model):
    """A chassis whose links are watched: when it was last read, so that a time without sight is told as one.

    `judged_at` is the newest reading up to which its verdicts hold; it stays behind where they cannot be judged.
    """

    chassis = models.OneToOneField(Chassis, primary_key=True, on_delete=models.CASCADE, related_name="+")
    seen_at = models.DateTimeField()
    judged_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"Links of {self.chassis}"


class LinkCount(models.Model):
    """What a port's counters stand at, what they gained since they are watched, and the state of its link.

    `totals` go on over resets; `raw` is what the BMC counts, since `reset_at` or for as long as it knows.
    """

    port = models.OneToOneField(Port, primary_key=True, on_delete=models.CASCADE, related_name="link_count")
    watched_since = models.DateTimeField()
    raw = models.JSONField(default=dict)  # with the byte counters, which a reset takes back too
    totals = models.JSONField(default=dict)
    counted_at = models.DateTimeField(null=True)  # of `raw`
    reset_at = models.DateTimeField(null=True)
    status = models.CharField(max_length=30, blank=True)
    width = models.PositiveIntegerField(null=True)
    speed_gbps = models.FloatField(null=True)
    state_since = models.DateTimeField()

    def __str__(self) -> str:
        return f"Counts of {self.port}"


class LinkMinute(models.Model):
    """What the error counters of a port gained within a minute; no row where they gained nothing."""

    port = models.ForeignKey(Port, on_delete=models.CASCADE, related_name="link_minutes")
    minute = models.DateTimeField()
    counts = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["port", "minute"], name="link_minute")]

    def __str__(self) -> str:
        return f"{self.port} at {self.minute:%Y-%m-%d %H:%M}"


class PortHistoryQuerySet(RestrictedQuerySet):
    """A tenant sees what ended after a port became its own, by way of the device in its slot or of its host port.

    What ended while another device was in the slot is not its own, however long it has held the one that is there now.
    """

    when = "until"

    def granted_to(self, tenant_id: int) -> Q:
        seen = Q()
        for holder in ("port__slot__device", "port__host_port"):
            lasts = Q((f"{holder}__tenant_since", None)) | Q((f"{self.when}__gt", F(f"{holder}__tenant_since")))
            if holder == "port__slot__device":
                others = Attachment.objects.exclude(device=OuterRef(holder))
                lasts &= Q(~Exists(others.filter(slot=OuterRef("port__slot"), until__gte=OuterRef(self.when))))
            if self.when == "until":
                lasts |= Q(until=None)
            seen |= Q((f"{holder}__tenant", tenant_id)) & lasts
        return seen


class LinkSpan(models.Model):
    """A time during which a link was in one state, at one width and speed; the newest of a port has no end.

    Where a link changes so often that rows would be without end, one row with the status 'Flapping' counts the `drops`.
    """

    class LinkSpanQuerySet(PortHistoryQuerySet):
        """See PortHistoryQuerySet; what began earlier begins, for a tenant, when the port became its own."""

    port = models.ForeignKey(Port, on_delete=models.CASCADE, related_name="link_spans")
    since = models.DateTimeField()
    until = models.DateTimeField(null=True)
    status = models.CharField(max_length=30, blank=True)
    width = models.PositiveIntegerField(null=True)
    speed_gbps = models.FloatField(null=True)
    asked = models.BooleanField(default=False)  # an operation here was at work on the link when it began
    drops = models.PositiveIntegerField(default=0)

    objects = LinkSpanQuerySet.as_manager()

    class Meta:
        ordering = ["-since", "-pk"]
        indexes = [models.Index(fields=["port", "-since"], name="link_span_since")]
        constraints = [models.UniqueConstraint(fields=["port"], condition=Q(until=None), name="link_span_open")]

    def __str__(self) -> str:
        return f"{self.port}: {self.status} since {self.since:%Y-%m-%d %H:%M:%S}"


class CounterReset(models.Model):
    """The counters of a port began anew, between `not_before` and `at`."""

    class How(models.TextChoices):
        """Why."""

        ASKED = "asked", "asked for here"
        BMC = "bmc", "by the BMC"
        REBOOT = "reboot", "the BMC restarted"

    class CounterResetQuerySet(PortHistoryQuerySet):
        """See PortHistoryQuerySet."""

        when = "at"

    port = models.ForeignKey(Port, on_delete=models.CASCADE, related_name="counter_resets")
    at = models.DateTimeField()
    not_before = models.DateTimeField(null=True)
    how = models.CharField(max_length=10, choices=How)
    person_name = models.CharField(max_length=150, blank=True)
    counted = models.JSONField(default=dict)  # where the error counters stood before
    seen = models.BooleanField(default=False)  # of one that was asked for: the readings show it

    objects = CounterResetQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [models.Index(fields=["port", "-at"], name="counter_reset_at")]

    def __str__(self) -> str:
        return f"{self.port}: counters reset at {self.at:%Y-%m-%d %H:%M:%S}"


class LinkVerdict(models.Model):
    """How a link is, by all that is known (no tenant), or by what its tenant may know: what was since it holds it.

    `base` are the totals at which its tenant began, `before` where the counters themselves stood then.
    """

    port = models.ForeignKey(Port, on_delete=models.CASCADE, related_name="link_verdicts")
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="+")
    held_since = models.DateTimeField(null=True)
    base = models.JSONField(default=dict)
    before = models.JSONField(default=dict)
    level = models.CharField(max_length=10, choices=[(one.value, one.value) for one in LinkLevel])
    rank = models.PositiveSmallIntegerField()
    since = models.DateTimeField()  # when the level became this one
    judged_at = models.DateTimeField()
    reasons = models.JSONField(default=list)  # [{"code", "level", "sentence"}], worst first
    sent_rate = models.FloatField(default=0.0)  # 1/s
    received_rate = models.FloatField(default=0.0)
    correctable_rate = models.FloatField(default=0.0)
    flaps = models.PositiveIntegerField(default=0)  # of the last hour
    recoveries = models.PositiveIntegerField(default=0)
    errors = models.PositiveBigIntegerField(default=0)  # of all counters, since the link is watched, or held

    class Meta:
        indexes = [models.Index(fields=["tenant", "-rank"], name="link_verdict_worst")]
        constraints = [
            models.UniqueConstraint(fields=["port"], condition=Q(tenant=None), name="link_verdict_of_all"),
            models.UniqueConstraint(fields=["port", "tenant"], name="link_verdict_of_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.port}: {self.level}"
