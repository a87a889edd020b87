"""A chassis of the site that mirrors a real simulated one, and its rows alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from django.apps import apps
from django.core.management.color import no_style
from django.db import connection, transaction
from django.db.models import DateTimeField, Model
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.bmc import settling
from fabric.execution import link_steps
from fabric.history.models import Attachment
from fabric.inventory.models import Chassis, Host
from falconweb.testing import SimulatorProcess, add_mirrored, mirror

__all__ = ["mirror"]

FALCON = "falcon-1"
MODELS: list[type[Model]] = list(apps.get_app_config("fabric").get_models())
# What the first walk of a simulated chassis has made of it, by the simulator's options: the rows of each model.
_kept: dict[tuple[str, ...], list[list[Model]]] = {}


def put_back(process: SimulatorProcess | None = None) -> Chassis:
    """Do as `add_mirrored`, for the only chassis, in a quarter of its time: its rows are kept, and written again.

    They are as old as if they had been made now. Without a process they are those of falcon-1, and nothing answers at
    its address.
    """
    options = process.options if process else (FALCON,)
    if options not in _kept:
        with contextlib.nullcontext(process) if process else SimulatorProcess(chassis=FALCON) as walked:
            add_mirrored(walked)
        _kept[options] = [list(model._default_manager.all()) for model in MODELS]
        for rows in (Attachment.objects, Chassis.objects, Host.objects):
            rows.all().delete()
    now = timezone.now()
    with transaction.atomic(), connection.cursor() as cursor:
        for model, kept in zip(MODELS, _kept[options], strict=True):
            times = [field.attname for field in model._meta.concrete_fields if isinstance(field, DateTimeField)]
            for row in kept:
                vars(row).update({name: now for name in times if getattr(row, name) is not None})
                if isinstance(row, Chassis):
                    row.url = process.address if process else "https://127.0.0.1:1"
                    row.fingerprint = process.fingerprint if process else row.fingerprint
            model._default_manager.bulk_create(kept)
        for statement in connection.ops.sequence_reset_sql(no_style(), MODELS):
            cursor.execute(statement)
    return Chassis.objects.get()


@pytest.fixture
def simulator(transactional_db: None) -> Iterator[SimulatorProcess]:
    """falcon-1 with fast links, for tests with real transactions."""
    with SimulatorProcess(chassis=FALCON) as process:
        process.set_speed(20)
        yield process


@pytest.fixture
def chassis(request: pytest.FixtureRequest, db: None) -> Chassis:
    """falcon-1, mirrored once: `simulator` where the test asks for it too, else rows in a transaction alone."""
    return put_back(request.getfixturevalue("simulator") if "simulator" in request.fixturenames else None)


@pytest.fixture
def falcon_chassis(transactional_db: None, simulated_falcon: SimulatorProcess) -> Chassis:
    """falcon-1 with the trees of its hosts, mirrored once."""
    return put_back(simulated_falcon)


@pytest.fixture
def short_retraining(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that train badly are given up soon; nothing that goes well has less time for it."""
    monkeypatch.setattr(link_steps, "RETRAIN_SECONDS", 0.5)


@pytest.fixture
def short_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that its BMC accepted and does not show is given up soon."""
    monkeypatch.setattr(settling, "FIRST_SECONDS", 3.0)


@pytest.fixture
def administrator(db: None) -> User:
    """An administrator."""
    return User.objects.create_superuser("ada", password="a-long-password-1")


@pytest.fixture
def tenant(db: None) -> Tenant:
    """A tenant without grants."""
    return Tenant.objects.create(name="Vision group")
