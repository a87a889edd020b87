"""Attacks by leases: on what others hold, on the end of one's own, and on the patience of administrators."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Tenant, User
from fabric.inventory.models import Chassis, Device, HostPort
from fabric.leases import ends as leases_ends
from fabric.leases import services
from fabric.leases.lifecycle import leases_process
from fabric.leases.models import Lease, LeaseItem, Letter
from fabric.operations.models import Operation, Plan
from fabric.plans import jobs
from fabric.plans.jobs import plan_cancel, plan_resume
from fabric.plans.rules import DesiredState
from tests.access.lab import Lab, address, lab, made_lab
from tests.access.test_attack_plans import NONSENSE, OTHERS, agent_says, move_to, other, person, quiet, stopped, unread
from tests.access.test_attack_tenants import HOSTILE
from tests.access.test_matrix import GETS
from tests.access.test_matrix_writes import ROUTES
from tests.pages import page_text
from tests.turns import in_turn

__all__ = ["lab", "made_lab", "unread"]
pytestmark = pytest.mark.django_db
JSON = "application/json"


def held(tenant: str) -> Lease:
    return Lease.objects.get(tenant__name=tenant, state="active")


def ask(client: Client, **more: Any) -> Any:
    body = {"wishes": [{"kind": "gpu", "count": 1}], **more}
    return client.post(reverse("api:leases"), body, content_type=JSON)


def everything(client: Client, lab: Lab) -> str:
    """Return all that a person reads about leases."""
    where = [address(lab, name) for name, codes in GETS.items()
             if 200 in codes and any(word in name for word in ("lease", "usage", "overview"))]  # fmt: skip
    for lease in Lease.objects.all():
        where += [reverse(name, args=[lease.pk]) for name in ("fabric:lease", "api:lease")]
    return "\n".join(page_text(client.get(one)) for one in where)


def test_who_works_on_the_host_of_others_is_not_told_where_a_lease_cannot_end(lab: Lab) -> None:
    """The device of a lease hangs on a host of others, where somebody uses it: the return waits, and says for what."""
    quiet(lab)
    port = HostPort.objects.get(label="H2")
    assert port.host is not None
    Device.objects.filter(pk=lab.device.pk).update(host_port=port)
    agent_says(port.host, lab.device, "secret-train")
    lease = held("One")
    now = timezone.now()
    Lease.objects.filter(pk=lease.pk).update(starts_at=now - timedelta(days=1), ends_at=now - timedelta(minutes=1))
    # Switched off: nobody asks it, and it is as its rows say.
    Chassis.objects.update(last_error="", enabled=False)
    leases_process()
    assert "in use" in Lease.objects.get(pk=lease.pk).trouble
    for who in ("owner", "member", "stranger"):
        text = everything(lab.clients[who], lab)
        assert not [word for word in ("secret-train", "maria", "node-other") if word in text]


@pytest.mark.parametrize("decide", [plan_resume, plan_cancel])
def test_what_returns_is_not_attached_again_by_a_plan_that_stopped(lab: Lab, unread: None, decide: Any) -> None:
    quiet(lab)
    if decide is plan_resume:
        Device.objects.filter(pk=lab.device.pk).update(host_port=None)
        plan = stopped(lab, "owner", DesiredState(attachments={lab.device.pk: lab.host_port.pk}))
    else:
        plan = stopped(lab, "owner", DesiredState(attachments={lab.device.pk: None}))
        Device.objects.filter(pk=lab.device.pk).update(host_port=None)
    Lease.objects.filter(pk=held("One").pk).update(state="ending")
    more = {} if decide is plan_resume else {"roll_back": True}
    decide(person=person("owner"), plan=plan, **more)
    jobs.plan_advance(plan.pk)
    assert not Operation.objects.open().exists()
    assert Plan.objects.get(pk=plan.pk).state == "stopped"


def test_nobody_fills_the_letter_box_of_administrators(
    lab: Lab, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EMAIL_IS_SENT = True
    monkeypatch.setattr(services, "MAX_REQUESTS_PER_DAY", 6)
    monkeypatch.setattr(leases_ends, "MAX_EXTENSION_REQUESTS_PER_DAY", 4)
    User.objects.filter(username="administrator").update(email="ada@falcon.example")
    client = lab.clients["owner"]
    taken = 0
    for _ in range(10):
        asked = ask(client)
        if asked.status_code == 201:
            taken += 1
            client.post(reverse("api:lease_withdrawal", args=[asked.json()["id"]]), {}, content_type=JSON)
    assert taken == 4  # two are in the lab
    lease = held("One")
    where = reverse("api:lease_extension", args=[lease.pk])
    ends = [(timezone.now() + timedelta(days=30, minutes=minute)).isoformat() for minute in range(8)]
    answers = [client.post(where, {"ends_at": end}, content_type=JSON).status_code for end in ends]
    assert answers.count(409) == 4
    assert Letter.objects.count() == taken + 4
    # Another tenant is not kept from asking.
    assert ask(lab.clients["stranger"]).status_code == 201


def test_no_item_of_a_lease_of_others_is_returned_with_ones_own(lab: Lab) -> None:
    theirs = list(LeaseItem.objects.filter(lease__tenant__name="Two").values_list("pk", flat=True))
    client = lab.clients["owner"]
    for items in (theirs, [*theirs, *held("One").items.values_list("pk", flat=True)]):
        answer = client.post(reverse("api:lease_return", args=[held("One").pk]), {"item_ids": items}, content_type=JSON)
        assert answer.status_code in {400, 404, 409}
        assert not [word for word in OTHERS if word in answer.content.decode()]
        form = {"item": items, "items": items}
        client.post(reverse("fabric:lease_return", args=[held("One").pk]), form)
    assert held("Two").items.filter(released_at=None).count() == len(theirs)
    assert not Lease.objects.filter(tenant__name="Two", state="ending").exists()


def test_no_end_that_one_asks_for_tells_who_has_it_then(lab: Lab) -> None:
    lease, others = held("One"), Tenant.objects.get(name="Two")
    over = timezone.now() + timedelta(days=3)
    later = Lease.objects.create(
        tenant=others, tenant_name="Two", state="approved", starts_at=over + timedelta(days=1),
        ends_at=None, note="secret project",
    )  # fmt: skip
    LeaseItem.objects.create(lease=later, kind="gpu", name=lab.device.name, device=lab.device)
    end = (over + timedelta(days=5)).isoformat()
    where = reverse("api:lease_extension", args=[lease.pk])
    answer = lab.clients["owner"].post(where, {"ends_at": end, "override": True}, content_type=JSON)
    assert answer.status_code == 409
    text = answer.content.decode() + everything(lab.clients["owner"], lab)
    assert "in use from" in text
    assert not [word for word in ("Two", "secret project", f"lease {later.pk}", f"Lease {later.pk}") if word in text]


def test_who_changes_tenants_leaves_its_leases_and_hours_behind(lab: Lab) -> None:
    move_to("owner", "Three")
    text = everything(lab.clients["owner"], lab)
    assert not [word for word in ("GPU owned", "node-owned", *OTHERS) if word in text]
    lease = held("One")
    for name in ("lease_withdrawal", "lease_return", "lease_extension"):
        body = {"ends_at": (timezone.now() + timedelta(days=9)).isoformat()}
        answer = lab.clients["owner"].post(reverse(f"api:{name}", args=[lease.pk]), body, content_type=JSON)
        assert answer.status_code == 404


@pytest.mark.parametrize("tenant", ["Two", ""])
def test_no_tenant_in_an_address_shows_the_hours_of_others(lab: Lab, tenant: str) -> None:
    pk = Tenant.objects.filter(name=tenant).values_list("pk", flat=True).first() or "0"
    for name in ("fabric:lease_usage", "fabric:lease_usage_csv", "api:usage", "api:leases", "api:lease_calendar"):
        for who in ("owner", "member", "stranger"):
            answer = lab.clients[who].get(reverse(name), {"tenant": pk, "tenant_id": pk, "chassis_id": "1"})
            text = page_text(answer)
            assert not [word for word in ("Two", *OTHERS) if word in text], (name, who)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_people_write_about_a_lease_is_text_everywhere(lab: Lab, name: str) -> None:
    Tenant.objects.filter(name="One").update(name=name[:100])
    Lease.objects.update(note=name, reason=name, trouble=name, extension_note=name, tenant_name=name[:100])
    LeaseItem.objects.update(name=name)
    asked = {*(one for one in GETS if "lease" in one), "fabric:quotas", "fabric:overview"}
    shown = sorted(one for one in asked if 200 in GETS[one])
    for turn, who in enumerate(("administrator", "owner")):
        for where in in_turn(shown, turn, of=2):
            answer = lab.clients[who].get(address(lab, where))
            text = page_text(answer)
            assert "Set-Cookie" not in answer.headers
            if answer["Content-Type"].startswith("text/html"):
                assert not [one for one in ("<script>alert", "<img", "onerror=alert(1)>") if one in text], where
            elif answer["Content-Type"].startswith("text/csv"):
                assert not [one for one in ("\n=", ",=", '"=') if one in text], where


MOMENTS = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "9999-12-31T23:59", "2026-02-30T00:00", "\x00")


@pytest.mark.parametrize(("turn", "text"), list(enumerate([*NONSENSE[1:6], *MOMENTS])))
def test_no_nonsense_about_leases_is_an_error_of_the_site(lab: Lab, turn: int, text: str) -> None:
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    form = dict.fromkeys(
        ("starts_at", "ends_at", "note", "reason", "count_gpu", "chassis_gpu", "override", "tenant", "devices",
         "host_ports", "items", "item", "once_gpu", "hours_gpu", "approve"), text,
    )  # fmt: skip
    wishes = [{"kind": text, "count": text, "chassis_id": text}]
    bodies: list[dict[str, Any]] = [
        {**dict.fromkeys(("starts_at", "ends_at", "note", "reason", "override", "tenant_id"), text),
         "device_ids": [text], "host_port_ids": [text], "item_ids": [text], "wishes": wishes},
        {"wishes": [{"kind": "gpu", "count": 1}], "ends_at": text, "starts_at": text},
        {"limits": [{"kind": "gpu", "most_at_once": text}]}, {"wishes": text, "device_ids": text, "ends_at": None},
    ]  # fmt: skip
    writes = [one for one in ROUTES if "lease" in one[0] or "quotas" in one[0]]
    pages = ("fabric:leases", "fabric:lease_calendar", "fabric:lease_usage", "fabric:lease_usage_csv")
    for number, who in enumerate(("administrator", "owner")):
        client = lab.clients[who]
        client.raise_request_exception = False
        for place, (name, method) in in_turn(enumerate(writes), turn + number, of=5):
            if name.startswith("api:"):
                for body in in_turn(bodies, turn + place, of=len(bodies)):
                    answer = client.generic(method, address(lab, name), json.dumps(body), content_type=JSON)
                    assert answer.status_code < 500, (name, body)
            else:
                assert client.post(address(lab, name), form).status_code < 500, name
        for name in in_turn(pages, turn + number, of=4):
            query = dict.fromkeys(("page", "from", "step", "since", "until", "tenant", "state"), text)
            assert client.get(address(lab, name), query).status_code < 500, name
        for name in ("api:leases", "api:lease_calendar", "api:usage"):
            fields = ("state", "tenant_id", "from", "step", "since", "until", "chassis_id", "limit", "offset", "first")
            for one in in_turn(fields, turn + number, of=9):
                assert client.get(address(lab, name), {one: text}).status_code < 500, (name, one)


def test_a_lease_holds_nothing_that_was_promised_to_others_meanwhile(lab: Lab) -> None:
    """An administrator approves a request with what somebody else has by then, and is told by whom."""
    asked = Lease.objects.get(tenant__name="One", state="requested")
    body = {"device_ids": [other().pk], "ends_at": None, "override": True}
    client = lab.clients["administrator"]
    answer = client.post(reverse("api:lease_approval", args=[asked.pk]), body, content_type=JSON)
    assert answer.status_code == 409
    assert "Two" in answer.content.decode()
    assert Lease.objects.get(pk=asked.pk).state == "requested"
    assert Device.objects.get(pk=other().pk).tenant == Tenant.objects.get(name="Two")
