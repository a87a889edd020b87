"""Each fault does what it says, and what it did is over when it ends."""

from __future__ import annotations

import itertools
import json
import time
import urllib.error

import pytest
import requests

from falconweb.testing.processes import SimulatorProcess
from tests.simulator.conftest import ENDPOINTS, PORTS, V1, Client
from tests.waiting import eventually

ROOT_URI = f"{V1}/"
DRAWER1 = f"{V1}/Chassis/drawer1"
ALL = f"{V1}/TelemetryService/MetricReports/All"


def port(client: Client, name: str) -> dict[str, object]:
    return client.get(f"{PORTS}/{name}")


def messages(client: Client) -> list[str]:
    entries = client.get(f"{V1}/Managers/bmc/LogServices/Events/Entries?$expand=.")["Members"]
    return [str(entry["MessageId"]).rpartition(".")[2] for entry in entries]


def test_a_downgraded_link_trains_again_at_less_and_recovers(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fault = fresh.fault("link_downgrade", "drawer1/slot3", lanes=4, generation="Gen1")
    worse = eventually(lambda: port(client, "slot3"), lambda one: one["LinkStatus"] == "LinkUp")
    assert (worse["ActiveWidth"], worse["CurrentSpeedGbps"]) == (4, 10)
    assert worse["Status"] == {"State": "Enabled", "Health": "Warning"}
    fresh.end_fault(fault)
    better = eventually(lambda: port(client, "slot3"), lambda one: one["LinkStatus"] == "LinkUp")
    assert (better["ActiveWidth"], better["CurrentSpeedGbps"]) == (16, 128)
    assert "DegradedDownstreamLinkEstablished" in messages(client)


def test_a_flapping_link_goes_down_and_up_until_the_fault_ends(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fault = fresh.fault("link_flap", "drawer1slot2", period=0.2)
    for status in ("LinkDown", "LinkUp", "LinkDown"):
        eventually(lambda: port(client, "slot2")["LinkStatus"], status.__eq__)
    fresh.end_fault(fault)
    eventually(lambda: port(client, "slot2"), lambda one: one["LinkStatus"] == "LinkUp")
    assert messages(client).count("DownstreamLinkFlapDetected") >= 2


def test_an_error_burst_moves_its_counter(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.fault("error_burst", "drawer1slot1", counter="BadTLPCount", rate=1000, seconds=1)
    eventually(
        lambda: client.get(f"{PORTS}/slot1/Metrics")["PCIeErrors"]["BadTLPCount"], lambda count: int(count) > 100
    )
    eventually(lambda: fresh.ask_control("GET", "/faults"), lambda faults: faults == [])
    before = client.get(f"{PORTS}/slot1/Metrics")["PCIeErrors"]["BadTLPCount"]
    time.sleep(0.3)
    assert client.get(f"{PORTS}/slot1/Metrics")["PCIeErrors"]["BadTLPCount"] - before < 20


def test_an_overheating_device_passes_its_thresholds_and_cools_down(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    sensor = f"{DRAWER1}/Sensors/slot2_temp"
    assert client.get(sensor)["Status"]["Health"] == "OK"
    fault = fresh.fault("overheat", "drawer1slot2")
    hot = eventually(lambda: client.get(sensor), lambda one: one["Status"]["Health"] == "Critical")
    assert hot["Reading"] >= hot["Thresholds"]["UpperCritical"]["Reading"]
    assert client.get(f"{DRAWER1}/PCIeDevices/slot2")["Status"]["Health"] == "Critical"
    assert client.get(f"{V1}/Chassis/falcon")["Status"]["HealthRollup"] == "Critical"
    fresh.set_speed(200)
    fresh.end_fault(fault)
    eventually(lambda: client.get(sensor), lambda one: one["Status"]["Health"] == "OK")
    # It is in its normal range again a little below where it is well.
    told = {"ReadingAboveUpperCriticalThreshold", "SensorReadingNormalRange"}
    eventually(lambda: set(messages(client)), told.issubset)


def test_a_failed_fan_stands_still_and_the_others_turn_faster(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fans = f"{V1}/Chassis/falcon/ThermalSubsystem/Fans"
    fault = fresh.fault("fan_failure", "fan2")
    failed = eventually(lambda: client.get(f"{fans}/fan2"), lambda one: one["SpeedPercent"]["SpeedRPM"] == 0)
    assert failed["Status"]["Health"] == "Critical"
    assert client.get(f"{V1}/Chassis/falcon/ThermalSubsystem")["Status"]["Health"] == "Warning"
    fresh.end_fault(fault)
    eventually(lambda: client.get(f"{fans}/fan2"), lambda one: one["SpeedPercent"]["SpeedRPM"] > 1000)
    assert {"FanFailed", "FanRestored"} <= set(messages(client))


def test_a_device_that_is_pulled_out_leaves_its_zone_and_comes_back_unattached(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fault = fresh.fault("surprise_removal", "drawer1/slot3")
    device = client.get(f"{DRAWER1}/PCIeDevices/slot3")
    assert device["Status"] == {"State": "Absent"}
    assert "Model" not in device
    assert client.zone("hostport1_H1") == ["hostport1_H1", "drawer1slot1", "drawer1slot2", "drawer1slot4"]
    assert client.request("GET", f"{ENDPOINTS}/drawer1slot3").status_code == 404
    assert port(client, "slot3")["LinkStatus"] == "NoLink"
    fresh.end_fault(fault)
    assert client.get(f"{DRAWER1}/PCIeDevices/slot3")["ReadyToRemove"] is True
    assert client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot3"]).status_code == 200


def test_a_slow_answer_comes_late(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.fault("slow", delay=0.5, path="/Chassis", count=1)
    assert client.request("GET", ROOT_URI).ok
    assert len(fresh.ask_control("GET", "/faults")) == 1
    assert client.request("GET", f"{V1}/Chassis").elapsed.total_seconds() >= 0.5
    assert fresh.ask_control("GET", "/faults") == []


def test_a_server_error_is_answered_for_as_many_requests_as_asked(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.fault("server_error", status=503, count=2, method="GET")
    assert [client.request("GET", f"{V1}/Chassis").status_code for _ in range(3)] == [503, 503, 200]


def test_a_hanging_request_gets_no_answer_and_the_next_one_does(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.fault("hang", path="/Systems", count=1)
    with pytest.raises(requests.Timeout):
        client.request("GET", f"{V1}/Systems", timeout=0.5)
    assert client.request("GET", f"{V1}/Systems").status_code == 200


def test_a_reset_connection_ends_without_an_answer(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.fault("reset_connections", count=1)
    with pytest.raises(requests.ConnectionError):
        client.request("GET", ROOT_URI)
    assert client.request("GET", ROOT_URI).status_code == 200


def test_a_half_applied_bind_detaches_and_does_not_attach(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.fault("half_applied_bind")
    wanted = ["hostport1_H1", "drawer1slot1", "drawer1slot2", "drawer1slot3", "drawer1slot7"]
    assert client.compose("hostport1_H1", wanted).status_code == 200
    assert client.zone("hostport1_H1") == wanted[:-1]
    assert client.compose("hostport1_H1", wanted).status_code == 200
    assert client.zone("hostport1_H1") == wanted


def test_a_half_applied_bind_that_only_attaches_leaves_the_last_device_out(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.fault("half_applied_bind")
    assert client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"]).status_code == 200
    assert client.zone("hostport1_H3") == ["hostport1_H3"]


def test_a_bind_may_be_applied_whole_and_answered_500(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fresh.fault("half_applied_bind", answer="error")
    assert client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"]).status_code == 500
    assert client.zone("hostport1_H3") == ["hostport1_H3", "drawer1slot7"]


def test_a_reboot_drops_sessions_subscriptions_and_connections_and_keeps_zones_accounts_and_log(
    fresh: SimulatorProcess,
) -> None:
    client = Client(fresh)
    assert client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"]).ok
    body = {"UserName": "administrator", "Password": fresh.password}
    token = client.request("POST", f"{V1}/SessionService/Sessions", json=body, auth=None).headers["X-Auth-Token"]
    subscription = {"Destination": "https://127.0.0.1:9/", "Protocol": "Redfish"}
    assert client.request("POST", f"{V1}/EventService/Subscriptions", json=subscription).status_code == 201
    entries = fresh.state()["log_entries"]
    port = f"{V1}/Fabrics/PCIe/Switches/drawer1_switch/Ports/slot1/Metrics"
    burst = fresh.fault("error_burst", "drawer1slot1", counter="BadTLPCount", rate=1000)
    eventually(lambda: client.get(port)["PCIeErrors"]["BadTLPCount"], lambda count: count > 100)
    fresh.end_fault(burst)
    fresh.fault("bmc_reboot", seconds=1, forgets_counters=True)

    def refused() -> bool:
        try:
            client.request("GET", ROOT_URI)
        except requests.ConnectionError:
            return True
        return False

    eventually(refused, bool)
    eventually(refused, lambda down: not down)
    anew = requests.Session()
    anew.trust_env = False
    old = anew.get(f"{fresh.address}{V1}/Chassis", headers={"X-Auth-Token": token}, verify=str(fresh.certificate))
    assert old.status_code == 401
    state = fresh.state()
    assert (state["boots"], state["sessions"], state["subscriptions"]) == (2, 0, 0)
    assert state["zones"]["hostport1_H3"] == ["drawer1slot7"]
    assert state["log_entries"] > entries
    assert client.zone("hostport1_H3") == ["hostport1_H3", "drawer1slot7"]
    assert "ManagerRestarted" in messages(client)
    assert client.get(port)["PCIeErrors"]["BadTLPCount"] < 100


def test_a_fault_ends_by_itself_after_its_seconds(fresh: SimulatorProcess) -> None:
    fresh.fault("server_error", seconds=2)
    client = Client(fresh)
    assert client.request("GET", ROOT_URI).status_code == 500
    eventually(lambda: client.request("GET", ROOT_URI).status_code, lambda status: status == 200)


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "earthquake"},
        {"kind": "overheat", "target": "drawer9slot1"},
        {"kind": "surprise_removal", "target": "drawer1slot8"},
        {"kind": "fan_failure", "target": "fan99"},
        {"kind": "error_burst", "target": "H1", "counter": "Sneezes"},
        {"kind": "link_downgrade", "target": "H1", "generation": "Gen9"},
        {"kind": "slow", "colour": "red"},
        {"kind": "bad_values", "target": "drawer9"},
        {"kind": "bad_values", "value": "purple"},
        {"kind": "many_readings", "readings": 0},
        {"kind": "many_readings", "readings": 1_000_000},
        {"kind": "other_unit", "target": "drawer1_slot1_RXBytes"},
        {"kind": "other_unit", "target": "drawer1_slot1"},
        {"kind": "other_unit", "target": "falcon_fan1_speed"},
        {"kind": "other_unit", "target": "falcon_energy"},
    ],
)
def test_a_fault_that_cannot_be_is_refused_with_a_sentence(shared: SimulatorProcess, body: dict[str, object]) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        shared.ask_control("POST", "/faults", body)
    assert refusal.value.code == 400
    assert b"error" in refusal.value.read()
    assert shared.ask_control("GET", "/faults") == []


def metrics(client: Client) -> dict[str, object]:
    # Python's own decoder, which knows NaN.
    report = json.loads(client.request("GET", ALL).text)
    return {value["MetricId"]: value["MetricValue"] for value in report["MetricValues"]}


@pytest.mark.parametrize(("value", "seen"), [("null", "None"), ("text", "not available"), ("nan", "nan")])
def test_bad_values_stand_in_the_report_for_the_metrics_that_are_named(
    fresh: SimulatorProcess, value: str, seen: str
) -> None:
    client = Client(fresh)
    fault = fresh.fault("bad_values", "drawer1_slot2_", value=value)
    found = metrics(client)
    assert {str(told) for name, told in found.items() if name.startswith("drawer1_slot2_")} == {seen}
    assert float(str(found["drawer1_slot1_temp"])) > 20
    fresh.end_fault(fault)
    assert float(str(metrics(client)["drawer1_slot2_temp"])) > 20


def test_negative_values_are_those_of_numbers_alone(fresh: SimulatorProcess) -> None:
    fresh.fault("bad_values", "drawer1_slot1_", value="negative")
    found = metrics(Client(fresh))
    assert found["drawer1_slot1_LinkStatus"] == "LinkUp"
    assert all(float(str(found[f"drawer1_slot1_{name}"])) < 0 for name in ("temp", "RXBytes", "ReplayCount"))


def test_a_repeated_report_stands_still_with_its_times(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    fault = fresh.fault("repeated_report")
    first = client.request("GET", ALL)
    time.sleep(0.5)
    again = client.request("GET", ALL)
    assert (again.text, again.headers["ETag"]) == (first.text, first.headers["ETag"])
    fresh.end_fault(fault)
    assert client.get(ALL)["Timestamp"] > first.json()["Timestamp"]


def test_late_reports_are_between_good_ones(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    stamps = [client.get(ALL)["Timestamp"]]
    fresh.fault("late_reports", delay=5)

    def late() -> int:
        stamps.append(client.get(ALL)["Timestamp"])
        return sum(later < earlier for earlier, later in itertools.pairwise(stamps))

    eventually(late, lambda count: count >= 3)
    assert max(stamps) > stamps[0]


def test_many_readings_fill_the_report_up_and_move(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    usual = metrics(client)
    fault = fresh.fault("many_readings", readings=5000)
    found = metrics(client)
    assert len(found) == 5000
    assert 4999 <= float(str(found["Extra4999"])) < 5000
    eventually(lambda: metrics(client)["Extra4999"], lambda value: value != found["Extra4999"])
    fresh.end_fault(fault)
    assert metrics(client).keys() == usual.keys()


def test_a_sensor_in_another_unit_says_so_and_is_as_hot_as_before(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    sensor = f"{DRAWER1}/Sensors/slot1_temp"
    before = client.get(sensor)
    fault = fresh.fault("other_unit", "drawer1_slot1_temp")
    other = client.get(sensor)
    assert (before["ReadingUnits"], other["ReadingUnits"]) == ("Cel", "[degF]")
    assert abs((other["Reading"] - 32) / 1.8 - before["Reading"]) < 10
    assert (
        other["Thresholds"]["UpperCritical"]["Reading"] == before["Thresholds"]["UpperCritical"]["Reading"] * 1.8 + 32
    )
    assert abs(float(str(metrics(client)["drawer1_slot1_temp"])) - other["Reading"]) < 20
    fresh.end_fault(fault)
    assert client.get(sensor)["ReadingUnits"] == "Cel"
    assert messages(client).count("ResourceChanged") >= 2
