"""What /metrics says of chassis: names, totals, sight, staleness."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from accounts.models import Role, Tenant, User
from core.errors import Invalid, NotFound
from fabric.inventory.models import Chassis, Device, Drawer, Host, HostPort, Port, Slot
from fabric.leases.models import Lease
from fabric.operations.models import Operation
from telemetry.pipeline.exposition import exposition, gzip_pieces
from telemetry.pipeline.metric_families import FAMILIES, error_kind
from tests.telemetry.pipeline.conftest import entry, read

pytestmark = pytest.mark.django_db(databases="__all__")
Samples = dict[str, list[tuple[dict[str, str], float]]]


@pytest.fixture
def administrator() -> User:
    return User.objects.create(username="ada", role=Role.ADMINISTRATOR, is_superuser=True)


@pytest.fixture
def chassis() -> Chassis:
    """A chassis with two slots, each with a device, and a host port."""
    chassis = Chassis.objects.create(name="falcon-1", url="https://127.0.0.1:1", model="Falcon 4016")
    drawer = Drawer.objects.create(chassis=chassis, uri="/d", name="Drawer 1", number=1)
    for number in (1, 2):
        port = Port.objects.create(chassis=chassis, uri=f"/p{number}", name=f"Slot port {number}", width=16)
        slot = Slot.objects.create(
            chassis=chassis, uri=f"/s{number}", name=f"Slot {number}", drawer=drawer, port=port, number=number
        )
        Device.objects.create(
            chassis=chassis, uri=f"/x{number}", name="V100", model="V100", kind="gpu", slot=slot, max_lanes=16
        )
    port = Port.objects.create(chassis=chassis, uri="/h", name="Host port 1", width=16, configured_width=8)
    HostPort.objects.create(
        chassis=chassis, uri="/z", name="H1", endpoint_uri="/e", drawer=drawer, port=port, label="H1",
        host=Host.objects.create(name="node-a", identity="a"),
    )  # fmt: skip
    return chassis


def samples_of(person: User, **asked: object) -> Samples:
    """Return what /metrics says, by the reader that Prometheus' own library has."""
    text = b"".join(exposition(person, version="1", **asked)).decode()  # type: ignore[arg-type]
    found: Samples = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name].append((sample.labels, sample.value))
    return found


def slot_port(chassis: Chassis, number: int) -> Port:
    port = Slot.objects.get(chassis=chassis, number=number).port
    assert port is not None
    return port


def one(samples: Samples, name: str, **labels: str) -> float:
    (value,) = [value for found, value in samples[name] if labels.items() <= found.items()]
    return value


def test_byte_counters_are_totals_and_everything_is_in_base_units(administrator: User, chassis: Chassis) -> None:
    port, device = slot_port(chassis, 1).pk, Device.objects.get(slot__number=1).pk
    read(
        chassis,
        [
            (entry("port", port, "rx_bytes_per_second"), 10.0),
            (entry("port", port, "link_status"), 4.0),
            (entry("port", port, "tx_bytes_per_second"), 20.0),
            (entry("port", port, "link_speed_gbps"), 252.0),
            (entry("port", port, "errors", "Replay count", "ReplayCount"), 2.0**53),
            (entry("device", device, "utilisation_percent"), 42.0),
            (entry("device", device, "temperature_celsius", "Temperature"), 61.5),
            (entry("chassis", 0, "energy_kilowatt_hours", "Energy"), 2.0),
            (entry("chassis", 0, "fan_percent", "Fan 1"), 40.0),
        ],
        counters=[123456789012345.0, 5.0],
    )
    found = samples_of(administrator)
    where = {"chassis": "falcon-1", "drawer": "1", "slot": "1", "port": "Slot port 1"}
    assert one(found, "falconweb_port_receive_bytes_total", **where) == 123456789012345
    assert one(found, "falconweb_port_transmit_bytes_total", **where) == 5
    assert one(found, "falconweb_port_link_up", **where) == 1
    assert one(found, "falconweb_port_link_speed_bytes_per_second", **where) == 31.5e9
    assert one(found, "falconweb_port_errors_total", error="replay", **where) == 2**53
    assert one(found, "falconweb_device_utilisation_ratio", device="V100", model="V100", slot="1") == 0.42
    assert one(found, "falconweb_device_temperature_celsius", sensor="Temperature") == 61.5
    assert one(found, "falconweb_chassis_energy_joules_total") == 7.2e6
    assert one(found, "falconweb_chassis_fan_speed_ratio", sensor="Fan 1") == pytest.approx(0.4)
    assert one(found, "falconweb_chassis_up", chassis="falcon-1") == 1
    assert one(found, "falconweb_device_info", slot="2", kind="gpu") == 1


