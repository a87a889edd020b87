"""Attacks of one tenant on another's secrets: what a device did before, where others' hosts are, what the BMC says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Role, Tenant, User
from accounts.services import person_edit
from core.downloads import csv_cell
from fabric.inventory.models import Chassis, Device, Host, HostPort, Slot
from fabric.leases.grants import device_grant
from fabric.operations.models import Operation
from falconweb.testing import carry_out, device_in, host_port_of
from tests.access.lab import Lab, address, lab, made_lab
from tests.access.test_matrix import GETS
from tests.api.test_api import bearer
from tests.pages import page_text
from tests.turns import at_night, in_turn

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db
JSON = "application/json"
PAGES = ("fabric:overview", "fabric:operations", "fabric:device", "fabric:drawer", "api:operations", "fabric:chassis",
         "api:device", "fabric:host", "fabric:fabric", "fabric:devices_csv", "api:chassis_list")  # fmt: skip


def everything(client: Client, lab: Lab, names: Any = PAGES) -> str:
    """Return the text of what a person gets to see, each operation's page included."""
    where = [address(lab, name) for name in names]
    where += [reverse("fabric:operation", args=[pk]) for pk in Operation.objects.values_list("pk", flat=True)]
    where += [reverse("api:operation", args=[pk]) for pk in Operation.objects.values_list("pk", flat=True)]
    return "\n".join(page_text(client.get(one)) for one in where)


def ask(client: Client, device: Device, target: HostPort | None, **more: Any) -> Any:
    body = {"device_id": device.pk, "target_host_port_id": None if target is None else target.pk, **more}
    return client.post(reverse("api:operations"), body, content_type=JSON)


def test_who_is_granted_a_device_is_not_told_what_was_done_with_it_before(lab: Lab) -> None:
    Operation.objects.create(
        kind="detach", state="failed", chassis=lab.device.chassis, device=lab.device, finished_at=timezone.now(),
        summary="Detach GPU owned from node-owned (H1)", requested_by=User.objects.get(username="owner"),
        requested_by_name="owner-of-before", error="node-owned is in use",
    )  # fmt: skip
    administrator = User.objects.get(username="administrator")
    strangers = Tenant.objects.get(name="Three")
    device_grant(person=administrator, device=lab.device, tenant=strangers, take=True)
    text = everything(lab.clients["stranger"], lab)
    assert "GPU owned" in text
    assert not [word for word in ("node-owned", "owner-of-before", "Detach GPU owned") if word in text]


def test_a_person_who_changes_tenants_takes_nothing_along(lab: Lab) -> None:
    owner, administrator = User.objects.get(username="owner"), User.objects.get(username="administrator")
    assert ask(lab.clients["owner"], lab.device, None).status_code == 202
    person_edit(
        by=administrator, person=owner, username="owner", full_name="", email="", role=Role.USER,
        tenant=Tenant.objects.get(name="Three"), active=True,
    )  # fmt: skip
    for person in ("stranger", "owner"):
        text = everything(lab.clients[person], lab)
        assert not [word for word in ("node-owned", "GPU owned") if word in text], person


def test_an_administrator_who_joins_a_tenant_shows_it_nothing(lab: Lab) -> None:
    boss = User.objects.create_superuser("boss", password="x")
    theirs = Device.objects.get(name="GPU other")
    client = Client()
    client.force_login(boss)
    assert ask(client, theirs, None).status_code == 202
    boss.role, boss.tenant = Role.USER, Tenant.objects.get(name="One")
    boss.save()
    text = everything(lab.clients["member"], lab)
    assert not [word for word in ("node-other", "GPU other") if word in text]


def test_where_a_device_is_now_is_not_told_when_the_host_is_anothers(lab: Lab) -> None:
    theirs = HostPort.objects.get(label="H2")
    Device.objects.filter(pk=lab.device.pk).update(host_port=theirs)
    Operation.objects.create(
        kind="move", state="done", chassis=lab.device.chassis, device=lab.device, finished_at=timezone.now(),
        summary="Move", requested_by_name="boss-of-all",
    )  # fmt: skip
    answer = ask(lab.clients["owner"], lab.device, None, expected_host_port_id=lab.host_port.pk)
    assert answer.status_code in {403, 409}
    assert "node-other" not in answer.content.decode()
    assert "H2" not in answer.content.decode()


