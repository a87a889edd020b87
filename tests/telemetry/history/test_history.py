"""Any metric of anything over any range: what it is made of, who sees it, and since when."""

from __future__ import annotations

import csv
import io
import math
from datetime import timedelta
from typing import Any, cast

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from fabric.history.models import Attachment
from fabric.inventory.models import Device, Drawer, Port, Slot
from telemetry.links.models import CounterReset, LinkVerdict
from tests.api.test_openapi import plain, valid
from tests.telemetry.history.conftest import MINUTES, Lab, attached, entry, record


def ask(lab: Lab, person: str = "administrator", **given: Any) -> Any:
    """Ask the API for what is recorded; returns the answer."""
    usual = {"since": lab.at(0).isoformat(), "until": lab.at(MINUTES * 60).isoformat(), "points": MINUTES}
    return lab.clients[person].get(reverse("api:telemetry"), {**usual, **given})


def lines(answer: Any) -> dict[str, dict[str, Any]]:
    """Return the lines of an answer by subject and metric."""
    assert answer.status_code == 200, answer.content
    return {f"{one['subject']} {one['metric']}": one for one in answer.json()["series"]}


def test_a_device_tells_mean_low_and_high_of_each_minute(lab: Lab) -> None:
    ref = f"device/{lab.devices[0].pk}"
    answer = ask(lab, subjects=ref, metrics="temperature_celsius,power_watts", stats="band")
    found = lines(answer)
    assert answer.json()["step"] == 60
    assert answer.json()["at"] == [lab.began + 60 * minute for minute in range(MINUTES)]
    heat = found[f"{ref} temperature_celsius"]
    assert (heat["mean"], heat["low"], heat["high"]) == ([10.5] * MINUTES, [10] * MINUTES, [11] * MINUTES)
    assert (heat["name"], heat["place"], heat["unit"], heat["made_of"]) == (
        "GPU 1",
        "falcon, Drawer 1, Slot 1",
        "°C",
        "",
    )
    assert found[f"{ref} power_watts"]["mean"] == [100] * MINUTES


def test_a_group_is_the_sum_of_its_ports_and_the_highest_of_its_devices(lab: Lab) -> None:
    refs = [f"drawer/{lab.drawers[0].pk}", f"chassis/{lab.chassis.pk}"]
    found = lines(
        ask(
            lab, subjects=",".join(refs), stats="band",
            metrics="rx_bytes_per_second,tx_bytes_per_second,temperature_celsius,power_watts,error_rate",
        )
    )  # fmt: skip
    drawer, chassis = ({name.split()[1]: one for name, one in found.items() if name.startswith(ref)} for ref in refs)
    assert drawer["rx_bytes_per_second"]["mean"][1:] == [3e6] * (MINUTES - 1)
    assert drawer["tx_bytes_per_second"]["mean"][1:] == [6e6] * (MINUTES - 1)
    assert chassis["rx_bytes_per_second"]["mean"][1:] == [6e6] * (MINUTES - 1)
    assert drawer["temperature_celsius"]["high"] == [21] * MINUTES
    assert chassis["temperature_celsius"]["mean"] == [30.5] * MINUTES
    assert drawer["power_watts"]["mean"] == [300] * MINUTES
    assert drawer["rx_bytes_per_second"]["made_of"] == "sum of 2 device-side ports"
    assert chassis["temperature_celsius"]["made_of"] == "highest of 3 devices"
    assert chassis["error_rate"]["mean"][2] == pytest.approx(0.3, abs=0.06)


def test_a_slot_and_a_device_have_the_port_behind_them(lab: Lab) -> None:
    refs = [f"slot/{lab.slots[1].pk}", f"device/{lab.devices[1].pk}", f"port/{lab.slots[1].port_id}"]
    found = lines(ask(lab, subjects=",".join(refs), metrics="tx_bytes_per_second,temperature_celsius"))
    for ref in refs:
        assert found[f"{ref} tx_bytes_per_second"]["mean"][3] == 4e6
    assert found[f"{refs[0]} temperature_celsius"]["mean"] == found[f"{refs[1]} temperature_celsius"]["mean"]
    left = ask(lab, subjects=refs[2], metrics="temperature_celsius").json()["left_out"]
    assert left == [{"subject": refs[2], "metric": "temperature_celsius", "why": "A port has no such metric."}]


