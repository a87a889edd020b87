"""Events, one row each, and saved searches.

Events have no foreign keys: they outlive their subjects, and removing a chassis does not update a million rows.
"""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import User
from core.language import gettext_lazy


class EventSource(models.TextChoices):
    BMC = "bmc", "BMC"
    OPERATION = "operation", gettext_lazy("Operation")
    ALERT = "alert", gettext_lazy("Alert")
    SIGN_IN = "sign_in", gettext_lazy("Sign-in")
    SITE = "site", gettext_lazy("Site")
    AUDIT = "audit", gettext_lazy("Audit log")


class EventSeverity(models.TextChoices):
    """Severity in Redfish's terms, the least first."""

    OK = "OK", gettext_lazy("OK")
    WARNING = "Warning", gettext_lazy("Warning")
    CRITICAL = "Critical", gettext_lazy("Critical")


class EventQuerySet(models.QuerySet["Event"]):
    def visible_to(self, person: User) -> Self:
        """Return a person's events: all for administrators, else those of their tenant's parts, and own sign-ins."""
        if not person.is_active:
            return self.none()
        if person.is_administrator:
            return self.all()
        own = Q(source=EventSource.SIGN_IN, person_id=person.pk)
        if person.tenant_id is None:
            return self.filter(own)
        return self.filter(own | Q(tenant_id=person.tenant_id))


def event_key(source: str, chassis_id: int | None, key: str) -> str | None:
    """Return the unique key of an event, by which a repeated report is detected; None for events without `key`."""
    return f"{source}/{chassis_id or 0}/{key}"[:300] if key else None


class Event(models.Model):
    """An event, stored once.

    `id` increases in the order in which events are received, `at` is when they happened: events that are read from a
    BMC's log after an outage are late. A repeated report is detected by `key`.
    """

    at = models.DateTimeField()  # by our clock
    told_at = models.DateTimeField(null=True)  # by the BMC's clock
    received_at = models.DateTimeField(default=timezone.now)
    source = models.CharField(max_length=10, choices=EventSource)
    severity = models.CharField(max_length=10, choices=EventSeverity)
    message_id = models.CharField(max_length=200)  # as received: 'ResourceEvent.1.3.ResourceChanged'
    message = models.CharField(max_length=200)  # without its version, for filters
    text = models.TextField()
    arguments = models.JSONField(default=list)
    chassis_id = models.BigIntegerField(null=True)
    chassis_name = models.CharField(max_length=100, blank=True)
    key = models.CharField(max_length=300, unique=True, null=True)  # noqa: DJ001 - unique, and null for the many events without one
    # The subject, and its tenant at the time.
    device_id = models.BigIntegerField(null=True)
    port_id = models.BigIntegerField(null=True)
    drawer_id = models.BigIntegerField(null=True)
    host_id = models.BigIntegerField(null=True)
    tenant_id = models.BigIntegerField(null=True)
    subject_name = models.CharField(max_length=300, blank=True)
    tenant_name = models.CharField(max_length=100, blank=True)
    link = models.CharField(max_length=400, blank=True)  # path of the subject's page
    person_id = models.BigIntegerField(null=True)
    person_name = models.CharField(max_length=150, blank=True)
    # Of a BMC's event: resource, its own id, log entry and stream, account and address of the causing request.
    origin_uri = models.CharField(max_length=400, blank=True)
    event_id = models.CharField(max_length=100, blank=True)
    entry_uri = models.CharField(max_length=400, blank=True)  # '' until it is read from a log
    streamed = models.BooleanField(default=False)
    originator = models.CharField(max_length=100, blank=True)
    origin_address = models.CharField(max_length=100, blank=True)
    # Hash of an event's content: the same for its record in the stream and its entry in the log.
    signature = models.BigIntegerField(null=True)

    objects = EventQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-pk"]
        indexes = [
            models.Index(fields=["at", "id"], name="events_at"),
            models.Index(fields=["source", "at", "id"], name="events_source"),
            models.Index(fields=["severity", "at", "id"], name="events_severity"),
            models.Index(fields=["message", "at", "id"], name="events_message"),
            # Most events have few of these ids: partial indexes are small.
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
    """A named search of a person; the default one is shown when the page is opened without a search."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="event_views")
    name = models.CharField(max_length=60)
    query = models.CharField(
        max_length=2000, blank=True
    )  # query string of the page, parsed by telemetry.events.filters
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
    """The position in a log or stream of a BMC; updated in the transaction that stores the events."""

    chassis_id = models.BigIntegerField()
    uri = models.CharField(max_length=400)  # of the log's entries, or of the stream
    entry_uri = models.CharField(max_length=400, blank=True)  # of a log: the newest entry that was read
    told = models.CharField(max_length=60, blank=True)  # its timestamp, as received
    count = models.PositiveIntegerField(default=0)  # the number of entries; of no log (''): of events stored lately
    last_id = models.CharField(max_length=100, blank=True)  # of a stream: the id after which it is resumed
    moved_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chassis_id", "uri"], name="one_position_a_log")]
