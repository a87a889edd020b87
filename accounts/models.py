"""Models of users, tenants and tokens."""

from __future__ import annotations

import hashlib
import uuid
from datetime import timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractUser, UserManager
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils import timezone

from core.database import natural
from core.language import gettext_lazy


class Tenant(models.Model):
    """A group of users who share devices and host ports; a device is assigned to at most one tenant at a time."""

    name = models.CharField(max_length=100, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = [natural("name")]

    def __str__(self) -> str:
        return self.name


MAX_NAME_LENGTH = 150  # of a user name, by Django


class Role(models.TextChoices):
    """The role of a user."""

    ADMINISTRATOR = "administrator", gettext_lazy("Administrator")
    USER = "user", gettext_lazy("User")
    VIEWER = "viewer", gettext_lazy("Viewer")


class PeopleManager(UserManager["User"]):
    """Creates people; a superuser of Django's commands is an administrator."""

    def create_superuser(
        self, username: str, email: str | None = None, password: str | None = None, **extra: Any
    ) -> User:
        """Create an administrator."""
        extra["role"] = Role.ADMINISTRATOR
        return super().create_superuser(username, email, password, **extra)

    def named(self, username: str) -> models.QuerySet[User]:
        """Return who has this user name, in small or capital letters.

        A name longer than any is nobody's: the database refuses to compare what is far longer.
        """
        return self.filter(username__iexact=username) if len(username) <= MAX_NAME_LENGTH else self.none()


class PersonKind(models.TextChoices):
    """Whether an account is a person's or a program's."""

    PERSON = "person", gettext_lazy("Person")
    SERVICE = "service", gettext_lazy("Service account")


class User(AbstractUser):
    """A user account. Administrators have no tenant; users and viewers see the devices granted to theirs.

    A service account is a program of a tenant: it has tokens that administrators make, no password and no sign-in.
    """

    kind = models.CharField(max_length=10, choices=PersonKind, default=PersonKind.PERSON, editable=False)
    role = models.CharField(max_length=20, choices=Role, default=Role.VIEWER)
    tenant = models.ForeignKey(Tenant, null=True, blank=True, on_delete=models.PROTECT, related_name="people")
    previous_login = models.DateTimeField(null=True, blank=True, editable=False)
    tour_step = models.PositiveSmallIntegerField(default=1, editable=False)  # 0: it is over
    zone = models.CharField(max_length=64, blank=True, default="", editable=False)  # '': that of the browser
    language = models.CharField(max_length=8, blank=True, default="", editable=False)  # '': what the browser accepts
    notices_seen_at = models.DateTimeField(default=timezone.now, editable=False)  # what ended later is new

    backend: str  # of whom `authenticate` returned: the backend that knew them

    objects: ClassVar[PeopleManager] = PeopleManager()

    class Meta(AbstractUser.Meta):
        ordering = ["username"]
        constraints = [
            models.CheckConstraint(
                name="administrators_have_no_tenant",
                condition=~models.Q(role="administrator") | models.Q(tenant__isnull=True),
            ),
            models.CheckConstraint(
                name="service_accounts_are_no_administrators",
                condition=~models.Q(kind="service") | ~models.Q(role="administrator"),
            ),
        ]

    @property
    def is_service(self) -> bool:
        """Whether it is a program's account, which cannot sign in."""
        return self.kind == PersonKind.SERVICE

    @property
    def is_administrator(self) -> bool:
        """Whether everything may be seen and done."""
        return self.is_active and self.role == Role.ADMINISTRATOR

    @property
    def may_compose(self) -> bool:
        """Whether devices granted to the person's tenant (all, for administrators) may be attached and detached."""
        return self.is_administrator or (self.is_active and self.role == Role.USER and self.tenant_id is not None)


class Area(models.TextChoices):
    """A part of the API to which a token may be narrowed."""

    FABRIC = "fabric", gettext_lazy("Fabric")
    TELEMETRY = "telemetry", gettext_lazy("Telemetry")
    BENCHMARKS = "benchmarks", gettext_lazy("Benchmarks")
    ACCOUNTS = "accounts", gettext_lazy("People and tokens")
    AUDIT = "audit", gettext_lazy("Audit log")


class Token(models.Model):
    """A key to the API, shown once and stored as its SHA-256; its permissions are at most its user's."""

    class Scope(models.TextChoices):
        """The permissions of a token."""

        READ = "read", gettext_lazy("Read")
        WRITE = "write", gettext_lazy("Read and write")
        METRICS = "metrics", gettext_lazy("Read /metrics, nothing else")

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scope = models.CharField(max_length=10, choices=Scope, default=Scope.READ)
    # Such as ["fabric:read", "benchmarks:write"]; [] for all areas.
    scopes = models.JSONField(default=list, blank=True)
    # Networks that it may be used from, such as ["10.0.0.0/8"]; [] for everywhere.
    addresses = models.JSONField(default=list, blank=True)
    # The token that made it: it ends with it.
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.CASCADE, related_name="children")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    @staticmethod
    def digest_of(secret: str) -> str:
        """Return the stored hash of a secret (the secret is random, so a plain hash suffices)."""
        return hashlib.sha256(secret.encode()).hexdigest()


class BrowserSession(AbstractBaseSession):
    """A session of a browser, and who is signed in with it from where; ended by its limits or by deletion.

    `session_key` is the secret of the cookie, so that pages name a session by its `number`.
    """

    SEEN_PRECISION: ClassVar = timedelta(minutes=1)  # `seen_at` is not written at every request

    number = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    person = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="sessions")
    device = models.CharField(max_length=100, blank=True)
    address = models.CharField(max_length=45, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "session"
        ordering = ["-seen_at"]

    @classmethod
    def live(cls) -> models.QuerySet[BrowserSession]:
        """Return the sessions within their limits."""
        now, config = timezone.now(), settings.CONFIG
        rows = cls.objects.filter(expire_date__gt=now, created_at__gt=now - timedelta(hours=config.session_hours))
        if config.session_idle_minutes:
            rows = rows.filter(seen_at__gt=now - timedelta(minutes=config.session_idle_minutes))
        return rows

    def save(self, *args: Any, force_update: bool = False, **options: Any) -> None:
        """Save; what Django saves again of a session leaves its begin and its last use as they are."""
        if force_update:
            options["update_fields"] = ["session_data", "expire_date", "person", "device", "address"]
        super().save(*args, force_update=force_update, **options)
