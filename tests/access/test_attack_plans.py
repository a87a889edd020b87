"""Attacks by plans: on what others have, on what one had before, and on everybody's time."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.db.models import Q
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.audit.models import AuditEntry
from accounts.audit.verification import chain_check
from accounts.models import Role, Tenant, User
from accounts.services import person_edit
from core.errors import Conflict, FalconWebError
from fabric.agents.models import HostAgent
from fabric.inventory.locks import lock_chassis
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port
from fabric.leases.grants import device_grant, host_port_grant
from fabric.operations.models import Operation, Plan
from fabric.operations.rules import PortSetting
from fabric.plans import jobs
from fabric.plans.rules import DesiredState
from fabric.plans.services import MAX_DRAFTS, plan_apply, plan_change, plan_create, plan_discard
from tests.access.lab import Lab, address, lab, made_lab
from tests.access.test_attack_tenants import HOSTILE
from tests.access.test_matrix_writes import ROUTES
from tests.turns import at_night, in_turn

__all__ = ["lab", "made_lab"]
pytestmark = pytest.mark.django_db
JSON = "application/json"
OTHERS = ("GPU other", "node-other", "SN-OTHER")
PLAN_PAGES = ("fabric:plans", "fabric:fabric", "fabric:overview", "fabric:operations", "fabric:drawer", "fabric:draft",
              "api:plans", "api:operations", "api:drifts", "api:history")  # fmt: skip


def person(name: str) -> User:
    return User.objects.get(username=name)


def other() -> Device:
    return Device.objects.get(name="GPU other")


def elsewhere() -> HostPort:
    return HostPort.objects.get(label="H2")


def make(client: Client, wanted: dict[str, Any], **headers: str) -> Any:
    return client.post(reverse("api:plans"), wanted, content_type=JSON, headers=headers)


def shown(client: Client, lab: Lab) -> str:
    """Return the text of all that a person gets to see of plans and operations."""
    where = [address(lab, name) for name in PLAN_PAGES]
    for room, model in (("plan", Plan), ("operation", Operation)):
        pks = model.objects.values_list("pk", flat=True)
        where += [reverse(f"{space}:{room}", args=[pk]) for pk in pks for space in ("fabric", "api")]
    return "\n".join(client.get(one, follow=True).content.decode() for one in where)


def hand_over(thing: Device | HostPort, tenant: str) -> None:
    """Let an administrator grant something to another tenant."""
    grant: Any = device_grant if isinstance(thing, Device) else host_port_grant
    kind = "device" if isinstance(thing, Device) else "host_port"
    grant(person=person("administrator"), tenant=Tenant.objects.get(name=tenant), take=True, **{kind: thing})


def move_to(who: str, tenant: str) -> None:
    row = person(who)
    person_edit(
        by=person("administrator"), person=row, username=who, full_name="", email="", role=Role.USER,
        tenant=Tenant.objects.get(name=tenant), active=True,
    )  # fmt: skip


def quiet(lab: Lab) -> None:
    """Leave nothing of the lab's own plans and leases that a test's could be mistaken for."""
    Plan.objects.all().delete()


def test_who_changes_tenants_takes_no_draft_along_and_can_begin_another(lab: Lab) -> None:
    quiet(lab)
    client = lab.clients["owner"]
    assert client.post(reverse("fabric:draft"), {"device": lab.device.pk, "target": ""}).status_code == 302
    assert Plan.objects.get().origin == "topology"
    move_to("owner", "Three")
    text = shown(client, lab)
    assert not [word for word in ("GPU owned", "node-owned") if word in text]
    hand_over(other(), "Three")
    hand_over(elsewhere(), "Three")
    answer = client.post(reverse("fabric:draft"), {"device": other().pk, "target": ""})
    assert answer.status_code == 302
    assert Plan.objects.filter(tenant__name="Three").count() == 1


def test_an_idempotency_key_brings_back_no_plan_of_a_tenant_that_one_has_left(lab: Lab) -> None:
    quiet(lab)
    wanted = {"attachments": [{"device_id": lab.device.pk, "host_port_id": None}]}
    client = lab.clients["owner"]
    assert make(client, wanted, Idempotency_Key="once").status_code == 201
    move_to("owner", "Three")
    answer = make(client, wanted, Idempotency_Key="once")
    assert answer.status_code == 422
    assert "GPU owned" not in answer.content.decode()


def test_an_idempotency_key_brings_back_no_operation_of_a_tenant_that_one_has_left(lab: Lab) -> None:
    quiet(lab)
    wanted = {"device_id": lab.device.pk, "target_host_port_id": None}
    client = lab.clients["owner"]
    key = {"Idempotency-Key": "once"}
    assert client.post(reverse("api:operations"), wanted, content_type=JSON, headers=key).status_code == 202
    Operation.objects.open().update(state="failed", error="x", finished_at=timezone.now())
    move_to("owner", "Three")
    hand_over(lab.device, "Three")
    hand_over(lab.host_port, "Three")
    answer = client.post(reverse("api:operations"), wanted, content_type=JSON, headers=key)
    assert answer.status_code == 422


@pytest.mark.parametrize("setting", [PortSetting(port_type="UnconfiguredPort"), PortSetting(configured_width=8)])
def test_a_port_of_ones_own_tells_nothing_of_a_device_of_others_behind_it(lab: Lab, setting: PortSetting) -> None:
    quiet(lab)
    Device.objects.filter(pk=other().pk).update(host_port=lab.host_port)
    Port.objects.update(port_type="DownstreamPort", configured_width=16)
    assert lab.host_port.port_id is not None
    wanted = {"port_settings": [{"port_id": lab.host_port.port_id, "port_type": setting.port_type or "UpstreamPort",
                                 "configured_width": setting.configured_width or 8}]}  # fmt: skip
    answer = make(lab.clients["owner"], wanted)
    assert answer.status_code == 403
    text = answer.content.decode() + shown(lab.clients["owner"], lab)
    assert not [word for word in OTHERS if word in text]


def agent_says(host: Host, device: Device, *commands: str) -> None:
    """Let the agent of a host have reported who holds a device."""
    holders = [{"kind": "process", "what": "/dev/nvidia0", "pid": 4711, "command": one, "owner": "maria"}
               for one in commands]  # fmt: skip
    report = {
        "host": host.identity, "number": 1, "started": 1.0, "sent": 1.0, "version": "1",
        "devices": [{"address": "0000:41:00.0", "vendor_id": "", "device_id": "", "serial": device.serial_number}],
        "holders": {"0000:41:00.0": holders},
    }  # fmt: skip
    told = {"digest": uuid.uuid4().hex, "key_encrypted": "", "report": report, "reported_at": timezone.now()}
    HostAgent.objects.update_or_create(host=host, defaults=told)


def test_a_draft_tells_nothing_of_who_works_on_a_host_that_was_granted_away(lab: Lab) -> None:
    quiet(lab)
    assert lab.host_port.host is not None
    agent_says(lab.host_port.host, lab.device, "secret-train")
    draft = make(lab.clients["owner"], {"attachments": [{"device_id": lab.device.pk, "host_port_id": None}]}).json()
    page = reverse("fabric:plan", args=[draft["id"]])
    assert "secret-train" in lab.clients["owner"].get(page).content.decode()
    hand_over(lab.host_port, "Two")
    for where in (page, reverse("api:plan", args=[draft["id"]]), reverse("fabric:device", args=[lab.device.pk])):
        assert "secret-train" not in lab.clients["owner"].get(where).content.decode()
    # Nor when it is asked to be applied, by force or not.
    for body in ({}, {"force_device_ids": [lab.device.pk], "confirmation": draft["title"]}):
        answer = lab.clients["owner"].post(reverse("api:plan_apply", args=[draft["id"]]), body, content_type=JSON)
        assert answer.status_code == 403
        assert "maria" not in answer.content.decode()


def stopped(lab: Lab, who: str, wanted: DesiredState, **changes: Any) -> Plan:
    """Return a plan of a person that stopped at its first step."""
    plan = plan_create(person=person(who), desired=wanted, title="Halfway", origin="api")
    plan_apply(person=person(who), plan=plan)
    ended = {"state": "failed", "error": "It failed.", "finished_at": timezone.now(), "attempts": 1}
    Operation.objects.open().update(**ended, **changes)
    jobs.plan_advance(plan.pk)
    plan.refresh_from_db()
    assert plan.state == "stopped"
    return plan


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chassis of the lab is nowhere: what its rows say is taken for what it shows."""

    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(jobs, "_read_hardware", nothing)


