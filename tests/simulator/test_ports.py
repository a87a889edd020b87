"""Ports are set up by hand: their type, the lanes they use, and whether they may be used at all."""

from __future__ import annotations

import pytest

from falconweb.testing.processes import SimulatorProcess
from tests.simulator.conftest import PORTS, V1, Client, rule_of
from tests.waiting import eventually

LOG = f"{V1}/Managers/bmc/LogServices/Events/Entries"


def port(client: Client, name: str, **change: object) -> dict[str, object]:
    """Return a port, changed first where that is asked for."""
    if change:
        reply = client.request("PATCH", f"{PORTS}/{name}", json=change)
        assert reply.status_code == 200, reply.text
    return client.get(f"{PORTS}/{name}")


@pytest.mark.parametrize("lanes", [8, 4, 2, 1])
def test_a_link_trains_to_no_more_lanes_than_configured(fresh: SimulatorProcess, lanes: int) -> None:
    client = Client(fresh)
    trains = port(client, "slot1", ConfiguredWidth=lanes)
    assert trains["LinkStatus"] in ("Training", "LinkUp")
    up = eventually(lambda: port(client, "slot1"), lambda one: one["LinkStatus"] == "LinkUp")
    assert (up["ActiveWidth"], up["ConfiguredWidth"], up["CurrentSpeedGbps"]) == (lanes, lanes, 8 * lanes)
    assert up["Status"] == {"State": "Enabled", "Health": "OK"}
    again = port(client, "slot1", ConfiguredWidth=16)
    assert again["ConfiguredWidth"] == 16
    eventually(lambda: port(client, "slot1"), lambda one: one["ActiveWidth"] == 16)


def test_a_width_of_a_free_slot_counts_when_its_device_is_attached(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    assert port(client, "slot7", ConfiguredWidth=4)["LinkStatus"] == "LinkDown"
    assert client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"]).ok
    eventually(lambda: port(client, "slot7"), lambda one: (one["LinkStatus"], one["ActiveWidth"]) == ("LinkUp", 4))


def test_what_is_set_already_disturbs_no_link(client: Client) -> None:
    before = client.process.state()["log_entries"]
    assert (
        port(client, "slot1", ConfiguredWidth=16, PortType="DownstreamPort", LinkState="Enabled")["ActiveWidth"] == 16
    )
    assert client.process.state()["log_entries"] == before


def test_an_unconfigured_port_attaches_nothing(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    assert port(client, "slot7", PortType="UnconfiguredPort")["PortType"] == "UnconfiguredPort"
    refused = client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"])
    assert refused.status_code == 409
    assert "slot7 of drawer 1 is an UnconfiguredPort" in rule_of(refused)
    assert port(client, "slot7", PortType="DownstreamPort")["PortType"] == "DownstreamPort"
    assert client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"]).ok


def test_an_unconfigured_host_port_has_no_link_and_takes_no_devices(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    assert port(client, "H3", PortType="UnconfiguredPort")["LinkStatus"] == "LinkDown"
    refused = client.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"])
    assert refused.status_code == 409
    assert "host port H3 is an UnconfiguredPort" in rule_of(refused)
    port(client, "H3", PortType="UpstreamPort")
    eventually(lambda: port(client, "H3")["LinkStatus"], "LinkUp".__eq__)


@pytest.mark.parametrize(("name", "word"), [("slot1", "detach it before"), ("H1", "detach them before")])
def test_a_port_in_use_keeps_its_type(client: Client, name: str, word: str) -> None:
    refused = client.request("PATCH", f"{PORTS}/{name}", json={"PortType": "UnconfiguredPort", "ConfiguredWidth": 1})
    assert refused.status_code == 409
    assert word in rule_of(refused)
    assert port(client, name)["ConfiguredWidth"] == 16


@pytest.mark.parametrize(
    "body",
    [
        {"PortType": "UpstreamPort"}, {"PortType": "InterswitchPort"}, {"PortType": 7}, {"PortType": None},
        {"ConfiguredWidth": 3}, {"ConfiguredWidth": "4"}, {"ConfiguredWidth": True}, {"ConfiguredWidth": []},
        {"LinkState": "Maybe"}, {"Width": 4}, {"Colour": "red"}, {},
        {"ConfiguredWidth": 4, "Width": 4},
    ],
)  # fmt: skip
def test_a_setting_that_a_port_cannot_have_is_refused_and_nothing_is_changed(client: Client, body: object) -> None:
    before = client.process.state()["ports"]
    assert client.request("PATCH", f"{PORTS}/slot7", json=body).status_code == 400
    assert client.process.state()["ports"] == before


def test_a_port_is_changed_only_as_it_was_seen(fresh: SimulatorProcess) -> None:
    client = Client(fresh)
    uri = f"{PORTS}/slot7"
    seen = client.request("GET", uri).headers["ETag"]
    assert client.request("PATCH", uri, json={"ConfiguredWidth": 8}, headers={"If-Match": seen}).ok
    late = client.request("PATCH", uri, json={"ConfiguredWidth": 4}, headers={"If-Match": seen})
    assert late.status_code == 412
    assert port(client, "slot7")["ConfiguredWidth"] == 8


def test_a_viewer_sets_no_port(shared: SimulatorProcess) -> None:
    refused = Client(shared, "viewer").request("PATCH", f"{PORTS}/slot7", json={"ConfiguredWidth": 4})
    assert refused.status_code == 403


def test_the_log_names_who_changed_a_zone_a_port_and_a_mode(fresh: SimulatorProcess) -> None:
    operator = Client(fresh, "operator")
    assert operator.compose("hostport1_H3", ["hostport1_H3", "drawer1slot7"]).ok
    port(operator, "slot8", PortType="UnconfiguredPort")
    assert Client(fresh).request("PATCH", f"{V1}/Chassis/drawer2", json={"Oem": {"H3": {"DrawerMode": "Advanced"}}}).ok
    eventually(lambda: fresh.state()["modes"]["drawer2"], "Advanced".__eq__)
    entries = operator.get(LOG)["Members"]
    named = {
        entry["Links"]["OriginOfCondition"]["@odata.id"].removeprefix(f"{V1}/"): (
            entry["Originator"], entry["OriginatorType"], entry["Username"], entry["OriginAddress"],
        )
        for entry in entries
        if "Originator" in entry
    }  # fmt: skip
    by_operator = ("operator", "Client", "operator", "https://127.0.0.1")
    assert named == {
        "Fabrics/PCIe/Zones/hostport1_H3": by_operator,
        "Fabrics/PCIe/Switches/drawer1_switch/Ports/slot8": by_operator,
        "Chassis/drawer2": ("administrator", "Client", "administrator", "https://127.0.0.1"),
    }
    trained = [entry for entry in entries if "LinkEstablished" in entry["MessageId"]]
    assert all("Username" not in entry for entry in trained), "a link trains by itself"