def test_one_series_is_asked_for_by_its_key_and_a_counter_as_total_and_as_rate(lab: Lab) -> None:
    port = lab.slots[0].port_id
    inlet = f"series/{lab.chassis.pk}/chassis/0/temperature_celsius"
    errors = f"series/{lab.chassis.pk}/port/{port}/errors/ReplayCount"
    found = ask(lab, subjects=[inlet, errors, f"{errors}/rate"]).json()["series"]
    assert [one["mean"][5] for one in found[:2]] == [21.5, pytest.approx(32.5)]
    assert found[2]["mean"][5] == pytest.approx(0.1, rel=0.02)
    assert [one["unit"] for one in found] == ["°C", "", "1/s"]
    assert found[0]["name"] == "=Inlet, left"


def test_where_nothing_was_read_is_null_and_says_why(lab: Lab) -> None:
    later = {"since": lab.at(MINUTES * 60 - 60).isoformat(), "until": lab.at(MINUTES * 60 + 300).isoformat()}
    answer = ask(lab, subjects=f"device/{lab.devices[0].pk}", metrics="power_watts", points=6, **later).json()
    assert answer["series"][0]["mean"] == [100, None, None, None, None, None]
    (gap,) = answer["gaps"]
    assert gap["since"] == pytest.approx(lab.ended - 1)
    assert gap["reason"]
    nothing = ask(lab, subjects=f"device/{lab.devices[0].pk}", metrics="voltage_volts").json()
    assert nothing["left_out"][0]["why"] == "There are no such readings in this range."


def test_a_host_is_made_of_the_devices_that_it_had_at_each_time(lab: Lab) -> None:
    """The first device left for no host after four minutes, the third came then."""
    first, _, third = lab.devices
    attached(lab, first, 0, 240, host_name="node-a", host_port_label="H1")
    attached(lab, first, 240, None)
    attached(lab, third, 0, 240)
    attached(lab, third, 240, None, host_name="node-a", host_port_label="H1")
    found = lines(ask(lab, subjects=f"host/{lab.host.pk}", metrics="power_watts,rx_bytes_per_second"))
    assert found[f"host/{lab.host.pk} power_watts"]["mean"] == [100] * 4 + [300] * 8
    assert found[f"host/{lab.host.pk} rx_bytes_per_second"]["mean"][1:] == [1e6] * 3 + [3e6] * 8
    # What goes on being appended live is what is there now.
    assert [part["key"] for part in found[f"host/{lab.host.pk} power_watts"]["parts"]] == [
        f"device/{third.pk}/power_watts"
    ]


def test_a_slot_shows_the_device_that_was_in_it(lab: Lab) -> None:
    first, second, _ = lab.devices
    attached(lab, first, 0, 300, slot=lab.slots[0])
    attached(lab, second, 300, None, slot=lab.slots[0])
    ref = f"slot/{lab.slots[0].pk}"
    found = lines(ask(lab, subjects=ref, metrics="temperature_celsius"))
    assert found[f"{ref} temperature_celsius"]["mean"] == [10.5] * 5 + [20.5] * 7


# --- Rights ---------------------------------------------------------------------------------------------------------


def refs_of(lab: Lab) -> dict[str, list[str]]:
    """Return names of subjects, by who may see them besides administrators."""
    one, two, third = lab.devices
    own = [f"device/{one.pk}", f"slot/{lab.slots[0].pk}", f"port/{lab.slots[0].port_id}", f"tenant/{lab.tenants[0].pk}",
           f"host/{lab.host.pk}", f"drawer/{lab.drawers[1].pk}", f"device/{third.pk}",
           f"series/{lab.chassis.pk}/device/{one.pk}/power_watts"]  # fmt: skip
    counter = f"series/{lab.chassis.pk}/port/{lab.slots[1].port_id}/errors/ReplayCount"
    others = [f"device/{two.pk}", f"slot/{lab.slots[1].pk}", f"port/{lab.slots[1].port_id}",
              f"tenant/{lab.tenants[1].pk}", counter]  # fmt: skip
    return {"owner": own, "other": others}


