"""Attacks by and about the agents of hosts: a hostile host, forged and replayed messages, who works on a host."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.conf import settings
from django.test import Client
from django.urls import reverse

from accounts.audit.models import AuditEntry
from accounts.models import User
from fabric.agents.inbox import AgentInbox
from fabric.agents.models import HostAgent, HostAnswer
from fabric.agents.selectors import latest_report
from fabric.agents.services import agent_enrol, agent_register, answer_store, report_store
from fabric.execution import host_steps
from fabric.inventory.models import Chassis, Device, Host
from fabric.leases.grants import host_port_grant
from fabric.operations.models import Operation
from fabric.operations.services import operation_request
from falconweb.celery import application
from falconweb.testing import SimulatorProcess, carry_out, device_in, host_port_of
from falconweb.testing.hosts import AgentProcess
from hostwire import signing
from hostwire.protocol import CommandAnswer, DeviceHolder, GpuReading, HostReport, PciDevice
from hostwire.signing import new_key, queue_name, reply_queue_name, seal_answer, seal_report
from tests.access.lab import Lab, address, lab, made_lab
from tests.access.test_matrix import GETS
from tests.pages import page_text
from tests.turns import in_turn
from tests.waiting import wait_for

__all__ = ["lab", "made_lab"]
JSON = "application/json"


def host_of(lab: Lab) -> Host:
    assert lab.host_port.host is not None
    return lab.host_port.host


def said(host: Host, key: str, *, number: int = 1, serial: str = "SN-OWNED", **more: Any) -> str:
    """Return a report as an agent signs it, that shows the lab's device at its host."""
    seen = PciDevice(address="0000:41:00.0", vendor_id="0x10de", device_id="0x2330", serial=serial)
    now = time.time()
    facts = {"host": host.identity, "number": number, "started": 1.0, "sent": now, "version": "1", "devices": (seen,)}
    report = HostReport(**{**facts, **more})
    return seal_report(report, key)


def process(command: str, **more: Any) -> DeviceHolder:
    facts = {"kind": "process", "what": "/dev/nvidia0", "pid": 4711, "command": command, "owner": "maria"}
    return DeviceHolder(**{**facts, **more})


def answered(host: Host, key: str, nonce: str, sentence: str = "Gone.") -> str:
    answer = CommandAnswer(
        host=host.identity, nonce=nonce, task="drain", outcome="removed", sentence=sentence, began=0.0, ended=1.0
    )
    return seal_answer(answer, key)


@pytest.fixture
def key(lab: Lab) -> str:
    return agent_enrol(person=User.objects.get(username="administrator"), host=host_of(lab))


@pytest.mark.django_db
def test_a_report_counts_once_and_only_with_the_key_of_its_own_host(lab: Lab, key: str) -> None:
    host, others = host_of(lab), Host.objects.get(name="node-other")
    stolen = agent_enrol(person=User.objects.get(username="administrator"), host=others)
    text = said(host, key, number=2)
    version, digest, signature, payload = text.split(".", 3)
    forged = [
        said(host, new_key()), said(host, stolen), said(others, key),
        f"{version}.{digest}.{'0' * 64}.{payload}", f"{version}.{digest}.{signature}.{payload.replace('41', '42')}",
        f"2.{digest}.{signature}.{payload}", f"{version}.{'0' * 32}.{signature}.{payload}",
        answered(host, key, "n"), "1.." , "", "\0", "\ud800", 7, None, [text], {"text": text}, "1." * 200_000,
    ]  # fmt: skip
    for one in forged:
        report_store(one)
        answer_store(one)
    assert not HostAgent.objects.exclude(reported_at=None).exists()
    report_store(text)
    first = HostAgent.objects.get(host=host).reported_at
    assert first is not None
    for one in (text, said(host, key, number=1)):
        report_store(one)
    assert HostAgent.objects.get(host=host).reported_at == first
    assert HostAgent.objects.get(host=others).reported_at is None


