"""Dashboards of persons, and their panels."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.functional import cached_property

from accounts.models import Role, User
from telemetry.history.rules import TelemetryView


class Dashboard(models.Model):
    """Named panels of charts; a shared one of an administrator is for everybody, others' are for their tenant."""

    class DashboardQuerySet(models.QuerySet["Dashboard"]):
        """A dashboard is visible to its person and, if it is shared, to those whom the person shares it with."""

        def visible_to(self, person: User) -> Dashboard.DashboardQuerySet:
            if not person.is_active:
                return self.none()
            of_tenant = Q(person__tenant=person.tenant_id) if person.tenant_id else Q(pk=None)
            shared = Q() if person.is_administrator else Q(person__role=Role.ADMINISTRATOR) | of_tenant
            return self.filter(Q(person=person) | Q(shared=True) & shared)

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="dashboards")
    name = models.CharField(max_length=80)
    shared = models.BooleanField(default=False)
    position = models.PositiveIntegerField(default=0)
    saved_at = models.DateTimeField(auto_now=True)

    objects = DashboardQuerySet.as_manager()

    class Meta:
        ordering = ["position", "pk"]
        constraints = [models.UniqueConstraint(fields=["person", "name"], name="one_dashboard_a_name")]

    def __str__(self) -> str:
        return self.name

    @property
    def query(self) -> str:
        """The view of its first panel, '' without panels."""
        return next((panel.query for panel in self.panels.all()), "")

    def may_edit(self, person: User) -> bool:
        """Return whether a person who sees it may change it."""
        return person.pk == self.person_id or person.is_administrator


class DashboardPanel(models.Model):
    """A view of the telemetry page on a dashboard; `query` is the page's query string.

    One that `follows` shows the chassis, or the host, that is chosen on top of the dashboard, in place of its own.
    """

    dashboard = models.ForeignKey(Dashboard, on_delete=models.CASCADE, related_name="panels")
    title = models.CharField(max_length=80)
    query = models.CharField(max_length=2000)
    follows = models.BooleanField(default=False)
    position = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["position", "pk"]

    def __str__(self) -> str:
        return self.title

    @cached_property
    def view(self) -> TelemetryView:
        """The view that `query` stands for; raises Invalid for one that an earlier version could show."""
        return TelemetryView.from_query(self.query)
