"""Devices are attached and detached by the vendor's PATCH and by the standard actions."""

from __future__ import annotations

import pytest

from falconweb.testing.processes import SimulatorProcess
from tests.simulator.conftest import ENDPOINTS, PORTS, V1, ZONES, Client, rule_of
from tests.waiting import eventually


def move_slot4(client: Client) -> None:
    first = client.compose("hostport1_H1", ["hostport1_H1", "drawer1slot1", "drawer1slot2", "drawer1slot3"])
    assert first.status_code == 200, first.text
    second = client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot4"])
    assert second.status_code == 200, second.text


def test_a_gpu_moves_from_one_host_to_another(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    move_slot4(client)
    assert client.zone("hostport1_H1") == ["hostport1_H1", "drawer1slot1", "drawer1slot2", "drawer1slot3"]
    assert client.zone("hostport1_H3") == ["hostport1_H3", "drawer1slot4"]
    zones = client.get(f"{ENDPOINTS}/drawer1slot4")["Links"]["Zones"]
    assert zones == [{"@odata.id": f"{ZONES}/hostport1_H3"}]


def test_a_link_trains_for_a_while_and_comes_up_at_what_device_and_slot_can() -> None:
    with SimulatorProcess() as process:
        client = Client(process)
        reply = client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"])
        assert reply.status_code == 200
        port = client.get(f"{PORTS}/slot7")
        assert (port["LinkStatus"], port["ActiveWidth"], port["CurrentSpeedGbps"]) == ("Training", 0, 0)
        port = eventually(lambda: client.get(f"{PORTS}/slot7"), lambda one: one["LinkStatus"] == "LinkUp")
        assert (port["ActiveWidth"], port["CurrentSpeedGbps"], port["MaxSpeedGbps"]) == (16, 128, 256)
        device = client.get(f"{V1}/Chassis/drawer1/PCIeDevices/slot7")
        assert device["PCIeInterface"] == {
            "PCIeType": "Gen3", "MaxPCIeType": "Gen3", "LanesInUse": 16, "MaxLanes": 16,
        }  # fmt: skip


def test_a_drive_links_at_four_lanes(client: Client) -> None:
    port = client.get(f"{V1}/Fabrics/PCIe/Switches/drawer2_switch/Ports/slot5")
    assert (port["LinkStatus"], port["ActiveWidth"], port["CurrentSpeedGbps"]) == ("LinkUp", 4, 32)


def test_a_detached_link_goes_down_and_an_empty_slot_has_none(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    assert client.compose("hostport1_H2", ["hostport1_H2", "drawer1slot5"]).status_code == 200
    port = client.get(f"{PORTS}/slot6")
    assert (port["LinkStatus"], port["ActiveWidth"]) == ("LinkDown", 0)
    assert client.get(f"{V1}/Chassis/drawer1/PCIeDevices/slot6")["ReadyToRemove"] is True
    assert client.get(f"{PORTS}/slot8")["LinkStatus"] == "NoLink"


def test_a_stale_etag_is_refused_and_changes_nothing(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    uri = f"{ZONES}/hostport1_H3"
    etag = client.request("GET", uri).headers["ETag"]
    assert client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"], headers={"If-Match": etag}).ok
    late = client.compose("hostport1_H3", ["hostport1_H3"], headers={"If-Match": etag})
    assert late.status_code == 412
    assert client.zone("hostport1_H3") == ["hostport1_H3", "drawer1slot7"]


def test_an_etag_never_comes_back_with_an_old_list(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    before = client.request("GET", f"{ZONES}/hostport1_H3").headers["ETag"]
    assert client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"]).ok
    assert client.compose("hostport1_H3", ["hostport1_H3"]).ok
    assert client.request("GET", f"{ZONES}/hostport1_H3").headers["ETag"] != before


def test_the_older_dialect_names_the_endpoints_at_the_top(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    listed = [{"@odata.id": f"{ENDPOINTS}/{one}"} for one in ("hostport1_H3", "drawer1slot7")]
    assert client.request("PATCH", f"{ZONES}/hostport1_H3", json={"Endpoints": listed}).status_code == 200
    assert client.zone("hostport1_H3") == ["hostport1_H3", "drawer1slot7"]


@pytest.mark.parametrize(
    ("zone", "endpoints", "status", "word"),
    [
        ("hostport1_H3", ["drawer1slot7"], 409, "always holds its host-port endpoint"),
        ("hostport1_H3", ["hostport1_H3", "hostport1_H2"], 409, "has a zone of its own"),
        ("hostport1_H3", ["hostport1_H3", "drawer1slot1"], 409, "belongs to the zone hostport1_H1"),
        ("hostport1_H3", ["hostport1_H3", "drawer2slot1"], 409, "cannot reach drawer2slot1"),
        ("hostport1_H3", ["hostport1_H3", "drawer1slot8"], 400, "was not found"),
        ("hostport1_H3", ["hostport1_H3", "drawer1slot7", "drawer1slot7"], 400, "twice"),
    ],
)
def test_a_list_that_cannot_be_is_refused_with_a_sentence(
    client: Client, zone: str, endpoints: list[str], status: int, word: str
) -> None:
    before = client.process.state()["zones"]
    reply = client.compose(zone, endpoints)
    assert reply.status_code == status
    assert word in rule_of(reply)
    assert client.process.state()["zones"] == before


@pytest.mark.parametrize(
    "body", [{}, {"Id": "x"}, {"Links": []}, {"Links": {"Endpoints": "x"}}, {"Colour": "red"}, {"Links": {}}]
)
def test_a_body_that_is_no_list_of_endpoints_is_refused(client: Client, body: object) -> None:
    assert client.request("PATCH", f"{ZONES}/hostport1_H3", json=body).status_code == 400


def test_the_standard_actions_attach_and_detach(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    target = client.get(f"{ZONES}/hostport1_H3")["Actions"]["#Zone.AddEndpoint"]["target"]
    uri = f"{ENDPOINTS}/drawer1slot7"
    body = {
        "Endpoint": {"@odata.id": uri},
        "EndpointETag": client.request("GET", uri).headers["ETag"],
        "ZoneETag": client.request("GET", f"{ZONES}/hostport1_H3").headers["ETag"],
    }
    assert client.request("POST", target, json=body).status_code == 204
    assert client.zone("hostport1_H3") == ["hostport1_H3", "drawer1slot7"]
    target = client.get(f"{ZONES}/hostport1_H3")["Actions"]["#Zone.RemoveEndpoint"]["target"]
    assert client.request("POST", target, json=body).status_code == 428
    assert client.request("POST", target, json={"Endpoint": {"@odata.id": uri}}).status_code == 204
    assert client.zone("hostport1_H3") == ["hostport1_H3"]
    assert client.request("POST", target, json={"Endpoint": {"@odata.id": uri}}).status_code == 404


def test_a_viewer_may_not_compose_and_an_operator_may(fresh: SimulatorProcess) -> None:
    body = ["hostport1_H3", "drawer1slot7"]
    assert Client(fresh, "viewer").compose("hostport1_H3", body).status_code == 403
    assert Client(fresh, "operator").compose("hostport1_H3", body).status_code == 200


@pytest.mark.parametrize(
    ("dialect", "allow", "action"),
    [("patch", "GET, HEAD, PATCH", 404), ("actions", "GET, HEAD", 204), ("none", "GET, HEAD", 404)],
)
def test_a_service_may_offer_one_dialect_alone(dialect: str, allow: str, action: int) -> None:
    with SimulatorProcess("--dialect", dialect) as process:
        client = Client(process)
        reply = client.request("GET", f"{ZONES}/hostport1_H3")
        assert reply.headers["Allow"] == allow
        assert ("Actions" in reply.json()) == (dialect == "actions")
        patched = client.compose("hostport1_H3", ["hostport1_H3"])
        assert patched.status_code == (200 if dialect == "patch" else 405)
        body = {"Endpoint": {"@odata.id": f"{ENDPOINTS}/drawer1slot7"}}
        target = f"{ZONES}/hostport1_H3/Actions/Zone.AddEndpoint"
        assert client.request("POST", target, json=body).status_code == action


def test_a_bind_by_task_is_answered_202_and_done_when_the_task_says_so() -> None:
    with SimulatorProcess("--bind-by-task", "--slow-bind", "0.5") as process:
        client = Client(process)
        reply = client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"])
        assert reply.status_code == 202
        monitor = reply.headers["Location"]
        assert client.request("GET", monitor).status_code == 202
        assert process.state()["zones"]["hostport1_H3"] == []
        done = eventually(lambda: client.request("GET", monitor), lambda one: one.status_code == 200)
        assert done.json()["Id"] == "hostport1_H3"
        task = client.get(reply.json()["@odata.id"])
        assert (task["TaskState"], task["PercentComplete"]) == ("Completed", 100)
        assert process.state()["zones"]["hostport1_H3"] == ["drawer1slot7"]


def test_a_bind_by_task_that_breaks_a_rule_is_refused_at_once() -> None:
    with SimulatorProcess("--bind-by-task") as process:
        assert Client(process).compose("hostport1_H3", ["hostport1_H3", "drawer1slot1"]).status_code == 409


def test_a_slow_bind_is_answered_late() -> None:
    with SimulatorProcess("--slow-bind", "0.6") as process:
        reply = Client(process).compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"])
        assert reply.status_code == 200
        assert reply.elapsed.total_seconds() >= 0.6


def test_a_late_bind_is_accepted_at_once_and_shown_later(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.fault("late_bind", delay=0.3)
    assert client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"]).status_code == 200
    assert client.zone("hostport1_H3") == ["hostport1_H3"]
    eventually(lambda: client.zone("hostport1_H3"), lambda found: found == ["hostport1_H3", "drawer1slot7"])


def test_a_wiping_refusal_detaches_all_devices_of_its_host_port(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.fault("wiping_refusal", count=1)
    for _ in range(2):
        assert client.compose("hostport1_H1", ["hostport1_H1", "drawer1slot5"]).status_code == 409
        assert client.zone("hostport1_H1") == ["hostport1_H1"]
    assert len(client.zone("hostport1_H2")) > 1


def test_locations_name_another_host_while_the_fault_for_that_is_active(fresh: SimulatorProcess) -> None:
    fresh.fault("foreign_location")
    credentials = {"UserName": "viewer", "Password": fresh.password}
    reply = Client(fresh).request("POST", f"{V1}/SessionService/Sessions", json=credentials)
    assert reply.headers["Location"].startswith(f"https://bmc.example{V1}/SessionService/Sessions/")


@pytest.mark.parametrize(
    ("allow", "of_get", "of_options"), [("all", True, 204), ("options", False, 204), ("none", False, 405)]
)
def test_the_methods_of_a_resource_are_named_where_the_options_say_so(
    allow: str, of_get: bool, of_options: int
) -> None:
    with SimulatorProcess("--allow", allow) as process:
        client = Client(process)
        assert ("PATCH" in client.request("GET", f"{ZONES}/hostport1_H1").headers.get("Allow", "")) is of_get
        assert client.request("OPTIONS", f"{ZONES}/hostport1_H1").status_code == of_options


def test_two_at_the_same_moment_get_one_device_once(fresh: SimulatorProcess) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def take(zone: str) -> int:
        return Client(fresh, "operator").compose(zone, [zone, *keep[zone], "drawer1slot7"]).status_code

    zones = fresh.state()["zones"]
    keep = {zone: zones[zone] for zone in ("hostport1_H2", "hostport1_H3")}
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(take, keep)) == [200, 409]
    owners = [zone for zone, devices in fresh.state()["zones"].items() if "drawer1slot7" in devices]
    assert len(owners) == 1