def test_no_drawer_is_ones_own_while_a_device_of_others_is_only_missing(lab: Lab) -> None:
    quiet(lab)
    hand_over(elsewhere(), "One")
    where, mode = reverse("api:drawer_mode", args=[Drawer.objects.get().pk]), {"mode": "StandardTwoHosts"}
    wanted = {"modes": [{"drawer_id": Drawer.objects.get().pk, "mode": "StandardTwoHosts"}]}
    Device.objects.update(host_port=None)
    Device.objects.filter(pk=other().pk).update(missing_since=timezone.now())
    client = lab.clients["owner"]
    assert client.post(where, mode, content_type=JSON).status_code == 403
    assert make(client, wanted).status_code == 403
    Device.objects.filter(pk=other().pk).update(tenant=None)
    assert make(client, wanted).status_code == 201


@pytest.mark.parametrize("decision", ["plan_resume", "plan_cancel"])
def test_the_way_on_and_back_names_and_touches_no_device_that_others_have_by_then(
    lab: Lab, unread: None, decision: str
) -> None:
    """The port is the tenant's alone when the plan begins; a device of others hangs on it when it goes on."""
    quiet(lab)
    Port.objects.update(port_type="DownstreamPort", configured_width=16)
    port = lab.host_port.port
    assert port is not None
    plan = stopped(lab, "owner", DesiredState(settings={port.pk: PortSetting(configured_width=8)}))
    if decision == "plan_cancel":
        Port.objects.filter(pk=port.pk).update(configured_width=8)
    Device.objects.filter(pk=other().pk).update(host_port=lab.host_port)
    body = {"roll_back": True} if decision == "plan_cancel" else {}
    answer = lab.clients["owner"].post(reverse(f"api:{decision}", args=[plan.pk]), body, content_type=JSON)
    assert answer.status_code == 202
    jobs.plan_advance(plan.pk)
    assert not Operation.objects.filter(device=other()).exists()
    assert Plan.objects.get(pk=plan.pk).state == "stopped"
    text = shown(lab.clients["owner"], lab)
    assert not [word for word in OTHERS if word in text]