def test_a_link_should_be_as_wide_as_its_device_and_its_port_can_be(administrator: User, chassis: Chassis) -> None:
    Device.objects.filter(slot__number=2).update(max_lanes=4)
    Device.objects.filter(slot__number=1).delete()
    read(chassis, [(entry("port", slot_port(chassis, 1).pk, "link_status"), 4.0)])
    found = samples_of(administrator)
    # Where no device is, nobody can say.
    assert sorted(value for _, value in found["falconweb_port_link_expected_lanes"]) == [4, 8]


def test_a_chassis_that_was_read_too_long_ago_has_no_samples_and_is_down(administrator: User, chassis: Chassis) -> None:
    port = slot_port(chassis, 1).pk
    read(chassis, [(entry("port", port, "link_status"), 4.0)], age=11.0)
    found = samples_of(administrator)
    assert one(found, "falconweb_chassis_up", chassis="falcon-1") == 0
    assert not found["falconweb_port_link_up"]
    assert not found["falconweb_device_info"]
    assert time.time() - one(found, "falconweb_chassis_last_reading_timestamp_seconds") > 10
    read(chassis, [(entry("port", port, "link_status"), 4.0)])
    assert one(samples_of(administrator), "falconweb_chassis_up", chassis="falcon-1") == 1


def test_a_chassis_that_is_read_every_20_s_is_up_between_two_readings(administrator: User, chassis: Chassis) -> None:
    port = slot_port(chassis, 1).pk
    for age, up in ((81.0, 0), (61.0, 0), (41.0, 1), (19.0, 1)):
        read(chassis, [(entry("port", port, "link_status"), 4.0)], age=age)
        assert one(samples_of(administrator), "falconweb_chassis_up", chassis="falcon-1") == up, age


def test_a_chassis_that_was_never_read_is_down_and_one_that_is_not_polled_is_not_told_of(
    administrator: User, chassis: Chassis
) -> None:
    read(chassis, [(entry("chassis", 0, "temperature_celsius", "Inlet"), 20.0)], age=100.0)
    Chassis.objects.create(name="off", url="https://127.0.0.1:2", enabled=False)
    found = samples_of(administrator)["falconweb_chassis_up"]
    assert found == [({"chassis": "falcon-1"}, 0)]


def test_of_a_chassis_of_which_nothing_is_measured_the_looks_at_it_tell(administrator: User, chassis: Chassis) -> None:
    for since, error, up in ((None, "", 0), (10, "", 1), (10, "It is away.", 0), (3600, "", 0)):
        at = None if since is None else timezone.now() - timedelta(seconds=since)
        Chassis.objects.filter(pk=chassis.pk).update(inventory_at=at, last_error=error)
        assert one(samples_of(administrator), "falconweb_chassis_up", chassis="falcon-1") == up, (since, error)


def test_what_has_no_value_has_no_sample(administrator: User, chassis: Chassis) -> None:
    first, second = slot_port(chassis, 1).pk, slot_port(chassis, 2).pk
    read(
        chassis,
        [
            (entry("port", first, "link_width_lanes"), math.nan),
            (entry("port", second, "link_width_lanes"), 16.0),
            (entry("port", first, "rx_bytes_per_second"), 3.0),
            (entry("port", second, "rx_bytes_per_second"), math.nan),
        ],
        counters=[math.nan, 77.0],
    )
    found = samples_of(administrator)
    assert [value for _, value in found["falconweb_port_link_lanes"]] == [16]
    # The total of the second is there though its rate is not known yet.
    assert [(labels["slot"], value) for labels, value in found["falconweb_port_receive_bytes_total"]] == [("2", 77)]


def test_sensors_of_one_name_are_told_apart_by_their_key_whatever_their_order(
    administrator: User, chassis: Chassis
) -> None:
    fans = [entry("chassis", 0, "fan_rpm", "Fan", place) for place in ("a", "b")]
    read(chassis, [(fans[0], 1.0), (fans[1], 2.0)])
    first = samples_of(administrator)["falconweb_chassis_fan_speed_rpm"]
    read(chassis, [(fans[1], 2.0), (fans[0], 1.0)])
    second = samples_of(administrator)["falconweb_chassis_fan_speed_rpm"]
    assert sorted(first, key=str) == sorted(second, key=str)
    assert {labels["series"] for labels, _ in first} == {"chassis/0/fan_rpm/a", "chassis/0/fan_rpm/b"}