def test_a_tenant_sees_its_own_and_nothing_of_others(lab: Lab) -> None:
    refs = refs_of(lab)
    sensor = f"series/{lab.chassis.pk}/chassis/0/temperature_celsius"
    made_up = ["device/999999", "slot/999999", "tenant/999999", "host/999999", "series/999999/device/1/power_watts",
               f"series/{lab.chassis.pk}/chassis/0/nothing"]  # fmt: skip
    for person, hidden in (
        ("owner", [*refs["other"], sensor, *made_up]), ("other", [*refs["owner"], sensor]),
        ("stranger", [*refs["owner"], *refs["other"], sensor, f"chassis/{lab.chassis.pk}"]),
    ):  # fmt: skip
        for ref in hidden:
            answer = ask(lab, person, subjects=ref, metrics="power_watts")
            assert answer.status_code == 404, (person, ref)
            assert answer.json()["detail"] == f"There is no '{ref[:60]}', or you may not see it."
            for name in ("api:telemetry_table", "api:telemetry_raw"):
                where = {"subjects": ref, "metrics": "power_watts"}
                assert lab.clients[person].get(reverse(name), where).status_code == 404
            assert lab.clients[person].get(reverse("history:telemetry"), {"of": ref}).status_code == 404
    for person, seen in refs.items():
        for ref in seen:
            assert ask(lab, person, subjects=ref, metrics="power_watts,rx_bytes_per_second").status_code == 200, ref


def test_of_a_drawer_and_a_chassis_a_tenant_sees_its_own_part(lab: Lab) -> None:
    refs = [f"drawer/{lab.drawers[0].pk}", f"chassis/{lab.chassis.pk}"]
    for person, watts in (("owner", (100, 400)), ("other", (200, 200)), ("administrator", (300, 600))):
        found = lines(ask(lab, person, subjects=",".join(refs), metrics="power_watts"))
        assert tuple(found[f"{ref} power_watts"]["mean"][3] for ref in refs) == watts, person
        assert not [part for one in found.values() for part in one["parts"] if part["key"].startswith("chassis/")]


def test_what_was_before_it_held_a_thing_is_not_a_tenants_to_see(lab: Lab) -> None:
    """It holds the device since the middle of the sixth minute: the seventh is the first that is its own as a whole."""
    device = lab.devices[0]
    Device.objects.filter(pk=device.pk).update(tenant_since=lab.at(330))
    refs = [f"device/{device.pk}", f"slot/{lab.slots[0].pk}", f"series/{lab.chassis.pk}/device/{device.pk}/power_watts"]
    for ref in refs:
        found = ask(lab, "owner", subjects=ref, metrics="power_watts").json()["series"][0]["mean"]
        assert found == [None] * 6 + [100] * 6, ref
    found = lines(ask(lab, "owner", subjects=f"chassis/{lab.chassis.pk}", metrics="power_watts,rx_bytes_per_second"))
    assert found[f"chassis/{lab.chassis.pk} power_watts"]["mean"] == [300] * 6 + [400] * 6
    assert found[f"chassis/{lab.chassis.pk} rx_bytes_per_second"]["mean"][1:] == [3e6] * 5 + [4e6] * 6
    assert ask(lab, subjects=refs[0], metrics="power_watts").json()["series"][0]["mean"] == [100] * MINUTES
    raw = table(lab.clients["owner"], "api:telemetry_raw", lab, subjects=refs[0], metrics="power_watts")
    assert len(raw) == 1 + MINUTES * 60 - 330


def test_a_tenant_that_gave_a_device_back_sees_nothing_of_it_any_more(lab: Lab) -> None:
    device = lab.devices[0]
    attached(lab, device, 0, 300, tenant=lab.tenants[0])
    attached(lab, device, 300, None, tenant=lab.tenants[1])
    Device.objects.filter(pk=device.pk).update(tenant=lab.tenants[1], tenant_since=lab.at(300))
    assert ask(lab, "owner", subjects=f"device/{device.pk}", metrics="power_watts").status_code == 404
    tenant = f"tenant/{lab.tenants[0].pk}"
    assert lines(ask(lab, "owner", subjects=tenant, metrics="power_watts"))[f"{tenant} power_watts"]["mean"][1] == 300
    # An administrator sees whose it was when.
    found = lines(ask(lab, subjects=[tenant, f"tenant/{lab.tenants[1].pk}"], metrics="power_watts"))
    assert found[f"{tenant} power_watts"]["mean"] == [400] * 5 + [300] * 7
    assert found[f"tenant/{lab.tenants[1].pk} power_watts"]["mean"] == [200] * 5 + [300] * 7
    assert Attachment.objects.count() == 2