def test_a_plan_that_an_administrator_resumes_tells_its_tenant_nothing_of_others(lab: Lab, unread: None) -> None:
    quiet(lab)
    plan = stopped(lab, "owner", DesiredState(attachments={lab.device.pk: None}))
    Device.objects.filter(pk=lab.device.pk).update(host_port=elsewhere())
    client = lab.clients["administrator"]
    assert client.post(reverse("api:plan_resume", args=[plan.pk]), {}, content_type=JSON).status_code == 202
    jobs.plan_advance(plan.pk)
    text = shown(lab.clients["owner"], lab)
    assert Plan.objects.get(pk=plan.pk).state == "stopped"
    assert not [word for word in OTHERS if word in text]


def test_an_administrator_puts_nothing_of_others_into_a_tenants_draft(lab: Lab) -> None:
    quiet(lab)
    draft = make(lab.clients["owner"], {"attachments": [{"device_id": lab.device.pk, "host_port_id": None}]}).json()
    both = {"attachments": [{"device_id": one.pk, "host_port_id": None} for one in (lab.device, other())]}
    where = reverse("api:plan", args=[draft["id"]])
    assert lab.clients["administrator"].put(where, both, content_type=JSON).status_code == 403
    # Nor does one apply what was the tenant's when it was drafted.
    hand_over(lab.device, "Three")
    hand_over(lab.host_port, "Three")
    assert lab.clients["administrator"].post(f"{where}apply/", {}, content_type=JSON).status_code == 403
    text = shown(lab.clients["owner"], lab)
    assert not [word for word in OTHERS if word in text]


def test_a_plan_of_an_administrator_is_named_to_no_tenant_whose_device_it_moves(lab: Lab) -> None:
    quiet(lab)
    wanted = DesiredState(attachments={lab.device.pk: None, other().pk: None})
    boss = person("administrator")
    plan = plan_create(person=boss, desired=wanted, title="Take it all from One and Two", origin="api")
    plan_apply(person=boss, plan=plan)
    text = shown(lab.clients["owner"], lab)
    assert "Detach GPU owned" in text
    assert not [word for word in (*OTHERS, "Take it all") if word in text]
    for decision in ("cancel", "resume", "undo", "apply"):
        where = reverse(f"api:plan_{decision}", args=[plan.pk])
        assert lab.clients["owner"].post(where, {}, content_type=JSON).status_code == 404
    mine = Operation.objects.open().get(device=lab.device)
    where = reverse("api:operation_cancel", args=[mine.pk])
    assert lab.clients["owner"].post(where, {}, content_type=JSON).status_code == 403
    assert mine.is_open