def test_an_operation_to_anothers_host_names_it_to_its_tenant_alone(lab: Lab) -> None:
    boss = User.objects.get(username="administrator")
    theirs = HostPort.objects.get(label="H2")
    client = Client()
    client.force_login(boss)
    asked = ask(client, lab.device, theirs)
    if asked.status_code == 202:
        assert "node-other" not in everything(lab.clients["owner"], lab)
        busy = ask(lab.clients["owner"], lab.device, None)
        assert busy.status_code == 409
        assert "node-other" not in busy.content.decode()


@pytest.mark.django_db(transaction=True)
def test_what_a_bmc_says_tells_a_tenant_no_address(
    falcon_chassis: Chassis, grant_to_tenant: Callable[..., None], user_client: Client
) -> None:
    """The sentence of a failure is made where the address is known; it is shown where it must not be."""
    device, port = device_in(falcon_chassis, drawer=1, slot=7), host_port_of(falcon_chassis, "H1")
    grant_to_tenant(device, port)
    falcon_chassis.set_password("a wrong one")
    falcon_chassis.save()
    address = falcon_chassis.url.removeprefix("https://")
    ended = carry_out(ask(user_client, device, port).json()["id"])
    assert ended.state == "failed"
    shown = [
        user_client.get(where).content.decode()
        for where in ("/", "/operations/", f"/operations/{ended.pk}/", "/api/v1/operations/", f"/devices/{device.pk}/")
    ]
    assert ended.error
    assert not [text for text in shown if address in text or "127.0.0.1" in text]