@pytest.mark.django_db
def test_a_host_tells_of_no_device_that_is_elsewhere(lab: Lab, key: str) -> None:
    """It says that it sees, and uses, the device of another tenant."""
    report_store(said(host_of(lab), key, serial="SN-OTHER", holders={"0000:41:00.0": (process("mine"),)}))
    other = Device.objects.get(name="GPU other")
    text = lab.clients["administrator"].get(reverse("fabric:device", args=[other.pk])).content.decode()
    assert "mine" not in text
    wanted = {"device_id": other.pk, "target_host_port_id": None}
    assert lab.clients["administrator"].post(reverse("api:operations"), wanted, content_type=JSON).status_code == 202


@pytest.mark.django_db
def test_a_host_tells_a_tenant_no_number_of_what_others_have_there(lab: Lab, key: str) -> None:
    """Twelve GPUs are read on the host, one of which is the tenant's: the others are told to administrators alone."""
    gpus = tuple(GpuReading(address=f"0000:{bus:x}:00.0", name="H100") for bus in range(0x41, 0x4D))
    report_store(said(host_of(lab), key, gpus=gpus))
    for person, words in (("administrator", "12 GPUs"), ("owner", "1 GPU of yours"), ("member", "1 GPU of yours")):
        page = page_text(lab.clients[person].get(address(lab, "fabric:host")))
        assert f"<dd> {words} </dd>" in page


@pytest.mark.django_db
def test_a_host_whose_card_of_the_tenant_is_not_certain_counts_none(lab: Lab, key: str) -> None:
    gpus = (GpuReading(address="0000:41:00.0"), GpuReading(address="0000:42:00.0"))
    report_store(said(host_of(lab), key, serial="SN-OTHER", gpus=gpus))
    page = page_text(lab.clients["owner"].get(address(lab, "fabric:host")))
    assert "<dd> 0 GPUs of yours </dd>" in page
    assert "It sees no device of yours." in page


EVIL = '<script>alert(1)</script>"><img src=x onerror=alert(1)>\u202e\x07\n{{ 7*7 }}'


@pytest.mark.django_db
def test_what_a_host_says_is_text_and_short_everywhere(lab: Lab, key: str) -> None:
    many = tuple(process(EVIL, what=EVIL, owner=EVIL, pid=one) for one in range(700))
    long = tuple(process("x" * 20_000) for _ in range(9))
    for number, holders in enumerate((many, long), 1):
        report_store(
            said(
                host_of(lab),
                key,
                number=number,
                holders={"0000:41:00.0": holders},
                kernel=EVIL,
                nvml=EVIL,
                hostname=EVIL,
            )
        )
        assert HostAgent.objects.get(host=host_of(lab)).number == number
        draft = lab.clients["owner"].post(
            reverse("api:plans"),
            {"attachments": [{"device_id": lab.device.pk, "host_port_id": None}]},
            content_type=JSON,
        )
        # What is long is the same on each page; what is no plain text is tried on all of them.
        shown = [one for one, codes in GETS.items() if one.startswith("fabric:") and codes[1] == 200]
        pages = [address(lab, name) for name in in_turn(shown, 0, of=1 if holders is many else 4)]
        pages.append(reverse("fabric:plan", args=[draft.json()["id"]]))
        for where in pages:
            answer = lab.clients["owner"].get(where)
            text = (answer.getvalue() if answer.streaming else answer.content).decode()
            markup = ("<script>alert", "<img") if answer["Content-Type"].startswith("text/html") else ()
            assert not [one for one in (*markup, "\u202e", "\x07") if one in text], where
            assert len(text) < 300_000, where
        refused = lab.clients["owner"].post(
            reverse("api:operations"), {"device_id": lab.device.pk, "target_host_port_id": None}, content_type=JSON
        )
        assert refused.status_code == 409
        assert len(refused.content) < 4000
        refused = lab.clients["owner"].post(reverse("api:plan_apply", args=[draft.json()["id"]]), {}, content_type=JSON)
        assert refused.status_code == 409
        assert len(refused.content) < 4000


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["a\0b", "\udfff", "\x1b[2J", "9" * 5000])
def test_no_letter_that_a_host_sends_keeps_its_report_from_being_kept(lab: Lab, key: str, text: str) -> None:
    payload = said(host_of(lab), key, holders={"0000:41:00.0": (process("MARK"),)}, version="MARK")
    body = payload.split(".", 3)[3].replace("MARK", json.dumps(text)[1:-1])
    digest = signing.digest(host_of(lab).identity)
    signed = signing._signature("report", digest, body, key)  # what the agent's own library would not write
    report_store(f"1.{digest}.{signed}.{body}")
    agent = HostAgent.objects.get(host=host_of(lab))
    kept = latest_report(agent)
    if text == "\udfff":
        assert kept is None  # it is no JSON
        return
    assert kept is not None
    command = kept.holders["0000:41:00.0"][0].command
    assert command.isprintable()
    assert len(command) <= 500
    assert lab.clients["owner"].get(reverse("fabric:host", args=[host_of(lab).pk])).status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("numbers", [{"number": 2**80}, {"number": -1}, {"pid": 2**70}, {"started": 1e308}])
