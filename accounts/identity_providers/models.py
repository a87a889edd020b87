"""Identity providers, the people who sign in through them, and the rules that give them roles and tenants."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models

from accounts.models import Role, Tenant, User
from core.credentials import SecretHolder
from core.language import gettext_lazy, gettext_noop


class IdentityProvider(SecretHolder):
    """A provider of OpenID Connect, or a directory that is asked by LDAP. The secret is the client's or bind DN's."""

    described_as = gettext_noop("this identity provider")

    class Kind(models.TextChoices):
        OIDC = "oidc", "OpenID Connect"
        LDAP = "ldap", gettext_lazy("LDAP directory")

    kind = models.CharField(max_length=10, choices=Kind)
    name = models.CharField(max_length=60, unique=True)
    enabled = models.BooleanField(default=False)
    address = models.CharField(max_length=500)  # the issuer, or ldap(s)://host:port
    ca = models.TextField(blank=True)  # PEM; the system's CAs when empty
    created_at = models.DateTimeField(auto_now_add=True)
    # OpenID Connect
    client_id = models.CharField(max_length=255, blank=True)
    scopes = models.CharField(max_length=255, blank=True, default="openid profile email")
    username_claim = models.CharField(max_length=255, blank=True, default="preferred_username")
    groups_claim = models.CharField(max_length=255, blank=True, default="groups")
    # LDAP
    start_tls = models.BooleanField(default=True)
    bind_dn = models.CharField(max_length=500, blank=True)
    user_base = models.CharField(max_length=500, blank=True)
    user_filter = models.CharField(max_length=500, blank=True, default="(uid={username})")
    username_attribute = models.CharField(max_length=100, blank=True, default="uid")
    group_base = models.CharField(max_length=500, blank=True)  # memberOf of the person is read when empty
    group_filter = models.CharField(max_length=500, blank=True, default="(member={dn})")

    class Meta:
        ordering = ["name"]
        verbose_name = "identity provider"

    def __str__(self) -> str:
        return self.name

    @property
    def is_directory(self) -> bool:
        return self.kind == self.Kind.LDAP


class ExternalIdentity(models.Model):
    """The one way by which a person signs in who has no local password: their subject at a provider."""

    provider = models.ForeignKey(IdentityProvider, on_delete=models.CASCADE, related_name="identities")
    subject = models.CharField(max_length=255)
    person = models.OneToOneField(User, on_delete=models.CASCADE, related_name="external_identity")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(name="one_person_a_subject", fields=["provider", "subject"])]


class MappingRule(models.Model):
    """A rule of a provider: members of the group have the role, in the tenant. The first that fits counts."""

    provider = models.ForeignKey(IdentityProvider, on_delete=models.CASCADE, related_name="rules")
    position = models.PositiveSmallIntegerField(validators=[MinValueValidator(1)])
    group = models.CharField(max_length=500)
    role = models.CharField(max_length=20, choices=Role)
    tenant = models.ForeignKey(Tenant, null=True, blank=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(name="one_rule_a_position", fields=["provider", "position"]),
            models.CheckConstraint(
                name="rules_of_administrators_have_no_tenant",
                condition=models.Q(role="administrator", tenant__isnull=True)
                | ~models.Q(role="administrator") & models.Q(tenant__isnull=False),
            ),
        ]