def test_names_may_have_any_letters(administrator: User, chassis: Chassis) -> None:
    wild = 'back\\slash "quoted"\nnext line {x="1"} 1'
    Chassis.objects.filter(pk=chassis.pk).update(name=wild)
    read(chassis, [(entry("chassis", 0, "temperature_celsius", wild), 20.0)])
    found = samples_of(administrator)
    assert one(found, "falconweb_chassis_temperature_celsius", chassis=wild, sensor=wild) == 20
    assert one(samples_of(administrator, chassis=[wild]), "falconweb_chassis_up", chassis=wild) == 1


def test_a_tenant_is_told_of_its_own_and_of_nothing_else(administrator: User, chassis: Chassis) -> None:
    tenant, others = Tenant.objects.create(name="One"), Tenant.objects.create(name="Two")
    member = User.objects.create(username="bob", role=Role.VIEWER, tenant=tenant)
    Device.objects.filter(slot__number=1).update(tenant=tenant)
    other = Device.objects.get(slot__number=2)
    Device.objects.filter(pk=other.pk).update(tenant=others, host_port=HostPort.objects.get(), serial_number="SECRET")
    Device.objects.filter(slot__number=1).update(host_port=HostPort.objects.get())
    read(
        chassis,
        [
            (entry("port", slot_port(chassis, 2).pk, "rx_bytes_per_second"), 1.0),
            (entry("port", slot_port(chassis, 1).pk, "rx_bytes_per_second"), 2.0),
            (entry("device", other.pk, "temperature_celsius", "Temperature"), 60.0),
            (entry("chassis", 0, "temperature_celsius", "Inlet"), 20.0),
            (entry("drawer", Drawer.objects.get().pk, "power_watts", "Power"), 900.0),
        ],
        counters=[111.0, 222.0],
    )
    Operation.objects.create(kind="detach", state="running", chassis=chassis, device=other, summary="x")
    Lease.objects.create(tenant=others, tenant_name="Two", state="active", starts_at=chassis.created_at)
    found = samples_of(member)
    assert [(labels["slot"], value) for labels, value in found["falconweb_port_receive_bytes_total"]] == [("1", 222)]
    assert [labels["slot"] for labels, _ in found["falconweb_device_info"]] == ["1"]
    # Whose host it is attached to is nothing to a tenant that does not hold the host port.
    assert "host" not in found["falconweb_device_info"][0][0]
    hidden = (
        "falconweb_device_temperature_celsius", "falconweb_chassis_temperature_celsius", "falconweb_drawer_power_watts",
        "falconweb_polls_total", "falconweb_process_up", "falconweb_database_bytes", "falconweb_operations",
        "falconweb_leases",
    )  # fmt: skip
    assert [name for name in hidden if found[name]] == []
    everything = samples_of(administrator)
    assert len(everything["falconweb_port_receive_bytes_total"]) == 2
    assert one(everything, "falconweb_operations", kind="detach", state="running") == 1
    assert one(everything, "falconweb_leases", state="active") == 1
    assert one(everything, "falconweb_device_info", slot="1", host="node-a", host_port="H1", tenant="One") == 1
    stranger = User.objects.create(username="eve", role=Role.VIEWER, tenant=Tenant.objects.create(name="Three"))
    assert not samples_of(stranger)["falconweb_chassis_up"]


def test_a_frame_and_a_catalogue_that_do_not_fit_are_no_readings(
    administrator: User, chassis: Chassis, empty_redis: Any
) -> None:
    read(chassis, [(entry("chassis", 0, "temperature_celsius", "Inlet"), 20.0)])
    kept = empty_redis.get(f"live:frame:{chassis.pk}")
    read(chassis, [(entry("chassis", 0, "power_watts", "Power"), 900.0)])
    assert kept is not None
    empty_redis.set(f"live:frame:{chassis.pk}", kept)  # of the catalogue before
    found = samples_of(administrator)
    assert not found["falconweb_chassis_power_watts"]
    assert one(found, "falconweb_chassis_up", chassis="falcon-1") == 0


