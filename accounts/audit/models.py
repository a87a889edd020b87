"""The rows of the audit log. The database refuses to change or delete them too: see triggers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from typing import Any, NoReturn

from django.db import models

from accounts.audit.actions import Outcome, action_label

APPEND_ONLY = "The audit log is append-only: its entries are neither changed nor deleted."


class AppendOnlyError(TypeError):
    """An attempt to change or delete an entry."""


def _refuse(self: object, *_: Any, **__: Any) -> NoReturn:
    """Refuse to change or delete entries: only `accounts.audit.services` appends them."""
    raise AppendOnlyError(APPEND_ONLY)


class AuditEntries(models.QuerySet["AuditEntry"]):
    """Entries to read."""

    update = delete = bulk_update = update_or_create = _refuse


class AuditEntry(models.Model):
    """An action with its user, origin and outcome. No foreign keys: entries outlive the objects they name."""

    sequence = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField(db_index=True)
    action = models.CharField(max_length=60, db_index=True)
    outcome = models.CharField(max_length=10, choices=Outcome)
    sentence = models.CharField(max_length=1000, blank=True)
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    actor_id = models.BigIntegerField(null=True, blank=True, db_index=True)
    actor_name = models.CharField(max_length=150, blank=True)
    actor_role = models.CharField(max_length=20, blank=True)
    actor_tenant = models.CharField(max_length=100, blank=True)
    via = models.CharField(max_length=10)
    address = models.CharField(max_length=200, blank=True)
    credential = models.CharField(max_length=150, blank=True)
    method = models.CharField(max_length=10, blank=True)
    path = models.CharField(max_length=300, blank=True)
    request_id = models.CharField(max_length=40, blank=True, db_index=True)
    target_kind = models.CharField(max_length=30, blank=True)
    target_id = models.CharField(max_length=100, blank=True)
    target_name = models.CharField(max_length=200, blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    previous = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)

    objects = AuditEntries.as_manager()

    class Meta:
        ordering = ["-sequence"]
        indexes = [models.Index(fields=["target_kind", "target_id"], name="audit_target")]

    save = delete = _refuse

    @property
    def action_words(self) -> str:
        """The label of the action."""
        return action_label(self.action)

    def record(self) -> dict[str, Any]:
        """Return the entry as it is hashed and exported, `digest` included."""
        values = {field.attname: getattr(self, field.attname) for field in self._meta.concrete_fields}
        return values | {"at": self.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}


class AuditHead(models.Model):
    """The end of the chain, in one row: the sealed length and last digest; its lock serialises writers."""

    sequence = models.BigIntegerField(default=0)
    digest = models.CharField(max_length=64)
    seal = models.CharField(max_length=64)

    delete = _refuse


def columns() -> Iterable[str]:
    """Return the names of an entry's members in their order."""
    return [field.attname for field in AuditEntry._meta.concrete_fields]  # noqa: SLF001 - documented by Django
