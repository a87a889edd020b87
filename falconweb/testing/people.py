"""Users of two tenants, and clients that are signed in as each of them.

    def test_a_viewer_adds_no_chassis(viewer_client):
        assert viewer_client.get("/chassis/add/").status_code == 403

Rows are created on demand, and deleted after the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from django.test import Client

    from accounts.models import Tenant, User

PASSWORD = "Falcon-test-1"  # noqa: S105 - of all users and simulated chassis of tests


@pytest.fixture
def falconweb_tenant(db: None) -> Tenant:
    """A tenant without devices; see `grant_to_tenant`.

    def test_it_begins_without_devices(falconweb_tenant):
        assert not falconweb_tenant.devices.exists()
    """
    from accounts.models import Tenant

    return Tenant.objects.create(name="Vision group")


@pytest.fixture
def falconweb_administrator(db: None) -> User:
    """An administrator, without a tenant.

    def test_administrators_have_no_tenant(falconweb_administrator):
        assert falconweb_administrator.tenant is None
    """
    from accounts.models import User

    return User.objects.create_superuser("falconweb-administrator", password=PASSWORD)


@pytest.fixture
def falconweb_user(falconweb_tenant: Tenant) -> User:
    """A user who may attach and detach the tenant's devices.

    def test_users_compose(falconweb_user):
        assert falconweb_user.may_compose
    """
    from accounts.models import Role, User

    return User.objects.create_user("falconweb-user", password=PASSWORD, role=Role.USER, tenant=falconweb_tenant)


@pytest.fixture
def falconweb_viewer(falconweb_tenant: Tenant) -> User:
    """A viewer, who sees the tenant's devices and changes nothing.

    def test_viewers_only_look(falconweb_viewer):
        assert not falconweb_viewer.may_compose
    """
    from accounts.models import Role, User

    return User.objects.create_user("falconweb-viewer", password=PASSWORD, role=Role.VIEWER, tenant=falconweb_tenant)


@pytest.fixture
def falconweb_stranger(db: None) -> User:
    """A user of another tenant, who must see nothing of the first one's.

    def test_strangers_are_strangers(falconweb_stranger, falconweb_user):
        assert falconweb_stranger.tenant != falconweb_user.tenant
    """
    from accounts.models import Role, Tenant, User

    tenant = Tenant.objects.create(name="Strangers")
    return User.objects.create_user("falconweb-stranger", password=PASSWORD, role=Role.USER, tenant=tenant)


@pytest.fixture(scope="session")
def falconweb_static_files() -> None:
    """Static files, collected once per run as at a start: pages use hashed names. Client fixtures include it.

    def test_a_page(falconweb_static_files, client):
        assert client.get("/sign-in/").status_code == 200
    """
    from django.conf import settings
    from django.contrib.staticfiles.storage import ManifestStaticFilesStorage, staticfiles_storage

    from falconweb.testing.snapshots import link_static_files

    link_static_files(settings.CONFIG.data)
    # Storages that were read before have cached no names.
    storage = cast("ManifestStaticFilesStorage", staticfiles_storage)
    storage.hashed_files, storage.manifest_hash = storage.load_manifest()  # type: ignore[assignment]


@pytest.fixture
def administrator_client(falconweb_static_files: None, falconweb_administrator: User) -> Client:
    """A client that is signed in as `falconweb_administrator`.

    def test_administrators_see_people(administrator_client):
        assert administrator_client.get("/people/").status_code == 200
    """
    return _signed_in(falconweb_administrator)


@pytest.fixture
def user_client(falconweb_static_files: None, falconweb_user: User) -> Client:
    """A client that is signed in as `falconweb_user`.

    def test_users_see_operations(user_client):
        assert user_client.get("/api/v1/operations/").status_code == 200
    """
    return _signed_in(falconweb_user)


@pytest.fixture
def viewer_client(falconweb_static_files: None, falconweb_viewer: User) -> Client:
    """A client that is signed in as `falconweb_viewer`.

    def test_viewers_see_operations(viewer_client):
        assert viewer_client.get("/api/v1/operations/").status_code == 200
    """
    return _signed_in(falconweb_viewer)


@pytest.fixture
def stranger_client(falconweb_static_files: None, falconweb_stranger: User) -> Client:
    """A client that is signed in as `falconweb_stranger`.

    def test_strangers_see_no_chassis(stranger_client, falcon_chassis):
        assert stranger_client.get("/api/v1/chassis/").json() == []
    """
    return _signed_in(falconweb_stranger)


@pytest.fixture
def anonymous_client(falconweb_static_files: None, db: None) -> Client:
    """A client that is not signed in.

    def test_nobody_is_asked_to_sign_in(anonymous_client):
        assert anonymous_client.get("/api/v1/chassis/").status_code == 401
    """
    from django.test import Client

    return Client()


def _signed_in(person: User) -> Client:
    from django.test import Client

    client = Client()
    client.force_login(person)
    return client
