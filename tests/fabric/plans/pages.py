"""What tests of the pages of plans have in common."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.inventory.models import Chassis, Device, Drawer, HostPort
from fabric.operations.models import Operation, Plan


def device_in(drawer: int, slot: int) -> Device:
    return Device.objects.get(slot__drawer__number=drawer, slot__number=slot)


def port(label: str) -> HostPort:
    return HostPort.objects.get(label=label)


def drawer(number: int) -> Drawer:
    return Drawer.objects.get(number=number)


def browser(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def words(answer: Any) -> str:
    """Return what is read on a page."""
    text = re.sub(r"<(script|style|template)\b.*?</\1>", " ", answer.content.decode(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def page_of(person: User, plan: Plan) -> str:
    return words(browser(person).get(reverse("fabric:plan", args=[plan.pk])))


def post(person: User, name: str, *args: Any, **values: Any) -> Any:
    return browser(person).post(reverse(f"fabric:{name}", args=args), values, follow=True)


def granted(tenant: Tenant, *slots: int, ports: tuple[str, ...] = ()) -> None:
    """Let a tenant hold slots of drawer 1, and host ports."""
    Device.objects.filter(slot__drawer__number=1, slot__number__in=slots).update(tenant=tenant)
    HostPort.objects.filter(label__in=ports).update(tenant=tenant)


def done_before(chassis: Chassis, kind: str, *seconds: float, drawer: Drawer | None = None) -> None:
    """Make operations of the past that took so long."""
    now = timezone.now() - timedelta(hours=1)
    for took in seconds:
        Operation.objects.create(
            kind=kind, state="done", chassis=chassis, drawer=drawer, summary="before", requested_by_name="ada",
            started_at=now, finished_at=now + timedelta(seconds=took),
        )  # fmt: skip