def test_no_number_that_a_host_sends_is_an_error_of_the_site(lab: Lab, key: str, numbers: dict[str, Any]) -> None:
    holder = process("x", pid=numbers.pop("pid", 1))
    report_store(said(host_of(lab), key, **{"holders": {"0000:41:00.0": (holder,)}, **numbers}))
    for where in (reverse("fabric:host", args=[host_of(lab).pk]), reverse("fabric:device", args=[lab.device.pk])):
        assert lab.clients["owner"].get(where).status_code == 200


@pytest.mark.django_db
def test_a_host_fills_no_table_with_answers_that_nobody_asked_for(lab: Lab, key: str) -> None:
    for number in range(20):
        answer_store(answered(host_of(lab), key, f"{number:032x}", "x" * 1000))
    assert HostAnswer.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_an_answer_is_taken_from_the_host_that_was_asked_once(lab: Lab, key: str) -> None:
    others = Host.objects.get(name="node-other")
    stolen = agent_enrol(person=User.objects.get(username="administrator"), host=others)
    HostAnswer.objects.create(nonce="n" * 32, host=host_of(lab))
    answer_store(answered(others, stolen, "n" * 32, "Lies."))
    assert HostAnswer.objects.get().body == {}
    answer_store(answered(host_of(lab), key, "n" * 32, "Truth."))
    answer_store(answered(host_of(lab), key, "n" * 32, "Another truth."))
    assert HostAnswer.objects.get().body["sentence"] == "Truth."


def enveloped(task: object, text: object) -> bytes:
    """Return a message as Celery writes it."""
    body = base64.b64encode(json.dumps([[text], {}, {}]).encode()).decode()
    return json.dumps({"body": body, "headers": {"task": task, "id": "1"}, "properties": {}}).encode()


POISON = (b"garbage", b"1", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"headers": null}', b"\0", b"x" * 2_000_000,
          enveloped("accounts.verify_audit", 1), enveloped("fabric.run_operation", "x"), enveloped(None, None),
          enveloped({"a": 1}, [1]), enveloped("fabric.host_report", 7), enveloped("fabric.host_report", "1.x"),
          b'{"body": "!!!!", "headers": {"task": "fabric.host_report"}}', b"{}" * 9)  # fmt: skip


@pytest.fixture
def broker() -> Iterator[redis.Redis]:
    """The broker, without what hosts have said."""
    client = redis.Redis.from_url(settings.REDIS_URL)
    yield client
    for one in client.scan_iter("host.*"):
        client.delete(one)
    client.close()