@pytest.fixture
def between() -> Iterator[Callable[[Callable[[], None]], None]]:
    """A function that lets something happen after a request was checked and before it is carried out."""
    contexts: list[Any] = []

    def arrange(happen: Callable[[], None]) -> None:
        seen: list[str] = []

        def watch(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
            if sql.startswith("SAVEPOINT") and not seen:
                seen.append(sql)
                happen()
            return execute(sql, parameters, many, context)

        contexts.append(connection.execute_wrapper(watch))
        contexts[-1].__enter__()

    yield arrange
    for one in contexts:
        one.__exit__(None, None, None)


@pytest.mark.parametrize("lost", ["device", "port"])
def test_what_is_granted_away_at_the_same_moment_is_not_touched(
    lab: Lab, between: Callable[[Callable[[], None]], None], lost: str
) -> None:
    Device.objects.filter(pk=lab.device.pk).update(host_port=None)
    others = Tenant.objects.get(name="Two")
    model: Any = Device if lost == "device" else HostPort
    thing = lab.device if lost == "device" else lab.host_port
    between(lambda: model.objects.filter(pk=thing.pk).update(tenant=others))
    answer = ask(lab.clients["owner"], lab.device, lab.host_port)
    assert answer.status_code == 404
    assert not Operation.objects.open().exists()


def test_no_search_or_count_tells_what_another_tenant_has(lab: Lab) -> None:
    """Letter by letter, over every list and the table: the answers are those for text that is nowhere."""
    client = lab.clients["owner"]
    words = ("SN-OTHER", "GPU other", "node-other", "Two", "secret", "127.0.0.1")
    for turn, where in enumerate(("devices", "slots", "ports", "host-ports", "hosts", "switches", "drawers")):
        base = client.get(f"/api/v1/{where}/", {"search": "no such text"}).json()
        for word in ("other", *in_turn(words, turn, of=2)):
            assert client.get(f"/api/v1/{where}/", {"search": word}).json() == base, (where, word)

    def listed(where: str, word: str) -> str:
        """Return what a search for a word answers, without the word itself."""
        text = page_text(client.get(where, {"q": word, "search": word, "view": "list"}))
        return text.replace(quote_plus(word), "").replace(quote(word), "").replace(word, "")

    for where in ("/fabric/", "/fabric/devices.csv", "/api/v1/chassis/"):
        base = listed(where, "zzzz")
        for word in words[:4]:
            assert listed(where, word) == base, (where, word)
    assert client.get("/api/v1/devices/").json()["count"] == 1
    theirs = Device.objects.get(name="GPU other")
    for query in (
        f"device_id={theirs.pk}",
        "ordering=tenant__name",
        "tenant=2",
        f"offset=0&limit=1000&device_id={theirs.pk}",
    ):
        assert "other" not in client.get(f"/api/v1/operations/?{query}").content.decode()


def test_no_id_of_another_tenant_is_answered_by_any_method(lab: Lab) -> None:
    theirs = Device.objects.select_related("slot__port", "host_port__host").get(name="GPU other")
    assert theirs.slot is not None
    assert theirs.host_port is not None
    administrator = User.objects.get(username="administrator")
    operation = Operation.objects.create(
        kind="detach", chassis=theirs.chassis, device=theirs, summary="Detach GPU other", requested_by=administrator
    )
    ids: dict[str, Any] = {
        "device": theirs.pk, "slot": theirs.slot_id, "port": theirs.slot.port_id, "host_port": theirs.host_port_id,
        "host": theirs.host_port.host_id, "operation": operation.pk, "device_tenant": theirs.pk,
        "host_port_tenant": theirs.host_port_id,
    }  # fmt: skip
    people = [lab.clients["owner"], lab.clients["member"]]
    for name in GETS:
        number = ids.get(name.rpartition(":")[2])
        if number is None:
            continue
        for turn, client in enumerate(people):
            for method in ("GET", *in_turn(("HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"), turn, of=2)):
                answer = client.generic(method, reverse(name, args=[number]), "{}", content_type=JSON)
                assert answer.status_code in {403, 404, 405} or method == "OPTIONS", (name, method)
                text = answer.content.decode()
                assert not [word for word in ("other", "SN-OTHER") if word in text.replace("another", "")], (
                    name,
                    method,
                )
    for key in (f"device/{theirs.pk}/temperature_celsius", f"port/{theirs.slot.port_id}/rx_bytes_per_second"):
        answer = people[0].get(address(lab, "api:readings"), {"keys": key})
        assert answer.status_code == 404
    assert ask(people[0], lab.device, theirs.host_port).status_code == 404
    assert ask(people[0], lab.device, None, expected_host_port_id=theirs.host_port_id).status_code == 404
    forms = {"device": theirs.pk, "target": ""}, {"device": lab.device.pk, "target": theirs.host_port_id}
    for form in forms:
        assert people[0].post(reverse("fabric:operations"), form).status_code == 404


def test_who_may_do_nothing_any_more_does_nothing(lab: Lab) -> None:
    owner = User.objects.get(username="owner")
    header = bearer(owner)
    User.objects.filter(pk=owner.pk).update(is_active=False)
    assert lab.clients["owner"].get("/").status_code == 302
    assert lab.clients["owner"].get(reverse("api:me")).status_code == 401
    assert Client().get(reverse("api:me"), headers=header).status_code == 401
    User.objects.filter(pk=owner.pk).update(is_active=True, tenant=None)
    assert lab.clients["owner"].get(reverse("api:devices")).json()["count"] == 0
    assert ask(lab.clients["owner"], lab.device, None).status_code == 404


# All that may stand anywhere in a name stands in one.
HOSTILE = (
    '<script>alert(1)</script>"><img src=x onerror=alert(1)></template><script>{% debug %}\r\nSet-Cookie: evil=1',
    "=cmd|'/C calc'!A0",
    "javascript:alert(1)\u202egpj.exe{{ 7*7 }}",
)


@pytest.mark.parametrize("name", [HOSTILE[0], *at_night(*HOSTILE[1:])])
def test_names_that_a_hostile_bmc_gives_are_text_everywhere(lab: Lab, name: str) -> None:
    Device.objects.update(name=name, model=name, serial_number=name, manufacturer=name)
    Slot.objects.update(name=name)
    Host.objects.update(name=name)
    HostPort.objects.update(label=name[:50])
    Chassis.objects.update(model=name, serial_number=name, last_error=name, health=name[:20])
    Operation.objects.update(summary=name, error=name, state="failed", finished_at=timezone.now(), steps=[
        {"name": name, "state": "failed", "started_at": None, "finished_at": None, "sentence": name}])  # fmt: skip
    shown = [one for one, (code, *_) in GETS.items() if one.startswith("fabric:") and code == 200]
    for turn, person in enumerate(("administrator", "owner")):
        for where in in_turn(shown, turn, of=2):
            answer = lab.clients[person].get(address(lab, where))
            text = page_text(answer)
            assert "Set-Cookie" not in answer.headers
            assert "evil" not in answer.cookies
            if answer["Content-Type"].startswith("text/html"):
                assert "<script>" not in text
                assert "<img" not in text
                assert "onerror=alert(1)>" not in text
                assert 'href="javascript:' not in text
            elif answer["Content-Type"].startswith("text/csv"):
                assert "\n=" not in text
                assert ",=" not in text


@pytest.mark.parametrize(
    "cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1", "＋1", "－1", "＠x", " =1"]
)
def test_no_cell_is_a_formula(cell: str) -> None:
    assert csv_cell(cell).startswith("'")


def test_a_negative_number_stays_one() -> None:
    assert [csv_cell(one) for one in (-1, -1.5, None, "a-b")] == ["-1", "-1.5", "", "a-b"]
