"""A lab of rows for alerts, and what plays engines, workers and receivers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from django.test import Client

from accounts.models import Role, Tenant, User
from fabric.inventory.models import Chassis, Device, Drawer, HostPort, Port, Slot
from telemetry.alerts.engine import CheckTransition, Transition
from telemetry.alerts.models import Alert
from telemetry.alerts.rules import AlertSubject, Check, Condition, Terms
from telemetry.alerts.services import transitions_record
from tests.telemetry.history.conftest import forget_live

HOT = Terms(condition=Condition.ABOVE, value=85.0, hold=3.0)


@dataclass
class Lab:
    """Two tenants with a device and a host port each, in one chassis."""

    chassis: Chassis
    drawer: Drawer
    device: Device
    host_port: HostPort
    other: Device
    tenant: Tenant
    others: Tenant
    administrator: User
    user: User
    viewer: User
    stranger: User

    def client(self, who: User) -> Client:
        client = Client()
        client.force_login(who)
        return client


@pytest.fixture
def lab(db: None) -> Lab:
    """See Lab."""
    tenant, others = (Tenant.objects.create(name=name) for name in ("One", "Two"))
    chassis = Chassis.objects.create(name="falcon", url="https://127.0.0.1:1")
    forget_live(chassis.pk)
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1)
    made = []
    for number, holder in ((1, tenant), (2, others)):
        ports = [
            Port.objects.create(chassis=chassis, uri=f"/port/{kind}{number}", name=f"{kind}{number}")
            for kind in ("slot", "H")
        ]
        slot = Slot.objects.create(
            chassis=chassis, uri=f"/slot/{number}", name=f"slot {number}", drawer=drawer, port=ports[0], number=number
        )
        host_port = HostPort.objects.create(
            chassis=chassis, uri=f"/zone/{number}", name=f"H{number}", endpoint_uri=f"/e/{number}", drawer=drawer,
            port=ports[1], tenant=holder, label=f"H{number}", number=number,
        )  # fmt: skip
        device = Device.objects.create(
            chassis=chassis, uri=f"/device/{number}", name=f"GPU {number}", slot=slot, host_port=host_port,
            tenant=holder, kind="gpu",
        )  # fmt: skip
        made.append((device, host_port))
    return Lab(
        chassis=chassis,
        drawer=drawer,
        device=made[0][0],
        host_port=made[0][1],
        other=made[1][0],
        tenant=tenant,
        others=others,
        administrator=User.objects.create_superuser("ada", password="x"),
        user=User.objects.create_user("bob", password="x", role=Role.USER, tenant=tenant),
        viewer=User.objects.create_user("eve", password="x", role=Role.VIEWER, tenant=tenant),
        stranger=User.objects.create_user("carl", password="x", role=Role.USER, tenant=others),
    )


def check_of(device: Device, *, cause: str = "sensor_critical:upper", severity: str = "Critical", terms: Terms = HOT,
             key: str = "", rule: int | None = None) -> Check:  # fmt: skip
    """Return a check on a device's temperature."""
    subject = AlertSubject(
        object="device", chassis=device.chassis_id, drawer=device.slot.drawer_id if device.slot else None,
        device=device.pk, device_kind=device.kind, tenant=device.tenant_id, name=device.name,
    )  # fmt: skip
    return Check(
        cause=cause, key=key or f"device/{device.pk}/temperature_celsius", terms=terms, severity=severity,
        subject=subject, title="Too hot", unit="°C", quantity="Temperature", rule=rule,
    )  # fmt: skip


def turn(check: Check, word: Transition, *, at: float | None = None, value: float = 92.5) -> CheckTransition:
    """Return that a check turned, now unless told."""
    moment = time.time() if at is None else at
    return CheckTransition(check=check, kind=word, at=moment, since=moment - 3, value=value, worst=value)


def record(changes: Iterable[CheckTransition], chassis: Chassis) -> None:
    """Keep what turned."""
    transitions_record(chassis_id=chassis.pk, changes=list(changes))


def fire(device: Device, **more: object) -> Alert:
    """Let an alert of a device fire, and return it."""
    check = check_of(device, **more)  # type: ignore[arg-type]
    record([turn(check, "firing")], device.chassis)
    return Alert.objects.get(cause=check.cause, series_key=check.key, state="firing")


def resolve(alert: Alert) -> None:
    """Let it be over."""
    assert alert.device is not None
    assert alert.chassis is not None
    check = check_of(alert.device, cause=alert.cause, key=alert.series_key)
    record([turn(check, "resolved", value=40.0)], alert.chassis)