def test_who_held_a_drawer_before_is_not_named_to_who_holds_a_part_of_it_now(lab: Lab) -> None:
    quiet(lab)
    for thing in (other(), elsewhere()):
        hand_over(thing, "One")
    Device.objects.update(host_port=None)
    where = reverse("api:drawer_mode", args=[Drawer.objects.get().pk])
    assert lab.clients["owner"].post(where, {"mode": "StandardTwoHosts"}, content_type=JSON).status_code == 202
    # Nothing of a drawer changes hands while its mode is being changed; what was missing may come back all the same.
    for thing in (other(), elsewhere()):
        with pytest.raises(Conflict):
            hand_over(thing, "Three")
    three = Tenant.objects.get(name="Three")
    Device.objects.filter(pk=other().pk).update(tenant=three)
    HostPort.objects.filter(pk=elsewhere().pk).update(tenant=three)
    answer = lab.clients["stranger"].post(
        reverse("api:operations"), {"device_id": other().pk, "target_host_port_id": elsewhere().pk}, content_type=JSON
    )
    assert answer.status_code == 409
    assert "owner" not in answer.content.decode()


@pytest.mark.parametrize(
    "where", ["https://evil.example/", "//evil.example/", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)",
              "/\t/evil.example", "/\r\nSet-Cookie: evil=1", "evil.example", " //evil.example", "\x00//evil.example",
              "///evil.example", "/@evil.example/..//evil.example/"],
)  # fmt: skip
def test_no_form_leads_away_from_the_site(lab: Lab, where: str) -> None:
    quiet(lab)
    answer = lab.clients["owner"].post(reverse("fabric:draft"), {"device": lab.device.pk, "target": "", "next": where})
    assert answer.status_code == 302
    assert answer["Location"].startswith("/")
    assert not answer["Location"].startswith(("//", "/\\", "/\t"))
    assert "evil" not in answer.cookies
    assert "\n" not in answer["Location"]


NONSENSE = ("\x00", "a\x00b", "\ud800", "٣", "-1", "9" * 400, "1 OR 1=1", "../../etc/passwd")


@pytest.mark.parametrize(("turn", "text"), list(enumerate(NONSENSE)))
def test_no_nonsense_in_a_form_of_plans_is_an_error_of_the_site(lab: Lab, turn: int, text: str) -> None:
    client = lab.clients["administrator"]
    client.raise_request_exception = False
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    forms: list[tuple[str, dict[str, str]]] = [
        ("draft", {"device": text, "target": text}), ("draft", {"drawer": text, "mode": text, "detach": "1"}),
        ("draft", {"drawer": str(Drawer.objects.get().pk), "mode": text}), ("draft", {"cable": text, "host": text}),
        ("draft", {"port": text, "port_type": text, "configured_width": text}), ("draft", {"remove": text}),
        ("draft", {"remove": f"device-{text}"}), ("draft", {"device": str(lab.device.pk), "target": text}),
        ("plan_title", {"title": text}), ("plan_apply", {"on_failure": text, "confirmation": text}),
        ("plan_cancel", {"then": text}), ("drift_accept", {"drift": text, "chassis": text, "all": text}),
        ("drift_reapply", {"drift": text, "chassis": text, "all": text}),
        ("operations", {"device": str(lab.device.pk), "target": text, "expected": text, "confirmation": text}),
    ]  # fmt: skip
    for name, form in in_turn(forms, turn, of=4):
        assert client.post(address(lab, f"fabric:{name}"), form).status_code < 500, (name, form)
    pages = ("plans", "drifts", "operations", "hosts", "slot_history", "device_history", "allocation_export")
    for name in in_turn(pages, turn, of=3):
        query = dict.fromkeys(("q", "page", "state", "chassis", "tenant", "format", "device", "view"), text)
        assert client.get(address(lab, f"fabric:{name}"), query).status_code < 500, name
    for place, name in enumerate(("plans", "drifts", "operations", "history", "allocation", "audit", "audit_export")):
        query = dict.fromkeys(("q", "search", "state", "chassis_id", "tenant_id", "device_id", "slot_id", "limit",
                               "offset", "person", "since", "format", "request_id", "outcome", "as"), text)  # fmt: skip
        for one, value in in_turn(query.items(), turn + place, of=8):
            assert client.get(address(lab, f"api:{name}"), {one: value}).status_code < 500, (name, one)


