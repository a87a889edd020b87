"""Models of failures of attached devices, and what is to be done about them."""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from accounts.models import Tenant
from accounts.visibility import TenantQuerySet
from core.language import gettext_lazy
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.operations.models import Plan


class FailurePolicy(models.Model):
    """What is done when an attached device of a tenant fails, or with no tenant, one that nobody holds."""

    class Choice(models.TextChoices):
        """What is done; without a row it is ASK, which changes nothing by itself."""

        KEEP = "keep", gettext_lazy("Alert, and keep it attached")
        ASK = "ask", gettext_lazy("Propose a replacement, and wait for consent")
        REPLACE = "replace", gettext_lazy("Replace it at once")

    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="failure_policies")
    choice = models.CharField(max_length=10, choices=Choice, default=Choice.ASK)
    set_by_name = models.CharField(max_length=150)
    set_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "failure policies"
        constraints = [models.UniqueConstraint(Coalesce("tenant", 0), name="one_failure_policy_a_tenant")]

    def __str__(self) -> str:
        return f"{self.tenant or 'Unassigned devices'}: {self.choice}"


class Failure(models.Model):
    """An attached device that failed, or whose link, switch or host did, from when it was noticed until it ended."""

    class Cause(models.TextChoices):
        """What failed."""

        DEVICE = "device", gettext_lazy("Device")
        LINK = "link", gettext_lazy("Link")
        SWITCH = "switch", gettext_lazy("Switch")
        HOST = "host", gettext_lazy("Host")

    class State(models.TextChoices):
        """What is done about it."""

        NOTICED = "noticed", gettext_lazy("Noticed")
        PROPOSED = "proposed", gettext_lazy("Waits for consent")
        KEPT = "kept", gettext_lazy("Kept attached")  # a person, or the policy, decided
        REPLACING = "replacing", gettext_lazy("Being replaced")
        ENDED = "ended", gettext_lazy("Ended")

    class End(models.TextChoices):
        """How it ended."""

        RECOVERED = "recovered", gettext_lazy("It works again")
        REPLACED = "replaced", gettext_lazy("Replaced")
        DETACHED = "detached", gettext_lazy("No longer attached there")
        REASSIGNED = "reassigned", gettext_lazy("The tenant of the device has changed")

    class FailureQuerySet(TenantQuerySet):
        """A tenant sees those of devices that it held then."""

        def open(self) -> Self:
            """Return those that have not ended."""
            return self.exclude(state=Failure.State.ENDED)

        def reassigned(self) -> Self:
            """Return the open ones whose device has another tenant by now, who decides from then on."""
            same = Q(tenant=F("device__tenant")) | Q(tenant=None, device__tenant=None)
            return self.open().exclude(Q(state=Failure.State.REPLACING) | same)

    chassis = models.ForeignKey(Chassis, on_delete=models.CASCADE, related_name="failures")
    device = models.ForeignKey(Device, on_delete=models.CASCADE, related_name="failures")
    host_port = models.ForeignKey(HostPort, on_delete=models.CASCADE, related_name="failures")
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="failures")
    cause = models.CharField(max_length=10, choices=Cause)
    # Names at the time, for everybody who sees the device.
    device_name = models.CharField(max_length=300)
    host_name = models.CharField(max_length=200, blank=True)
    noticed_at = models.DateTimeField()

    state = models.CharField(max_length=10, choices=State, default=State.NOTICED)
    spare = models.ForeignKey(Device, null=True, on_delete=models.SET_NULL, related_name="+")
    spare_name = models.CharField(max_length=300, blank=True)
    from_pool = models.BooleanField(default=False)  # the spare was nobody's, and the failed device becomes so
    plan = models.ForeignKey(Plan, null=True, on_delete=models.SET_NULL, related_name="failures")
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    decided_by_name = models.CharField(max_length=150, blank=True)
    why = models.CharField(max_length=500, blank=True)  # why it is not replaced
    tried_at = models.DateTimeField(null=True)  # when the site last tried to replace it, and was refused
    ended_at = models.DateTimeField(null=True)
    end = models.CharField(max_length=10, choices=End, blank=True)

    objects = FailureQuerySet.as_manager()

    class Meta:
        ordering = ["-noticed_at", "-pk"]
        constraints = [
            models.UniqueConstraint(fields=["device"], condition=~Q(state="ended"), name="one_open_failure_a_device")
        ]
        indexes = [models.Index(fields=["chassis", "ended_at"])]

    def __str__(self) -> str:
        return f"{self.device_name}: {self.get_cause_display()}"