@pytest.mark.django_db
def test_a_host_can_neither_break_nor_command_what_listens_to_it(
    lab: Lab, key: str, broker: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """It writes into its own list whatever it likes; another one is heard meanwhile."""
    hostile, honest = Host.objects.get(name="node-other"), host_of(lab)
    agent_enrol(person=User.objects.get(username="administrator"), host=hostile)
    entries = AuditEntry.objects.count()
    for one in POISON:
        broker.lpush(reply_queue_name(hostile.identity), one)
    broker.lpush(reply_queue_name(honest.identity), enveloped("fabric.host_report", said(honest, key)))
    ear = AgentInbox()
    ear.round()
    assert HostAgent.objects.get(host=honest).reported_at is not None
    for _ in POISON:
        ear.round()
    assert broker.llen(reply_queue_name(hostile.identity)) == 0
    assert AuditEntry.objects.count() == entries
    assert not [one for one in caplog.records if one.exc_info]
    # Its list is none; it says more than anybody can hear.
    for spoil in (
        lambda: broker.set(reply_queue_name(hostile.identity), "x"),
        lambda: broker.lpush(reply_queue_name(hostile.identity), *(["x"] * 5000)),
    ):
        spoil()
        number = HostAgent.objects.get(host=honest).number + 1
        broker.lpush(
            reply_queue_name(honest.identity), enveloped("fabric.host_report", said(honest, key, number=number))
        )
        ear.round()
        assert HostAgent.objects.get(host=honest).number == number
    assert broker.lindex(reply_queue_name(hostile.identity), 200) is None


def test_no_worker_of_the_site_takes_what_hosts_write() -> None:
    application.loader.import_default_modules()
    assert not [name for name in application.tasks if name.startswith("fabric.host_")]
    assert settings.CELERY_TASK_DEFAULT_QUEUE not in {reply_queue_name("x"), queue_name("x")}


def seen_by(client: Client, *operations: Operation) -> str:
    """Return all that a person reads of operations on one device."""
    pages = ("/operations/", "/", "/plans/", "/fabric/", "/drift/", "/api/v1/operations/", "/api/v1/drift/",
             "/api/v1/history/", "/api/v1/allocation/")  # fmt: skip
    device = f"devices/{operations[0].device_id}/"
    where = [*pages, f"/{device}", f"/{device}history/", f"/api/v1/{device}"]
    where += [f"{space}/operations/{one.pk}/" for one in operations for space in ("", "/api/v1")]
    return "\n".join(client.get(one).content.decode() for one in where)


@pytest.fixture
def between_two(
    falcon_chassis: Chassis,
    grant_to_tenant: Callable[..., None],
    falconweb_administrator: User,
    falconweb_stranger: User,
) -> Device:
    """A device of the tenant, attached to the host of strangers, where an administrator put it."""
    device, port = device_in(falcon_chassis, drawer=1, slot=1), host_port_of(falcon_chassis, "H1")
    assert device.host_port == port
    grant_to_tenant(device)
    host_port_grant(person=falconweb_administrator, host_port=port, tenant=falconweb_stranger.tenant)
    return device


@pytest.mark.process
@pytest.mark.django_db(transaction=True)
def test_an_operation_names_nobody_and_nothing_of_anothers_host(  # noqa: PLR0917 - fixtures
    between_two: Device,
    falcon_chassis: Chassis,
    simulated_falcon: SimulatorProcess,
    host_agent: Callable[..., AgentProcess],
    user_client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boss = User.objects.get(username="falconweb-administrator")
    monkeypatch.setattr(host_steps, "LEAVE_SECONDS", 0.2)
    secrets = ("node-a", "maria", "secret-train", "0000:")
    # Without an agent.
    asked = operation_request(person=boss, device=between_two, target=None)
    assert carry_out(asked).state == "done"
    port = host_port_of(falcon_chassis, "H1")
    back = operation_request(person=boss, device=Device.objects.get(pk=between_two.pk), target=port)
    assert carry_out(back).state == "done"
    text = seen_by(user_client, asked, back)
    assert "Detach" in text
    assert not [word for word in secrets if word in text]
    # With one: somebody takes the device in the last moment.
    key = new_key()
    host = Host.objects.get(name="node-a")
    agent_register(host=host, key=key)
    agent = host_agent("node-a", key=key)
    with agent.delivering():
        wait_for(lambda: HostAgent.objects.get(host=host).reported_at is not None)
        device = Device.objects.get(pk=between_two.pk)
        asked = operation_request(person=boss, device=device, target=None)
        simulated_falcon.hold("node-a", "drawer1slot1", owner="maria", command="secret-train")
        ended = carry_out(asked)
    assert (ended.state, "in use" in ended.error) == ("failed", True)
    assert not [word for word in secrets if word in seen_by(user_client, asked)]
