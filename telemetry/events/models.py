"""What happened: one row an event, and the searches that people keep.

Events have no foreign keys. What is said of a thing stays when the thing goes, and removing a chassis does not have to
touch a million rows.
"""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import User


class EventSource(models.TextChoices):
    """Where an event comes from."""

    BMC = "bmc", "BMC"
    OPERATION = "operation", "Operation"
    ALERT = "alert", "Alert"
    SIGN_IN = "sign_in", "Sign-in"
    SITE = "site", "Site"


class EventSeverity(models.TextChoices):
    """How much it matters, in Redfish's words, the least first."""

    OK = "OK", "OK"
    WARNING = "Warning", "Warning"
    CRITICAL = "Critical", "Critical"


class EventQuerySet(models.QuerySet["Event"]):
    """Events to read."""

    def visible_to(self, person: User) -> Self:
        """Return what a person may see: all for administrators, else what was the tenant's then, and own sign-ins."""
        if not person.is_active:
            return self.none()
        if person.is_administrator:
            return self.all()
        own = Q(source=EventSource.SIGN_IN, person_id=person.pk)
        if person.tenant_id is None:
            return self.filter(own)
        return self.filter(own | Q(tenant_id=person.tenant_id))


def event_key(source: str, chassis_id: int | None, key: str) -> str | None:
    """Return what makes an event known when it is told again, None for one that is told once anyway."""
    return f"{source}/{chassis_id or 0}/{key}"[:300] if key else None


class Event(models.Model):
    """Something that happened, told once.

    `id` grows in the order in which events came to be known, `at` says when they happened: what is read from a BMC's
    log after an outage comes late. `key` is what makes a second telling of the same thing be known as that.
    """

    at = models.DateTimeField()  # by our clock
    told_at = models.DateTimeField(null=True)  # as the BMC's clock had it
    received_at = models.DateTimeField(default=timezone.now)
    source = models.CharField(max_length=10, choices=EventSource)
    severity = models.CharField(max_length=10, choices=EventSeverity)
    message_id = models.CharField(max_length=200)  # as it was told: 'ResourceEvent.1.3.ResourceChanged'
    message = models.CharField(max_length=200)  # without its version, by which events are found
    text = models.TextField()
    arguments = models.JSONField(default=list)
    chassis_id = models.BigIntegerField(null=True)
    chassis_name = models.CharField(max_length=100, blank=True)
    key = models.CharField(max_length=300, unique=True, null=True)  # noqa: DJ001 - see `event_key`: those without are many
    # What it is about, and who held that then.
    device_id = models.BigIntegerField(null=True)
    port_id = models.BigIntegerField(null=True)
    drawer_id = models.BigIntegerField(null=True)
    host_id = models.BigIntegerField(null=True)
    tenant_id = models.BigIntegerField(null=True)
    subject_name = models.CharField(max_length=300, blank=True)
    tenant_name = models.CharField(max_length=100, blank=True)
    link = models.CharField(max_length=400, blank=True)  # path of the thing's page
    person_id = models.BigIntegerField(null=True)
    person_name = models.CharField(max_length=150, blank=True)
    # Of a BMC's event: the resource, its own id, where it was told, the account and address of the request behind it.
    origin_uri = models.CharField(max_length=400, blank=True)
    event_id = models.CharField(max_length=100, blank=True)
    entry_uri = models.CharField(max_length=400, blank=True)  # '' until it is seen in a log
    streamed = models.BooleanField(default=False)
    originator = models.CharField(max_length=100, blank=True)
    origin_address = models.CharField(max_length=100, blank=True)
    # A number made of what an event says of itself: what the stream told and what the log tells have the same one.
    signature = models.BigIntegerField(null=True)

    objects = EventQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [
            models.Index(fields=["at", "id"], name="events_at"),
            models.Index(fields=["source", "at", "id"], name="events_source"),
            models.Index(fields=["severity", "at", "id"], name="events_severity"),
            models.Index(fields=["message", "at", "id"], name="events_message"),
            # Most events are about few of these: an index of those alone is small.
            *(
                models.Index(fields=[name, "at", "id"], condition=Q((f"{name}__isnull", False)), name=f"events_{short}")
                for name, short in (
                    ("chassis_id", "chassis"),
                    ("device_id", "device"),
                    ("port_id", "port"),
                    ("drawer_id", "drawer"),
                    ("host_id", "host"),
                    ("tenant_id", "tenant"),
                    ("person_id", "person"),
                )
            ),
            models.Index(
                fields=["chassis_id", "signature"], condition=Q(signature__isnull=False), name="events_signature"
            ),
        ]

    def __str__(self) -> str:
        return self.text


class SavedView(models.Model):
    """A search that a person keeps under a name; the default one is shown when the page is opened without any."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="event_views")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=2000, blank=True)  # of the page's address, as telemetry.events.filters reads it
    is_default = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["person", "name"], name="one_event_view_a_name"),
            models.UniqueConstraint(
                fields=["person"], condition=Q(is_default=True), name="one_default_event_view_a_person"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Position(models.Model):
    """How far a log or stream of a BMC has been read; moves in the transaction that writes what was read."""

    chassis_id = models.BigIntegerField()
    uri = models.CharField(max_length=400)  # of the log's entries, or of the stream
    entry_uri = models.CharField(max_length=400, blank=True)  # of a log: the newest entry that was read,
    told = models.CharField(max_length=60, blank=True)  # the time it gives, as it was told,
    count = models.PositiveIntegerField(default=0)  # and how many entries there were
    last_id = models.CharField(max_length=100, blank=True)  # of a stream: what to ask for events after
    moved_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chassis_id", "uri"], name="one_position_a_log")]

    def __str__(self) -> str:
        return f"{self.uri} of chassis {self.chassis_id}"
