"""Models of users, tenants and tokens."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser, UserManager
from django.db import models


class Tenant(models.Model):
    """A group of users who share devices and host ports; a device is assigned to at most one tenant at a time."""

    name = models.CharField(max_length=100, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """The role of a user."""

    ADMINISTRATOR = "administrator", "Administrator"
    USER = "user", "User"
    VIEWER = "viewer", "Viewer"


class PeopleManager(UserManager["User"]):
    """Creates people; a superuser of Django's commands is an administrator."""

    def create_superuser(
        self, username: str, email: str | None = None, password: str | None = None, **extra: Any
    ) -> User:
        """Create an administrator."""
        extra["role"] = Role.ADMINISTRATOR
        return super().create_superuser(username, email, password, **extra)


class User(AbstractUser):
    """A user account. Administrators have no tenant; users and viewers see the devices granted to theirs."""

    role = models.CharField(max_length=20, choices=Role, default=Role.VIEWER)
    tenant = models.ForeignKey(Tenant, null=True, blank=True, on_delete=models.PROTECT, related_name="people")
    previous_login = models.DateTimeField(null=True, blank=True, editable=False)

    objects: ClassVar[PeopleManager] = PeopleManager()

    class Meta(AbstractUser.Meta):
        ordering = ["username"]
        constraints = [
            models.CheckConstraint(
                name="administrators_have_no_tenant",
                condition=~models.Q(role="administrator") | models.Q(tenant__isnull=True),
            )
        ]

    @property
    def is_administrator(self) -> bool:
        """Whether everything may be seen and done."""
        return self.is_active and self.role == Role.ADMINISTRATOR

    @property
    def may_compose(self) -> bool:
        """Whether devices granted to the person's tenant (all, for administrators) may be attached and detached."""
        return self.is_administrator or (self.is_active and self.role == Role.USER and self.tenant_id is not None)


class Token(models.Model):
    """A key to the API, shown once and stored as its SHA-256; its permissions are at most its user's."""

    class Scope(models.TextChoices):
        """The permissions of a token."""

        READ = "read", "Read"
        WRITE = "write", "Read and write"
        METRICS = "metrics", "Read /metrics, nothing else"

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scope = models.CharField(max_length=10, choices=Scope, default=Scope.READ)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    @staticmethod
    def digest_of(secret: str) -> str:
        """Return the stored hash of a secret (the secret is random, so a plain hash suffices)."""
        return hashlib.sha256(secret.encode()).hexdigest()