@pytest.mark.parametrize(
    ("turn", "body"),
    list(enumerate([
     '{"attachments": [{"device_id": 1, "host_port_id": 1}], "title": "\\ud800"}', '{"title": "\\u0000"}',
     '{"attachments": {"a": 1}}', '{"attachments": [[]]}', '{"modes": [{"drawer_id": 1e999, "mode": "Advanced"}]}',
     '{"attachments": [{"device_id": true, "host_port_id": null}]}', '{"modes": [{"drawer_id": 1, "mode": {}}]}',
     '{"modes": [{"drawer_id": "\\u0000", "mode": "Advanced"}]}', '{"cables": [{"host_port_id": -1, "host_id": -1}]}',
     '{"port_settings": [{"port_id": 1, "configured_width": 1.5}]}', '{"port_settings": [{"port_id": 1}]}',
     '{"attachments": [{"device_id": 99999999999999999999999, "host_port_id": null}]}', "[" * 100_000, "[]", "null",
     '{"force_device_ids": "all", "confirmation": []}', '{"roll_back": "perhaps"}', '{"on_failure": ["stop"]}',
     '{"state": "done", "by_site": true, "tenant": 1, "tenant_id": 1, "requested_by": 1, "origin": "lease"}'])),
)  # fmt: skip
def test_no_json_breaks_the_plans_of_the_api(lab: Lab, turn: int, body: str) -> None:
    client = lab.clients["owner"]
    client.raise_request_exception = False
    known = set(Plan.objects.values_list("pk", flat=True))
    own = ("by_site", "tenant", "requested_by", "requested_by_name", "base")
    before = list(Plan.objects.order_by("pk").values_list("pk", *own))
    routes = [one for one in ROUTES if one[0].startswith(("api:plan_", "api:drift")) or one == ("api:plan", "PUT")]
    for name, method in (("api:plans", "POST"), *in_turn(routes, turn, of=3)):
        answer = client.generic(method, address(lab, name), body, content_type=JSON)
        assert answer.status_code < 500, (name, method)
    assert list(Plan.objects.filter(pk__in=known).order_by("pk").values_list("pk", *own)) == before
    made = Plan.objects.exclude(pk__in=known)
    assert not made.filter(Q(by_site=True) | Q(tenant=None) | ~Q(requested_by_name="owner")).exists()


@pytest.mark.parametrize(("turn", "name"), [(0, HOSTILE[0]), *at_night(*enumerate(HOSTILE[1:], 1))])
def test_what_people_call_a_plan_is_text_everywhere(lab: Lab, turn: int, name: str) -> None:
    quiet(lab)
    lab.clients["owner"].post(reverse("fabric:draft"), {"device": lab.device.pk, "target": ""})
    draft = Plan.objects.get()
    lab.clients["owner"].post(reverse("fabric:plan_title", args=[draft.pk]), {"title": name})
    Plan.objects.update(sentence=name, acting_name=name, requested_by_name=name)
    for state in in_turn(("draft", "stopped", "done"), turn, of=3):
        Plan.objects.update(state=state)
        for who in ("administrator", "owner"):
            for where in [one for one in PLAN_PAGES if one.startswith("fabric:")]:
                text = lab.clients[who].get(address(lab, where), follow=True).content.decode()
                assert not [one for one in ("<script>alert", "<img", "onerror=alert(1)>") if one in text]
            answer = lab.clients[who].get(reverse("fabric:plan", args=[draft.pk]))
            assert "Set-Cookie" not in answer.headers
            assert not [one for one in ("<script>alert", "<img") if one in answer.content.decode()]


def test_nobody_fills_the_site_with_drafts(lab: Lab) -> None:
    quiet(lab)
    wanted = {"attachments": [{"device_id": lab.device.pk, "host_port_id": None}]}
    base = plan_create(
        person=person("owner"), desired=DesiredState(attachments={lab.device.pk: None}), title="First", origin="api"
    )
    rows = []
    for number in range(MAX_DRAFTS):
        row = Plan.objects.get(pk=base.pk)
        row.pk, row.title = uuid.uuid4(), str(number)
        rows.append(row)
    Plan.objects.bulk_create(rows)
    answer = make(lab.clients["owner"], wanted)
    assert answer.status_code == 409
    assert "draft" in answer.json()["detail"]
    # Others are not kept from anything, and who has too many can throw some away.
    assert make(lab.clients["administrator"], wanted).status_code == 201
    assert lab.clients["owner"].get(reverse("fabric:plans")).status_code == 200
    assert lab.clients["owner"].delete(reverse("api:plan", args=[base.pk])).status_code == 204


