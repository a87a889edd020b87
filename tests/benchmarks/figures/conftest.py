"""Somebody who sees figures, and their browser."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import Role, Tenant, User


@pytest.fixture
def bob() -> User:
    return User.objects.create_user("bob", password="x", role=Role.USER, tenant=Tenant.objects.create(name="Vision"))


@pytest.fixture
def client(bob: User) -> Client:
    client = Client()
    client.force_login(bob)
    return client
