"""The reset of counters by people: who may, what is read back, and what a chassis that cannot says."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections
from django.test import Client

from accounts.audit.models import AuditEntry
from accounts.models import Tenant, User
from core.errors import Conflict, Forbidden, NotFound, Unavailable
from fabric.bmc.client import BmcClient
from fabric.bmc.composition import read_port_counters
from fabric.inventory.models import Chassis, Port
from fabric.inventory.port_counters import port_reset_counters
from fabric.leases.grants import device_grant
from falconweb.testing import device_in
from falconweb.testing.processes import SimulatorProcess
from telemetry.links.models import CounterReset, LinkCount
from tests.bmc.nonsense import ROOT, NonsenseServer, Reply, service_root
from tests.telemetry.links.conftest import port_in
from tests.telemetry.polling.worker import polling
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
# Errors that a simulated link may have had by itself by then; a burst makes more.
FEW = 10


@pytest.fixture
def port(chassis: Chassis, simulator: SimulatorProcess) -> Port:
    """The port of slot 3, with errors."""
    simulator.set_speed(1)
    fault = simulator.fault("error_burst", "drawer1slot3", counter="BadTLPCount", rate=1000)
    found = port_in(chassis, slot=3)
    wait_for(lambda: counted(found) > 2 * FEW)
    simulator.end_fault(fault)
    return found


def counted(port: Port) -> int:
    """Return the bad packets of a port as its BMC tells them."""

    async def ask() -> int:
        async with BmcClient(address) as bmc:
            return (await read_port_counters(bmc, port.metrics_uri)).errors["BadTLPCount"]

    address = port.chassis.address()
    return asyncio.run(ask())


def client_of(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def test_an_administrator_resets_and_the_totals_go_on(port: Port, boss: User) -> None:
    with polling():
        # The first reading may be of the second before the errors.
        wait_for(lambda: LinkCount.objects.filter(port=port, raw__BadTLPCount__gt=FEW).exists())
        before = LinkCount.objects.get(port=port)
        answer = client_of(boss).post(f"/api/v1/links/{port.pk}/counter-reset/", content_type="application/json")
        assert answer.status_code == 200, answer.content
        assert counted(port) < FEW
        wait_for(lambda: LinkCount.objects.get(port=port).raw["BadTLPCount"] < FEW)
        link = client_of(boss).get(f"/api/v1/links/{port.pk}/").json()
    resets = CounterReset.objects.filter(port=port)
    assert [(one.how, one.person_name, one.seen) for one in resets] == [("asked", "ada", True)]
    assert resets[0].counted["BadTLPCount"] >= before.raw["BadTLPCount"]
    assert [one["how"] for one in link["resets"]] == ["asked"]
    assert link["reset_at"] is not None
    assert {one["name"]: one["now"] for one in link["counters"]}["BadTLPCount"] < FEW
    port.refresh_from_db()
    assert port.errors["BadTLPCount"] < FEW
    entry = AuditEntry.objects.get(action="port.counters")
    assert entry.before is not None
    assert (entry.outcome, entry.actor_name, entry.before["BadTLPCount"] > FEW) == ("done", "ada", True)


def test_two_at_once_both_do_it(port: Port, boss: User) -> None:
    def reset(_: int) -> int:
        try:
            return port_reset_counters(person=boss, port=port).errors["BadTLPCount"]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as two:
        assert all(count < FEW for count in two.map(reset, range(2)))
    assert CounterReset.objects.filter(port=port, how="asked").count() == 2


def test_holders_may_and_others_may_not(port: Port, boss: User, member: User, viewer: User, tenant: Tenant) -> None:
    with pytest.raises(NotFound):
        port_reset_counters(person=member, port=port)
    device_grant(person=boss, device=device_in(port.chassis, drawer=1, slot=3), tenant=tenant)
    with pytest.raises(Forbidden, match="look, but not reset counters"):
        port_reset_counters(person=viewer, port=port)
    assert client_of(viewer).post(f"/links/{port.pk}/counter-reset/").status_code == 403
    assert not CounterReset.objects.exists()
    answer = client_of(member).post(f"/links/{port.pk}/counter-reset/", follow=True)
    assert "the counters were reset" in answer.content.decode()
    assert [(one.how, one.person_name) for one in CounterReset.objects.all()] == [("asked", "bob")]
    outcomes = AuditEntry.objects.filter(action="port.counters").order_by("pk").values_list("actor_name", "outcome")
    assert list(outcomes)[-1] == ("bob", "done")
    assert ("eve", "refused") in outcomes


def test_a_bmc_that_is_away_is_told_in_a_sentence_without_its_address(
    port: Port, boss: User, simulator: SimulatorProcess
) -> None:
    simulator.fault("reset_connections")
    with pytest.raises(Unavailable, match="falcon-1 did not answer correctly") as caught:
        port_reset_counters(person=boss, port=port)
    assert "127.0.0.1" not in caught.value.sentence
    answer = client_of(boss).post(f"/api/v1/links/{port.pk}/counter-reset/", content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    page = client_of(boss).post(f"/links/{port.pk}/counter-reset/", follow=True).content.decode()
    assert "falcon-1 did not answer correctly" in page
    assert not CounterReset.objects.exists()


def test_a_body_with_members_is_refused(port: Port, boss: User) -> None:
    answer = client_of(boss).post(
        f"/api/v1/links/{port.pk}/counter-reset/", {"everything": True}, content_type="application/json"
    )
    assert (answer.status_code, "everything" in answer.json()["errors"]) == (400, True)


RESET = {"#PortMetrics.ResetMetrics": {"target": "/redfish/v1/Reset"}}


@pytest.mark.parametrize(
    ("actions", "sentence"),
    [({}, "offers no way to set the counters"), (RESET, "accepted the reset, but the counters continue")],
)
def test_a_service_that_cannot_or_does_not_is_told_so(
    chassis: Chassis, boss: User, actions: dict[str, object], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabric.bmc.settling.FIRST_SECONDS", 0.3)
    metrics = "/redfish/v1/Metrics"
    counting = {"PCIeErrors": {"BadTLPCount": 7}, "Actions": actions}
    with NonsenseServer({ROOT: service_root(), metrics: counting, "POST /redfish/v1/Reset": Reply(200)}) as server:
        Chassis.objects.filter(pk=chassis.pk).update(url=server.url, fingerprint="", username="")
        port = port_in(chassis, slot=3)
        Port.objects.filter(pk=port.pk).update(metrics_uri=metrics)
        with pytest.raises(Conflict, match=sentence):
            port_reset_counters(person=boss, port=port)
    Port.objects.filter(pk=port.pk).update(metrics_uri="")
    with pytest.raises(Conflict, match="counts no errors of this port"):
        port_reset_counters(person=boss, port=port)