def test_who_is_forced_out_is_on_record_also_when_nobody_was_seen_there(lab: Lab) -> None:
    quiet(lab)
    draft = make(lab.clients["owner"], {"attachments": [{"device_id": lab.device.pk, "host_port_id": None}]}).json()
    body = {"force_device_ids": [lab.device.pk], "confirmation": draft["title"]}
    where = reverse("api:plan_apply", args=[draft["id"]])
    assert lab.clients["owner"].post(where, body, content_type=JSON).status_code == 202
    assert Operation.objects.get(plan=draft["id"]).forced
    assert AuditEntry.objects.filter(action="operation.force", actor_name="owner").count() == 1


def test_what_a_draft_wants_is_not_changed_under_the_lock_of_another_chassis(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever applies locks the chassis that the draft is about: it must not be about another by then."""
    quiet(lab)
    second = Chassis.objects.create(name="falcon-9", url="https://127.0.0.1:9", dialect="zone_patch")
    drawer = Drawer.objects.create(chassis=second, uri="/d", name="Drawer 1", number=1, mode="Advanced")
    boss = person("administrator")
    draft = plan_create(person=boss, desired=DesiredState(attachments={lab.device.pk: None}), title="x", origin="api")
    locked: list[set[int]] = []

    def lock(chassis: Any) -> None:
        locked.append(set(chassis))
        if len(locked) == 1:
            wanted = DesiredState(modes={drawer.pk: "StandardTwoHosts"})  # type: ignore[dict-item]
            Plan.objects.filter(pk=draft.pk).update(
                wanted=wanted.as_json(), base={"modes": {str(drawer.pk): "Advanced"}}
            )
        lock_chassis(chassis)

    monkeypatch.setattr("fabric.plans.services.lock_chassis", lock)
    with pytest.raises(Conflict):
        plan_apply(person=boss, plan=draft)
    assert not Operation.objects.open().exists()


def at_once(*works: Callable[[], object]) -> list[FalconWebError | None]:
    """Do several things at the same moment; returns how each was refused, None where it was not."""
    together = threading.Barrier(len(works))

    def do(work: Callable[[], object]) -> FalconWebError | None:
        try:
            together.wait(60)
            work()
        except FalconWebError as error:
            return error
        finally:
            connection.close()
        return None

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(do, works))


def in_order() -> None:
    """What must be so after whatever happened at once."""
    devices = list(Operation.objects.open().exclude(device=None).values_list("device", flat=True))
    assert len(devices) == len(set(devices)), "two operations on one device"
    for operation in Operation.objects.open().exclude(tenant=None).select_related("device", "source", "target"):
        for thing in (operation.device, operation.source, operation.target):
            assert thing is None or thing.tenant_id == operation.tenant_id, "it is somebody else's"
    for plan in Plan.objects.exclude(state="draft"):
        assert plan.is_active == plan.operations.exclude(state__in=Operation.FINAL).exists()
    assert chain_check().broken is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("turn", [0, *at_night(1, 2)])
def test_what_is_applied_granted_changed_and_thrown_away_at_once_is_one_of_them(
    lab: Lab, unread: None, turn: int
) -> None:
    quiet(lab)
    owner, boss = person("owner"), person("administrator")
    wanted = DesiredState(attachments={lab.device.pk: None})
    two = [plan_create(person=by, desired=wanted, title="x", origin="api") for by in (owner, owner)]
    pair = at_once(*(lambda one=one: plan_apply(person=owner, plan=one) for one in (two[0], two[0], two[1])))
    assert [one is None for one in pair].count(True) == 1
    in_order()
    plan = Plan.objects.get(state="running")
    cancelled = at_once(
        lambda: jobs.plan_cancel(person=owner, plan=plan),
        lambda: jobs.plan_cancel(person=boss, plan=plan, roll_back=True),
        lambda: jobs.plan_advance(plan.pk),
    )
    assert None in cancelled
    assert not Operation.objects.open().filter(round=0).exists()
    Plan.objects.exclude(state="draft").delete()
    Operation.objects.all().delete()
    draft = plan_create(person=owner, desired=wanted, title="x", origin="api")
    nothing = DesiredState(attachments={lab.device.pk: lab.host_port.pk})
    at_once(
        lambda: plan_apply(person=owner, plan=draft),
        lambda: hand_over(lab.device, "Three"),
        lambda: hand_over(lab.host_port, "Two"),
        lambda: plan_change(person=owner, plan=draft, desired=nothing),
    )
    in_order()
    at_once(
        lambda: plan_discard(person=boss, plan=draft),
        lambda: plan_apply(person=boss, plan=draft),
    )
    in_order()