def test_a_gap_tells_a_tenant_no_address(lab: Lab) -> None:
    from telemetry.store.models import Gap

    Gap.objects.create(chassis=lab.chassis.pk, since=lab.began + 5, until=lab.began + 9, reason="10.1.2.3 was away.")
    for person, told in (("owner", False), ("administrator", True)):
        answer = ask(lab, person, subjects=f"device/{lab.devices[0].pk}", metrics="power_watts")
        assert ("10.1.2.3" in answer.content.decode()) is told
        assert answer.json()["gaps"]


def test_a_counter_begins_with_its_tenant_at_what_it_had_then(lab: Lab) -> None:
    port = lab.slots[0].port
    assert port is not None
    held = lab.at(120)
    Device.objects.filter(pk=lab.devices[0].pk).update(tenant_since=held)
    LinkVerdict.objects.create(
        port=port, tenant=lab.tenants[0], held_since=held, before={"ReplayCount": 12}, level="healthy", rank=0,
        since=held, judged_at=held,
    )  # fmt: skip
    key = f"series/{lab.chassis.pk}/port/{port.pk}/errors/ReplayCount"

    def values_of(person: str) -> list[float | None]:
        return cast("list[float | None]", ask(lab, person, subjects=key, metrics="").json()["series"][0]["mean"])

    everything = cast("list[float]", values_of("administrator"))
    assert values_of("owner") == [None, None, *(pytest.approx(value - 12) for value in everything[2:])]
    # Since it began anew, all of it is the tenant's.
    CounterReset.objects.create(port=port, at=lab.at(480), how="bmc")
    own = [*(pytest.approx(value - 12) for value in everything[2:8]), *everything[8:]]
    assert values_of("owner") == [None, None, *own]


def test_a_gap_of_before_its_time_is_no_tenant_s(lab: Lab) -> None:
    from telemetry.store.models import Gap

    for begin, end in ((5, 9), (30, 90)):
        Gap.objects.create(
            chassis=lab.chassis.pk, since=lab.began + begin, until=lab.began + end, reason="It was away."
        )
    Device.objects.filter(pk=lab.devices[0].pk).update(tenant_since=lab.at(60))
    answer = ask(lab, "owner", subjects=f"device/{lab.devices[0].pk}", metrics="power_watts").json()
    assert [(one["since"] - lab.began, one["until"] - lab.began) for one in answer["gaps"]][:1] == [(60, 90)]
    everything = ask(lab, subjects=f"device/{lab.devices[0].pk}", metrics="power_watts").json()
    assert len(everything["gaps"]) == len(answer["gaps"]) + 1


