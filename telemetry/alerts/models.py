"""Rules, alerts, silences, routes, and their deliveries."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from accounts.models import Role, Tenant, User
from accounts.visibility import RestrictedQuerySet
from core.credentials import SecretHolder
from core.language import _, gettext_lazy, gettext_noop
from core.week import WeeklyTimes
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port
from telemetry.alerts.rules import (
    BUILT_IN_RULES,
    LINK_RULES,
    SCOPES,
    AlertScope,
    Condition,
    Terms,
    duration_label,
    threshold_words,
)

MAX_TEXT_LENGTH = 2000


class AlertSeverity(models.TextChoices):
    WARNING = "Warning", gettext_lazy("Warning")
    CRITICAL = "Critical", gettext_lazy("Critical")


class AdministratorQuerySet(RestrictedQuerySet):
    """Rows that administrators alone may see."""

    def granted_to(self, tenant_id: int) -> Q:
        return Q(pk__in=[])


class Scoped(models.Model):
    """A row that applies to a part of the lab: `scope` names the column that counts."""

    scope = models.CharField(max_length=20, choices=SCOPES, default="all")
    chassis = models.ForeignKey(Chassis, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    drawer = models.ForeignKey(Drawer, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    device = models.ForeignKey(Device, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    port = models.ForeignKey(Port, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    tenant = models.ForeignKey(Tenant, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    device_kind = models.CharField(max_length=10, blank=True, choices=Device.Kind)

    class Meta:
        abstract = True

    def as_scope(self) -> AlertScope:
        """Return the scope in a form independent of the database."""
        found: int | None = None if self.scope in {"all", "device_kind"} else getattr(self, f"{self.scope}_id")
        return AlertScope(kind=self.scope, id=found, device_kind=self.device_kind)

    @property
    def scope_id(self) -> int | None:
        """The id of its subject, None where that is no row."""
        return self.as_scope().id

    def alerts(self) -> Q:
        """Return the condition under which an alert is in the scope: `AlertScope.includes` as a query."""
        match self.scope:
            case "all":
                return Q()
            case "device_kind":
                return Q(device__kind=self.device_kind)
            case "tenant":
                return Q(device__tenant=self.tenant_id) | Q(host_port__tenant=self.tenant_id)
        return Q((self.scope, getattr(self, f"{self.scope}_id")))

    @property
    def scope_words(self) -> str:
        match self.scope:
            case "all":
                return _("everything")
            case "device_kind":
                return _("every {kind}", kind=_(self.get_device_kind_display()))
            case "tenant":
                return _("parts of {tenant}", tenant=str(self.tenant))
            case "chassis":
                return str(self.chassis)
        part: Any = getattr(self, self.scope)
        if part is None:
            return _("a removed part")
        return _("{part} of {chassis}", part=str(part), chassis=str(part.chassis))


class Rule(Scoped):
    """An administrators' rule; `metric` is a quantity ('power_watts') or a pattern of keys ('port/*/link_status')."""

    name = models.CharField(max_length=100, unique=True)
    metric = models.CharField(max_length=200)
    condition = models.CharField(max_length=10, choices=[(one.value, one.value) for one in Condition])
    value = models.FloatField(default=0.0)
    clear_value = models.FloatField(null=True, blank=True)
    hold_seconds = models.FloatField(default=0.0)
    severity = models.CharField(max_length=10, choices=AlertSeverity, default=AlertSeverity.WARNING)
    enabled = models.BooleanField(default=True)
    note = models.TextField(blank=True)  # what to do about it
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)
    changed_by_name = models.CharField(max_length=150, blank=True)

    objects = AdministratorQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        verbose_name = "alert rule"

    def __str__(self) -> str:
        return self.name

    @property
    def terms(self) -> Terms:
        return Terms(
            condition=Condition(self.condition), value=self.value, clear=self.clear_value, hold=self.hold_seconds
        )


class BuiltInSwitch(models.Model):
    """Whether a built-in rule is on; without a row, its default applies."""

    name = models.CharField(max_length=40, primary_key=True)
    enabled = models.BooleanField()
    changed_at = models.DateTimeField(auto_now=True)
    changed_by_name = models.CharField(max_length=150, blank=True)

    class Meta:
        verbose_name = "built-in rule"


class AlertQuerySet(RestrictedQuerySet):
    """A tenant sees the alerts of its devices and host ports: open ones, and those begun since it has leased them.

    Of a link's verdict, it sees only the latter.
    """

    def granted_to(self, tenant_id: int) -> Q:
        found = Q()
        for part in ("device", "host_port"):
            since = Q((f"{part}__tenant_since", None)) | Q(since__gte=F(f"{part}__tenant_since"))
            # The verdict on a link is on what another tenant did, too.
            lasts = Q(state__in=Alert.ACTIVE) & ~Q(cause__in=LINK_RULES)
            found |= Q((f"{part}__tenant", tenant_id)) & (lasts | since)
        # Pending alerts may disappear without firing: only administrators see them.
        return found & ~Q(state=Alert.State.PENDING)

    def active(self) -> AlertQuerySet:
        """Return firing alerts, acknowledged or not."""
        return self.filter(state__in=Alert.ACTIVE)


class Alert(models.Model):
    """An alert: at most one open row for each rule and series of a chassis."""

    class State(models.TextChoices):
        PENDING = "pending", gettext_lazy("Pending")
        FIRING = "firing", gettext_lazy("Firing")
        ACKNOWLEDGED = "acknowledged", gettext_lazy("Acknowledged")
        RESOLVED = "resolved", gettext_lazy("Resolved")

    ACTIVE = (State.FIRING, State.ACKNOWLEDGED)
    OPEN = (State.PENDING, State.FIRING, State.ACKNOWLEDGED)

    # None: of the site itself.
    chassis = models.ForeignKey(Chassis, null=True, on_delete=models.CASCADE, related_name="alerts")
    rule = models.ForeignKey(Rule, null=True, on_delete=models.SET_NULL, related_name="alerts")
    cause = models.CharField(max_length=60)  # 'rule-7', or the name of a built-in rule
    series_key = models.CharField(max_length=300, blank=True)  # '' for the chassis as a whole
    title = models.CharField(max_length=200)
    quantity = models.CharField(max_length=200, blank=True)
    unit = models.CharField(max_length=40, blank=True)
    severity = models.CharField(max_length=10, choices=AlertSeverity)
    rank = models.PositiveSmallIntegerField(default=1)  # of the severity, to sort by
    state = models.CharField(max_length=12, choices=State, default=State.PENDING)

    object = models.CharField(max_length=10)  # 'chassis', 'drawer', 'device', 'port' or 'site'
    subject_name = models.CharField(max_length=300)
    drawer = models.ForeignKey(Drawer, null=True, on_delete=models.SET_NULL, related_name="alerts")
    device = models.ForeignKey(Device, null=True, on_delete=models.SET_NULL, related_name="alerts")
    port = models.ForeignKey(Port, null=True, on_delete=models.SET_NULL, related_name="alerts")
    host_port = models.ForeignKey(HostPort, null=True, on_delete=models.SET_NULL, related_name="alerts")

    threshold = models.CharField(max_length=200)  # in words: 'above 85 °C for 30 s'
    value = models.FloatField(null=True)  # when it fired
    worst_value = models.FloatField(null=True)
    note = models.TextField(blank=True)  # of the rule, or the error of the chassis' client
    since = models.DateTimeField()  # its condition was first met
    fired_at = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    acknowledged_by_name = models.CharField(max_length=150, blank=True)
    acknowledged_note = models.TextField(blank=True)
    resolved_at = models.DateTimeField(null=True)
    resolved_because = models.CharField(max_length=300, blank=True)  # '' where the value returned to normal
    # Set by gathering while it is silenced or inhibited: if it resolves meanwhile, it notifies nobody.
    hushed = models.BooleanField(default=False)

    objects = AlertQuerySet.as_manager()

    class Meta:
        ordering = ["-since", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["chassis", "cause", "series_key"],
                condition=~Q(state="resolved"),
                name="one_open_alert_a_rule_and_series",
            ),
            models.UniqueConstraint(
                fields=["cause", "series_key"],
                condition=~Q(state="resolved") & Q(chassis=None),
                name="one_open_alert_of_the_site",
            ),
        ]
        indexes = [
            models.Index(fields=["state", "-rank", "-since"], name="alerts_worst_first"),
            models.Index(fields=["resolved_at"], name="alerts_resolved"),
        ]

    def __str__(self) -> str:
        return f"{self.title}: {self.subject_name}"

    @property
    def is_active(self) -> bool:
        return self.state in self.ACTIVE

    @property
    def title_words(self) -> str:
        """Its title in the reader's language; an own rule has the name that it was given."""
        return self.title if self.cause.startswith("rule-") else _(self.title)

    @property
    def threshold_words(self) -> str:
        """Its threshold in the reader's language."""
        return threshold_words(self.threshold)

    @property
    def lasted(self) -> str:
        """How long it lasted, in words; '' where it is not resolved."""
        return duration_label(max(0.0, (self.resolved_at - self.since).total_seconds())) if self.resolved_at else ""


class SilenceQuerySet(AdministratorQuerySet):
    def in_force(self, at: datetime | None = None) -> list[Silence]:
        now = at or timezone.now()
        return [row for row in self.filter(starts_at__lte=now, ends_at__gt=now) if row.is_in_force_at(now)]


class Silence(Scoped):
    """A time range, or times of the week within one, in which matching alerts notify nobody; they are still shown."""

    rule = models.ForeignKey(Rule, null=True, blank=True, on_delete=models.CASCADE, related_name="silences")
    built_in = models.CharField(max_length=40, blank=True)
    severity = models.CharField(max_length=10, blank=True, choices=AlertSeverity)  # '': any
    starts_at = models.DateTimeField(default=timezone.now)
    ends_at = models.DateTimeField()
    # Only from a time of day until another, UTC, on days of the week ('15': Monday and Friday; '': each). None: always.
    from_time = models.TimeField(null=True)
    until_time = models.TimeField(null=True)
    days = models.CharField(max_length=7, blank=True)
    made_by_name = models.CharField(max_length=150)
    made_at = models.DateTimeField(auto_now_add=True)
    why = models.CharField(max_length=500)

    objects = SilenceQuerySet.as_manager()

    class Meta:
        ordering = ["-ends_at", "-pk"]

    def alerts(self) -> Q:
        found = super().alerts()
        if self.rule_id is not None:
            found &= Q(rule=self.rule_id)
        if self.built_in:
            found &= Q(cause=self.built_in) | Q(cause__startswith=f"{self.built_in}:")
        if self.severity:
            found &= Q(severity=self.severity)
        return found

    @property
    def rule_words(self) -> str:
        """The rules whose alerts it silences, in words: 'every rule', 'GPU too hot, Critical'."""
        if self.rule is not None:
            name = self.rule.name
        elif self.built_in:
            name = _(BUILT_IN_RULES[self.built_in].words) if self.built_in in BUILT_IN_RULES else self.built_in
        else:
            name = _("every rule")
        return f"{name}, {self.get_severity_display()}" if self.severity else name

    @property
    def times(self) -> WeeklyTimes | None:
        """Its times of the week; None where it is for all of the time."""
        if self.from_time is None or self.until_time is None:
            return None
        return WeeklyTimes(begins=self.from_time, ends=self.until_time, days=tuple(map(int, self.days)))

    def is_in_force_at(self, at: datetime) -> bool:
        return self.starts_at <= at < self.ends_at and (self.times is None or self.times.includes(at))

    @property
    def is_in_force(self) -> bool:
        return self.is_in_force_at(timezone.now())

    @property
    def is_begun(self) -> bool:
        return self.starts_at <= timezone.now()

    @property
    def is_over(self) -> bool:
        return self.ends_at <= timezone.now()


class RouteQuerySet(AdministratorQuerySet):
    def in_use(self) -> RouteQuerySet:
        """Return those that are on: a person's own one while they have an address and may see all of its alerts."""
        entitled = Q(person__tenant=F("tenant"), scope="tenant") | Q(person__role=Role.ADMINISTRATOR, scope="all")
        return self.filter(Q(person=None) | (Q(person__is_active=True) & ~Q(person__email="") & entitled), enabled=True)


class Route(Scoped, SecretHolder):
    """A recipient of notifications, and the alerts that it is notified of."""

    described_as = gettext_noop("this route")

    class Kind(models.TextChoices):
        PAGE = "page", gettext_lazy("Page (the mark in the header)")
        EMAIL = "email", gettext_lazy("E-mail")
        WEBHOOK = "webhook", gettext_lazy("Webhook")
        SYSLOG = "syslog", "Syslog (RFC 5424)"

    name = models.CharField(max_length=100, unique=True)
    # Who asked to be told of their own alerts by e-mail; None: administrators made it.
    person = models.OneToOneField(User, null=True, on_delete=models.CASCADE, related_name="alert_route")
    kind = models.CharField(max_length=10, choices=Kind)
    address = models.CharField(max_length=500, blank=True)
    severity = models.CharField(max_length=10, choices=AlertSeverity, default=AlertSeverity.WARNING)  # at least
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    enabled_at = models.DateTimeField(default=timezone.now)  # it is not notified of earlier alerts
    gathering_until = models.DateTimeField(null=True)  # claim of the worker that gathers for it

    objects = RouteQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        verbose_name = "alert route"

    def __str__(self) -> str:
        return self.name

    def alerts(self) -> Q:
        severities = ["Critical"] if self.severity == AlertSeverity.CRITICAL else AlertSeverity.values
        return super().alerts() & Q(severity__in=severities)


class DeliveryQuerySet(AdministratorQuerySet):
    def waiting(self) -> DeliveryQuerySet:
        """Return those that are neither delivered nor failed."""
        return self.filter(state=Delivery.State.WAITING)


class Delivery(models.Model):
    """One notification by one route; its content is fixed when it is created, so that each attempt sends the same."""

    class State(models.TextChoices):
        WAITING = "waiting", gettext_lazy("Waiting")
        DELIVERED = "delivered", gettext_lazy("Delivered")
        FAILED = "failed", gettext_lazy("Failed")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    number = models.PositiveBigIntegerField()  # 1, 2, 3, ... of its route: the order in which they are delivered
    route = models.ForeignKey(Route, on_delete=models.CASCADE, related_name="deliveries")
    is_test = models.BooleanField(default=False)
    summary = models.CharField(max_length=300)
    content = models.JSONField()  # telemetry.alerts.messages.Notification as JSON
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    made_at = models.DateTimeField(default=timezone.now)
    attempts = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(default=timezone.now)
    claimed_until = models.DateTimeField(null=True)  # claim of the sender; it expires where the sender died
    last_error = models.TextField(blank=True)
    delivered_at = models.DateTimeField(null=True)

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        ordering = ["-made_at", "-number"]
        verbose_name_plural = "deliveries"
        constraints = [models.UniqueConstraint(fields=["route", "number"], name="deliveries_of_a_route_in_order")]
        indexes = [models.Index(fields=["state", "route", "number"], name="alerts_deliveries_waiting")]

    def __str__(self) -> str:
        return self.summary


class AlertNotification(models.Model):
    """A route's notifications of an alert: that it fired, and, later, that it was resolved."""

    route = models.ForeignKey(Route, on_delete=models.CASCADE, related_name="notifications")
    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="notifications")
    fired_in = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="notifications_fired")
    resolved_in = models.ForeignKey(
        Delivery, null=True, on_delete=models.CASCADE, related_name="notifications_resolved"
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["route", "alert"], name="alert_notified_once_by_route")]