def test_counters_of_another_catalogue_are_not_taken_for_these(
    administrator: User, chassis: Chassis, empty_redis: Any
) -> None:
    port = slot_port(chassis, 1).pk
    read(chassis, [(entry("port", port, "rx_bytes_per_second"), 1.0)], counters=[5.0])
    kept = empty_redis.get(f"live:counted:{chassis.pk}")
    read(chassis, [(entry("port", port, "tx_bytes_per_second"), 1.0)], counters=[6.0])
    assert kept is not None
    empty_redis.set(f"live:counted:{chassis.pk}", kept)
    assert not samples_of(administrator)["falconweb_port_transmit_bytes_total"]


def test_some_chassis_are_asked_for_by_name_or_id_and_others_are_not_there(
    administrator: User, chassis: Chassis
) -> None:
    second = Chassis.objects.create(name="falcon-2", url="https://127.0.0.1:2")
    third = Chassis.objects.create(name="falcon-3", url="https://127.0.0.1:3")
    found = samples_of(administrator, chassis=["falcon-1", str(third.pk), "falcon-1"])
    assert [labels["chassis"] for labels, _ in found["falconweb_chassis_up"]] == ["falcon-1", "falcon-3"]
    assert not found["falconweb_process_up"]
    assert not found["falconweb_build_info"]
    assert {name for name in samples_of(administrator, only="chassis") if "chassis" not in name} == set()
    assert not samples_of(administrator, only="site")["falconweb_chassis_up"]
    with pytest.raises(NotFound, match="falcon-9"):
        samples_of(administrator, chassis=["falcon-9"])
    with pytest.raises(Invalid):
        samples_of(administrator, only="everything")
    member = User.objects.create(username="bob", role=Role.VIEWER, tenant=Tenant.objects.create(name="One"))
    with pytest.raises(NotFound):
        samples_of(member, chassis=[second.name])


def test_a_packed_answer_says_the_same(administrator: User, chassis: Chassis) -> None:
    import gzip

    read(chassis, [(entry("chassis", 0, "temperature_celsius", "Inlet"), 20.0)])
    plain = b"".join(exposition(administrator, version="1", only="chassis"))
    assert gzip.decompress(b"".join(gzip_pieces(exposition(administrator, version="1", only="chassis")))) == plain


def test_nothing_is_sent_in_one_piece(administrator: User) -> None:
    for number in range(60):
        chassis = Chassis.objects.create(name=f"falcon-{number}", url=f"https://127.0.0.1:{number}")
        sensors = [entry("chassis", 0, "temperature_celsius", f"Sensor {place}", str(place)) for place in range(100)]
        read(chassis, [(sensor, 20.0) for sensor in sensors])
    pieces = list(exposition(administrator, version="1", only="chassis"))
    assert max(len(piece) for piece in pieces) <= 2**16
    assert b"".join(pieces).count(b"\nfalconweb_chassis_temperature_celsius{") == 6000


def test_every_metric_has_one_type_and_kinds_of_errors_are_words() -> None:
    kinds = defaultdict(set)
    for family, _ in FAMILIES.values():
        kinds[family.name].add((family.kind, family.words))
    assert all(len(found) == 1 for found in kinds.values())
    assert all(name.endswith("_total") == (kind == "counter") for name, ((kind, _),) in kinds.items())
    words = {"CorrectableErrorCount": "correctable", "ReplayRolloverCount": "replay_rollover",
             "NAKReceivedCount": "nak_received", "L0ToRecoveryCount": "l0_to_recovery", "Errors": "errors"}  # fmt: skip
    assert {name: error_kind(f"port/5/errors/{name}") for name in words} == words


@pytest.mark.nightly
def test_what_a_chassis_more_takes_while_all_are_read_is_a_small_part_of_what_is_told(administrator: User) -> None:
    for number in range(200):
        chassis = Chassis.objects.create(name=f"falcon-{number:03}", url=f"https://127.0.0.1:{number}")
        sensors = [entry("chassis", 0, "temperature_celsius", f"Sensor {place}", str(place)) for place in range(400)]
        read(chassis, [(sensor, number + place / 7) for place, sensor in enumerate(sensors)])
    found = []
    for many in (40, 200):
        Chassis.objects.update(enabled=False)
        Chassis.objects.filter(name__lt=f"falcon-{many:03}").update(enabled=True)
        for _ in range(2):  # the first brings what a process makes once
            tracemalloc.start()
            told = sum(len(piece) for piece in exposition(administrator, version="1", only="chassis"))
            found.append((told, tracemalloc.get_traced_memory()[1]))
            tracemalloc.stop()
    _, (told_few, most_few), _, (told_all, most_all) = found
    assert told_all - told_few > 5 * 2**20
    assert most_all - most_few < (told_all - told_few) / 4