# --- Questions that cannot be answered ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"subjects": ""}, "subjects"), ({"subjects": "device"}, "subjects"), ({"subjects": "device/x"}, "subjects"),
        ({"subjects": "planet/3"}, "subjects"), ({"subjects": "device/-1"}, "subjects"),
        ({"subjects": "series/1"}, "subjects"), ({"subjects": "series/1/" + "x" * 500}, "subjects"),
        ({"subjects": [f"device/{n}" for n in range(1, 70)]}, "subjects"), ({"metrics": ""}, "metrics"),
        ({"metrics": "charm"}, "metrics"), ({"since": "yesterday"}, "since"),
        ({"until": "-1h", "since": "now"}, "until"), ({"since": "-11y"}, "since"),
        ({"points": "0"}, "points"), ({"points": "2001"}, "points"),
        ({"points": "many"}, "points"), ({"stats": "median"}, "stats"), ({"subjects": "device/\0"}, "subjects"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_a_problem_with_the_field_named(client: Client, db: None, given: Any, field: str) -> None:
    from accounts.models import User

    client.force_login(User.objects.create_superuser("boss", password="x"))
    usual = {"subjects": "device/1", "metrics": "power_watts", "since": "-1h"}
    answer = client.get(reverse("api:telemetry"), {**usual, **given})
    assert answer.status_code == 400, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    assert set(answer.json()["errors"]) == {field}


def test_an_hour_of_everything_costs_few_questions_to_the_database(
    lab: Lab, django_assert_max_num_queries: Any
) -> None:
    refs = [f"slot/{slot.pk}" for slot in lab.slots] + [f"device/{device.pk}" for device in lab.devices]
    metrics = "rx_bytes_per_second,tx_bytes_per_second,temperature_celsius,power_watts"
    # Those to the store are counted, too, where readings are in the site's own database.
    with django_assert_max_num_queries(20 if settings.READINGS_DATABASE == "default" else 10):
        assert len(lines(ask(lab, subjects=refs, metrics=metrics))) == 24


# --- Tables ---------------------------------------------------------------------------------------------------------


def table(client: Client, name: str, lab: Lab, **given: Any) -> list[list[str]]:
    """Return the rows of a streamed CSV."""
    usual = {"since": lab.at(0).isoformat(), "until": lab.at(MINUTES * 60).isoformat()}
    answer = client.get(reverse(name), {**usual, **given})
    assert answer.status_code == 200, answer.content
    assert answer.streaming
    assert answer["Content-Disposition"].startswith("attachment")
    return list(csv.reader(io.StringIO(answer.getvalue().decode())))


def test_the_table_has_what_the_chart_shows_and_no_formula(lab: Lab) -> None:
    administrator = lab.clients["administrator"]
    subjects = [f"series/{lab.chassis.pk}/chassis/0/temperature_celsius", f"device/{lab.devices[0].pk}"]
    head, *rows = table(
        administrator, "api:telemetry_table", lab, subjects=subjects, metrics="temperature_celsius", points=12,
        stats="band",
    )  # fmt: skip
    assert head[0] == "time"
    assert head[1] == "'=Inlet, left, falcon: =Inlet, left (°C), mean"
    assert head[4] == "GPU 1, falcon, Drawer 1, Slot 1: Temperature (°C), mean"
    assert len(rows) == MINUTES
    assert rows[0] == [f"{lab.at(0):%Y-%m-%dT%H:%M:%SZ}", "21.5", "21.5", "21.5", "10.5", "10", "11"]


def test_totals_are_whole_and_rates_as_exact_as_they_are_kept(lab: Lab) -> None:
    port = lab.slots[0].port_id or 0
    entries = [
        entry("port", port, "errors", "Bad TLP count", "", "BadTLPCount"),
        entry("port", port, "rx_bytes_per_second", "Receive", "B/s"),
        entry("device", lab.devices[0].pk, "power_watts", "Power", "W"),
    ]
    begin = lab.ended + 60  # what the lab had before is over then
    record(
        lab.chassis.pk, entries, [begin + second for second in range(60)],
        lambda at: [12_345_678 + at - begin, 7_654_321 * (at - begin), 100.0625],
    )  # fmt: skip
    refs = [f"series/{lab.chassis.pk}/{one['key']}" for one in entries]
    span = {"since": lab.at(MINUTES * 60 + 65).isoformat(), "until": lab.at(MINUTES * 60 + 75).isoformat()}
    found = ask(lab, subjects=refs, points=10, **span).json()["series"]
    assert found[0]["mean"] == [12_345_683 + second for second in range(10)]
    assert found[1]["mean"] == [7_654_321] * 10
    assert found[2]["mean"] == [100.0625] * 10
    head, *rows = table(lab.clients["administrator"], "api:telemetry_table", lab, subjects=refs, points=10, **span)
    assert len(head) == 4
    assert rows[0][1:] == ["12345683", "7654321", "100.0625"]


def test_each_reading_of_a_range_is_a_row_of_the_raw_table(lab: Lab) -> None:
    administrator = lab.clients["administrator"]
    refs = f"drawer/{lab.drawers[0].pk}"
    head, *rows = table(administrator, "api:telemetry_raw", lab, subjects=refs, metrics="temperature_celsius")
    keys = [f"device/{device.pk}/temperature_celsius" for device in lab.devices[:2]]
    assert sorted(head[1:]) == sorted(f"Drawer 1, falcon: Temperature (°C), {key}" for key in keys)
    assert len(rows) == MINUTES * 60
    assert rows[31][0] == f"{lab.at(31):%Y-%m-%dT%H:%M:%S}.000Z"
    assert sorted(rows[31][1:]) == ["11", "21"]
    part = table(
        administrator, "api:telemetry_raw", lab, subjects=refs, metrics="temperature_celsius",
        since=lab.at(100).isoformat(), until=lab.at(110).isoformat(),
    )  # fmt: skip
    assert len(part) == 11


# --- Heat map and throughput ----------------------------------------------------------------------------------------


def test_a_heat_map_has_a_row_a_slot_with_the_highest_of_each_bucket(lab: Lab) -> None:
    given: dict[str, Any] = {"since": lab.at(0).isoformat(), "until": lab.at(MINUTES * 60).isoformat(), "points": 12}
    where = reverse("api:telemetry_heat_map")
    drawer = lab.drawers[0].pk
    found = lab.clients["administrator"].get(where, given | {"drawer_id": drawer}).json()
    assert [row["number"] for row in found["slots"]] == [1, 2]
    assert [row["high"] for row in found["slots"]] == [[11] * MINUTES, [21] * MINUTES]
    owned = lab.clients["owner"].get(where, given | {"drawer_id": drawer}).json()
    assert [row["slot_id"] for row in owned["slots"]] == [lab.slots[0].pk]
    assert lab.clients["stranger"].get(where, given | {"drawer_id": drawer}).status_code == 404
    page = lab.clients["administrator"].get(f"{reverse('history:heat_map')}?drawer={drawer}&day={lab.at(0):%Y-%m-%d}")
    text = page.content.decode()
    assert 'class="heat-0"' in text
    assert "highest 21.0 °C" in text
    assert "style=" not in text


def test_a_name_that_a_heat_map_has_no_room_for_is_told_whole(lab: Lab) -> None:
    slot = lab.slots[0]
    Slot.objects.filter(pk=slot.pk).update(number=0, name="PCIe <Slot> A at the rear")
    drawer = lab.drawers[0].pk
    page = lab.clients["administrator"].get(f"{reverse('history:heat_map')}?drawer={drawer}&day={lab.at(0):%Y-%m-%d}")
    assert "<title>PCIe &lt;Slot&gt; A at the rear</title>" in page.content.decode()


@pytest.mark.parametrize("day", ["yesterday", "2026-02-30", "1999-01-01", "\0"])
def test_what_is_no_day_is_refused(lab: Lab, day: str) -> None:
    answer = lab.clients["administrator"].get(
        reverse("history:heat_map"), {"drawer": str(lab.drawers[0].pk), "day": day}
    )
    assert answer.status_code == 400


def test_throughput_is_told_by_drawer_and_by_slot(lab: Lab) -> None:
    since, until = lab.at(0).isoformat(), lab.at(MINUTES * 60).isoformat()
    where = reverse("api:telemetry_throughput")
    given: dict[str, Any] = {"chassis_id": lab.chassis.pk, "since": since, "until": until, "sort": "tx_mean"}
    found = lab.clients["administrator"].get(where, given).json()
    assert [row["slot"] for row in found["slots"]] == ["Drawer 2, Slot 3", "Drawer 1, Slot 2", "Drawer 1, Slot 1"]
    assert [row["rx"]["mean"] for row in found["slots"]] == [3e6, 2e6, 1e6]
    first = next(row for row in found["drawers"] if row["drawer"] == "Drawer 1")
    assert (first["rx"]["mean"], first["tx"]["busiest"]) == (3e6, 6e6)
    assert first["tx"]["bytes"] == pytest.approx(6e6 * MINUTES * 60, rel=0.01)
    assert isinstance(first["tx"]["bytes"], int)
    assert first["tx"]["measured"] == pytest.approx(1.0, abs=0.01)
    mine = lab.clients["owner"].get(where, given).json()
    assert [row["slot"] for row in mine["slots"]] == ["Drawer 2, Slot 3", "Drawer 1, Slot 1"]
    assert next(row for row in mine["drawers"] if row["drawer"] == "Drawer 1")["rx"]["mean"] == 1e6


def test_bytes_are_those_of_the_time_that_was_read_however_long_the_range(lab: Lab) -> None:
    from telemetry.store.models import Gap

    where, until = reverse("api:telemetry_throughput"), lab.at(MINUTES * 60)
    Gap.objects.create(chassis=lab.chassis.pk, since=lab.began - 9e6, until=lab.began - 8e6, reason="Long ago.")
    for days in (1, 30, 365):
        since = until - timedelta(days=days)
        given = {"chassis_id": str(lab.chassis.pk), "since": since.isoformat(), "until": until.isoformat()}
        found = lab.clients["administrator"].get(where, given).json()
        first = next(row for row in found["drawers"] if row["drawer"] == "Drawer 1")
        assert first["tx"]["bytes"] == pytest.approx(6e6 * MINUTES * 60, rel=0.02), days
        assert first["tx"]["measured"] * days * 86400 == pytest.approx(MINUTES * 60, rel=0.02)
        assert first["rx"]["mean"] == pytest.approx(3e6)


def test_pages_of_throughput_sort_and_stream(lab: Lab) -> None:
    administrator = lab.clients["administrator"]
    page = administrator.get(reverse("history:throughput"), {"range": "1h", "sort": "rx_mean"}).content.decode()
    slots = page.partition("By slot")[2]
    assert slots.index("Slot 3") < slots.index("Slot 2") < slots.index("Slot 1")
    rows = list(
        csv.reader(
            io.StringIO(administrator.get(reverse("history:throughput_csv"), {"range": "1h"}).getvalue().decode())
        )
    )
    assert [row[2] for row in rows[3:]] == ["Drawer 1, Slot 1", "Drawer 1, Slot 2", "Drawer 2, Slot 3"]
    assert [row[4] for row in rows[3:]] == ["1000000", "2000000", "3000000"]
    assert all(row[6].isdecimal() for row in rows[3:]), "bytes are no whole numbers"
    assert administrator.get(reverse("history:throughput"), {"range": "2h"}).status_code == 400
    assert administrator.get(reverse("history:throughput"), {"sort": "luck"}).status_code == 400


def test_what_holds_nothing_measured_is_no_error(lab: Lab) -> None:
    """A drawer without slots, a slot without port, a chassis that never answered."""
    empty = Drawer.objects.create(chassis=lab.chassis, uri="/d9", name="Drawer 9", number=9)
    bare = Slot.objects.create(chassis=lab.chassis, uri="/s9", name="Slot 9", drawer=empty, number=9)
    alone = Port.objects.create(chassis=lab.chassis, uri="/p9", name="Port 9")
    refs = [f"drawer/{empty.pk}", f"slot/{bare.pk}", f"port/{alone.pk}"]
    found = ask(lab, subjects=refs, metrics="power_watts,rx_bytes_per_second").json()
    assert found["series"] == []
    assert len(found["left_out"]) == 6
    page = lab.clients["administrator"].get(reverse("history:heat_map"), {"drawer": empty.pk})
    assert page.status_code == 200
    assert math.isfinite(found["step"])


def test_answers_have_the_shapes_that_the_reference_tells(lab: Lab) -> None:
    """The encoders write bytes of their own: this holds them to what is declared."""
    administrator = lab.clients["administrator"]
    document = administrator.get(reverse("api:schema"), headers={"Accept": "application/vnd.oai.openapi+json"}).json()
    components = plain(document["components"])
    usual = {"since": lab.at(0).isoformat(), "until": lab.at(MINUTES * 60 + 60).isoformat()}
    asked: dict[str, dict[str, Any]] = {
        "telemetry": {"subjects": f"chassis/{lab.chassis.pk}", "metrics": "power_watts,fan_rpm", "stats": "band"},
        "telemetry_heat_map": {"drawer_id": lab.drawers[0].pk},
        "telemetry_throughput": {"chassis_id": lab.chassis.pk},
    }
    for name, given in asked.items():
        answer = administrator.get(reverse(f"api:{name}"), {**usual, **given})
        assert answer.status_code == 200
        found = document["paths"][reverse(f"api:{name}")]["get"]["responses"]["200"]["content"]["application/json"]
        valid(components, found["schema"], answer.json())
