"""The rules of the three modes, as pure functions and as the BMC enforces them."""

from __future__ import annotations

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from falconweb.testing.processes import SimulatorProcess
from simulator.rules import ADVANCED, STANDARD_ONE_HOST, STANDARD_TWO_HOSTS, Allocation, refusal
from tests.simulator.conftest import V1, Client, rule_of
from tests.waiting import eventually

PORTS = {"H1": "node-a", "H2": "node-b", "H3": "node-c", "H4": "node-d"}


def allocation(**slots: str) -> Allocation:
    return Allocation(PORTS, {int(slot[1:]): port for slot, port in slots.items()})


def test_one_host_port_reaches_the_whole_drawer_in_standard_one_host() -> None:
    assert refusal(STANDARD_ONE_HOST, allocation(s1="H2", s8="H2")) is None
    assert "H1 and H2 have devices" in str(refusal(STANDARD_ONE_HOST, allocation(s1="H1", s8="H2")))


def test_each_of_two_ports_has_its_half_in_standard_two_hosts() -> None:
    assert refusal(STANDARD_TWO_HOSTS, allocation(s1="H1", s4="H1", s5="H2", s8="H2")) is None
    assert "slots 1 to 4 belong to H1" in str(refusal(STANDARD_TWO_HOSTS, allocation(s4="H2")))
    assert "slots 5 to 8 belong to H2" in str(refusal(STANDARD_TWO_HOSTS, allocation(s5="H1")))
    alone = Allocation({"H4": "node-a"}, {})
    assert "needs two cabled host ports" in str(refusal(STANDARD_TWO_HOSTS, alone))


def test_three_hosts_share_a_drawer_in_advanced_and_a_fourth_does_not() -> None:
    assert refusal(ADVANCED, allocation(s1="H1", s2="H2", s3="H3")) is None
    assert "at most 3 hosts" in str(refusal(ADVANCED, allocation(s1="H1", s2="H2", s3="H3", s4="H4")))


@given(st.dictionaries(st.integers(1, 8), st.sampled_from(["H1", "H2", "H3"]), max_size=8))
def test_advanced_allows_what_any_other_mode_allows(slots: dict[int, str]) -> None:
    wanted = Allocation(PORTS, slots)
    if refusal(STANDARD_ONE_HOST, wanted) is None or refusal(STANDARD_TWO_HOSTS, wanted) is None:
        assert refusal(ADVANCED, wanted) is None


@given(st.dictionaries(st.integers(1, 8), st.sampled_from(["H1", "H2", "H3"]), min_size=1, max_size=8), st.data())
def test_a_detach_never_breaks_a_rule(slots: dict[int, str], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(slots)))
    fewer = {slot: port for slot, port in slots.items() if slot != gone}
    for mode in (STANDARD_ONE_HOST, STANDARD_TWO_HOSTS, ADVANCED):
        if refusal(mode, Allocation(PORTS, slots)) is None:
            assert refusal(mode, Allocation(PORTS, fewer)) is None


def change(client: Client, drawer: int, mode: str) -> requests.Response:
    return client.request("PATCH", f"{V1}/Chassis/drawer{drawer}", json={"Oem": {"H3": {"DrawerMode": mode}}})


def test_a_mode_changes_by_a_task_and_then_its_rule_holds(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    for port in ("hostport1_H2", "hostport1_H3"):
        assert client.compose(port, [port]).ok
    vendor = client.get(f"{V1}/Chassis/drawer1")["Oem"]["H3"]
    assert vendor["AllowableDrawerModes"] == ["StandardOneHost", "StandardTwoHosts", "Advanced"]
    reply = change(client, 1, "StandardOneHost")
    assert reply.status_code == 202
    assert client.compose("hostport1_H1", ["hostport1_H1"]).status_code == 409
    task = eventually(lambda: client.get(reply.json()["@odata.id"]), lambda one: one["TaskState"] != "Running")
    assert task["TaskState"] == "Completed"
    assert client.get(f"{V1}/Chassis/drawer1")["Oem"]["H3"]["DrawerMode"] == "StandardOneHost"
    refused = client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"])
    assert refused.status_code == 409
    assert rule_of(refused).startswith("StandardOneHost:")


def test_a_mode_that_the_attached_devices_break_is_refused(client: Client) -> None:
    refused = change(client, 1, "StandardOneHost")
    assert refused.status_code == 409
    assert "H1 and H2 have devices" in rule_of(refused)
    assert client.process.state()["modes"]["drawer1"] == "Advanced"


def test_two_hosts_reach_their_own_half_alone() -> None:
    with SimulatorProcess(chassis="falcon-2") as process:
        client = Client(process)
        refused = client.compose("hostport1_H1", ["hostport1_H1", "drawer1slot1", "drawer1slot2", "drawer1slot7"])
        assert refused.status_code == 409
        assert "slots 5 to 8 belong to H2" in rule_of(refused)
        assert client.compose("hostport1_H2", ["hostport1_H2", "drawer1slot5", "drawer1slot6", "drawer1slot7"]).ok


@pytest.mark.parametrize(
    "body", [{"Oem": {"H3": {"DrawerMode": "Fast"}}}, {"Oem": {"H3": {"AllowableDrawerModes": []}}}, {"Oem": 1}, {}]
)
def test_a_mode_that_does_not_exist_is_refused(client: Client, body: object) -> None:
    assert client.request("PATCH", f"{V1}/Chassis/drawer1", json=body).status_code == 400


def test_a_viewer_may_not_change_a_mode(shared: SimulatorProcess) -> None:
    assert change(Client(shared, "viewer"), 2, "Advanced").status_code == 403
