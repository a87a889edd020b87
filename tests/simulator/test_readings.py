"""Readings behave: traffic flows where devices are attached, heat follows load, a seed gives the same again."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from falconweb.testing.processes import SimulatorProcess
from simulator.lab import load_lab
from simulator.physics import Clock
from simulator.resources import register_all
from simulator.service import Falcon, ServiceOptions
from tests.simulator.conftest import PORTS, V1, Client
from tests.waiting import eventually

ALL = f"{V1}/TelemetryService/MetricReports/All"


def falcon(seed: int) -> Falcon:
    lab = load_lab()
    chassis = lab.chassis["falcon-1"]
    one = Falcon(lab, "falcon-1", chassis, password="long enough", clock=Clock(), options=ServiceOptions(seed=seed))
    register_all(one)
    return one


def readings(one: Falcon) -> list[tuple[str, str]]:
    node = one.tree.find(ALL)
    assert node is not None
    assert node.raw is not None
    values = msgspec.json.decode(node.raw().content)["MetricValues"]
    return [(value["MetricId"], value["MetricValue"]) for value in values]


def test_the_same_seed_gives_the_same_readings_and_another_seed_others() -> None:
    first, second, other = falcon(7), falcon(7), falcon(8)
    for one in (first, second, other):
        one.physics.advance(120.0)
    assert readings(first) == readings(second)
    assert readings(first) != readings(other)


def test_the_report_holds_every_reading_and_each_names_a_property_that_is_there(client: Client) -> None:
    report = client.get(ALL)
    values = report["MetricValues"]
    assert 350 <= len(values) == report["MetricValues@odata.count"] <= 450
    assert len({value["MetricId"] for value in values}) == len(values)
    bodies: dict[str, object] = {}
    for value in values:
        uri, _, pointer = value["MetricProperty"].partition("#/")
        bodies.setdefault(uri, client.get(uri))
        found: object = bodies[uri]
        for key in pointer.split("/"):
            assert isinstance(found, dict)
            found = found[key]
        if isinstance(found, str):
            assert isinstance(value["MetricValue"], str)
        else:
            assert isinstance(found, int | float), value
            assert re.fullmatch(r"-?\d+(\.\d+)?(e\+\d+)?", value["MetricValue"]), value


def test_the_report_is_answered_from_memory_within_a_second(client: Client) -> None:
    client.process.set_speed(0.01)
    try:
        first = client.request("GET", ALL)
        again = client.request("GET", ALL, headers={"If-None-Match": first.headers["ETag"]})
        assert again.status_code == 304
        client.process.set_speed(100)
        eventually(lambda: client.request("GET", ALL).headers["ETag"], lambda etag: etag != first.headers["ETag"])
    finally:
        client.process.set_speed(10)


def test_bytes_flow_on_attached_links_alone(client: Client) -> None:
    def bytes_of(slot: int) -> tuple[int, int]:
        metrics = client.get(f"{PORTS}/slot{slot}/Metrics")
        return metrics["RXBytes"], metrics["TXBytes"]

    before = bytes_of(1)
    after = eventually(lambda: bytes_of(1), lambda now: now[0] > before[0] and now[1] > before[1])
    assert after > before
    assert bytes_of(7) == (0, 0)


def test_a_host_port_carries_what_its_devices_carry() -> None:
    one = falcon(1)
    one.physics.advance(60.0)
    for host_port in one.state.host_ports():
        slots = [one.state.drawers[host_port.drawer].slots[number].link for number in host_port.slots]
        assert round(host_port.link.received_bytes) == round(sum(link.transmitted_bytes for link in slots))
        assert host_port.link.received_bytes <= 60 * 31.6e9


def test_a_detached_gpu_cools_down_and_takes_less_power() -> None:
    one = falcon(1)
    one.physics.advance(120.0)
    slot = one.state.drawers[1].slots[1]
    busy_watts, busy_temperature = slot.watts, slot.temperature
    assert slot.device is not None
    assert slot.device.load > 0
    host_port = one.state.drawers[1].host_ports["H1"]
    one.composer.apply(host_port, [])
    one.physics.advance(420.0)
    assert slot.device.load == 0
    assert slot.watts == slot.device.model.idle_watts < busy_watts
    assert slot.temperature < busy_temperature - 5


def test_temperatures_stay_in_their_range_through_an_hour_of_work() -> None:
    one = falcon(3)
    for part in range(1, 7):
        one.physics.advance(part * 600.0)
        assert all(20 < slot.temperature < 83 for slot in one.state.all_slots())
        assert all(28 <= fan.percent <= 100 for fan in one.state.fans)
    assert {entry.severity for entry in one.events.entries.values()} <= {"OK"}


def test_training_takes_one_to_three_simulated_seconds() -> None:
    one = falcon(5)
    slot, port = one.state.drawers[1].slots[7], one.state.drawers[1].host_ports["H3"]
    for _ in range(20):
        one.composer.apply(port, [slot])
        start = one.physics.time
        while slot.link.status == "Training":
            one.physics.advance(one.physics.time + 1.0)
        assert 1 <= one.physics.time - start <= 3
        one.composer.apply(port, [])


def test_many_chassis_run_in_one_process() -> None:
    with SimulatorProcess("--chassis-count", "5") as process:
        assert len(set(process.addresses)) == 5
        serials = set()
        for address in process.addresses:
            client = Client(process)
            reply = client.session.get(f"{address}{V1}/Chassis/falcon", timeout=60)
            serials.add(reply.json()["SerialNumber"])
            assert client.session.get(address + ALL, timeout=60).status_code == 200
        assert len(serials) == 5
        assert process.state("falcon-1-3")["chassis"] == "falcon-1-3"


def test_both_chassis_show_a_host_with_the_same_identity() -> None:
    lab = load_lab()
    bodies = []
    for name in ("falcon-1", "falcon-2"):
        one = Falcon(lab, name, lab.chassis[name], password="long enough", clock=Clock(), options=ServiceOptions())
        register_all(one)
        node = one.tree.find(f"{V1}/Systems/node-a")
        assert node is not None
        assert node.render is not None
        bodies.append(node.render())
    assert bodies[0]["UUID"] == bodies[1]["UUID"]
    assert bodies[0]["SerialNumber"] == bodies[1]["SerialNumber"]


def test_a_second_start_serves_the_same_certificate(tmp_path: Path) -> None:
    with SimulatorProcess(certificate_directory=tmp_path) as first:
        fingerprint = first.fingerprint
    with SimulatorProcess(certificate_directory=tmp_path) as second:
        assert second.fingerprint == fingerprint
        Client(second).get(f"{V1}/")
