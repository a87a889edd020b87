"""Row visibility: `visible_to(person)` on every queryset is the only way to read on a user's behalf."""

from __future__ import annotations

from typing import Any, Final, Protocol, Self

from django.db import models
from django.db.models import Q

from accounts.models import User
from core.errors import NotFound
from core.language import _, gettext_noop

# What rows are called, here and as the object of an entry of the audit log.
KINDS: Final = (
    gettext_noop("alert"), gettext_noop("alert route"), gettext_noop("alert rule"), gettext_noop("approval"),
    gettext_noop("audit"), gettext_noop("authenticator app"), gettext_noop("chassis"), gettext_noop("dashboard"),
    gettext_noop("definition"), gettext_noop("delivery"), gettext_noop("deployment"), gettext_noop("device"),
    gettext_noop("drawer"), gettext_noop("drift"), gettext_noop("entry"), gettext_noop("event"),
    gettext_noop("export"), gettext_noop("export run"), gettext_noop("failure"), gettext_noop("filter"),
    gettext_noop("host"), gettext_noop("host port"), gettext_noop("identity provider"), gettext_noop("lease"),
    gettext_noop("link"), gettext_noop("log"), gettext_noop("managed part"), gettext_noop("operation"),
    gettext_noop("panel"), gettext_noop("part"), gettext_noop("passkey"), gettext_noop("person"),
    gettext_noop("plan"), gettext_noop("policy"), gettext_noop("port"), gettext_noop("record"),
    gettext_noop("refusals"), gettext_noop("route"), gettext_noop("rule"), gettext_noop("run"),
    gettext_noop("service account"), gettext_noop("session"), gettext_noop("silence"), gettext_noop("slot"),
    gettext_noop("sweep"), gettext_noop("tenant"), gettext_noop("token"), gettext_noop("trace"), gettext_noop("view"),
)  # fmt: skip


class RestrictedQuerySet(models.QuerySet[Any]):
    """A queryset with row permissions; subclasses define the path to the tenant's grants."""

    def visible_to(self, person: User) -> Self:
        """Return the rows visible to `person`: all for administrators, the tenant's for members, else none."""
        if not person.is_active:
            return self.none()
        if person.is_administrator:
            return self.all()
        if person.tenant_id is None:
            return self.none()
        return self.filter(self.granted_to(person.tenant_id)).distinct()

    def granted_to(self, tenant_id: int) -> Q:
        """Return the condition under which a tenant sees a row."""
        raise TypeError(f"{type(self).__name__} does not define the owner of its rows.")


class TenantQuerySet(RestrictedQuerySet):
    """Rows with a `tenant`, which sees them."""

    def granted_to(self, tenant_id: int) -> Q:
        return Q(tenant=tenant_id)


class VisibleRows(Protocol):
    """A queryset, or a manager, with row permissions."""

    def visible_to(self, person: User) -> Any:
        """Return the rows visible to a person."""


def visible_or_404(rows: VisibleRows, person: User, pk: object, kind: str) -> Any:
    """Return the row of that id; raises NotFound ('There is no such <kind>.') where the person sees none."""
    return row_or_404(rows.visible_to(person), pk, kind)


def row_or_404(rows: models.QuerySet[Any], pk: object, kind: str) -> Any:
    """Return the row of that id among those that may be seen; raises NotFound ('There is no such <kind>.')."""
    row = rows.filter(pk=pk).first()
    if row is None:
        raise NotFound(_("There is no such {kind}.", kind=_(kind)))
    return row
