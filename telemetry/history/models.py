"""Pinned dashboards of persons."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from accounts.models import User


class Dashboard(models.Model):
    """A named view of the telemetry page; `query` is the page's query string."""

    class DashboardQuerySet(models.QuerySet["Dashboard"]):
        """A dashboard is visible to its person only, also among administrators."""

        def visible_to(self, person: User) -> Dashboard.DashboardQuerySet:
            return self.filter(person=person) if person.is_active else self.none()

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="dashboards")
    name = models.CharField(max_length=80)
    query = models.CharField(max_length=2000)
    position = models.PositiveIntegerField(default=0)
    saved_at = models.DateTimeField(auto_now=True)

    objects = DashboardQuerySet.as_manager()

    class Meta:
        ordering = ["position", "pk"]
        constraints = [models.UniqueConstraint(fields=["person", "name"], name="one_dashboard_a_name")]

    def __str__(self) -> str:
        return self.name
