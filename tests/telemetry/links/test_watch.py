"""The watch over links in a real poller, on a simulated chassis with its faults."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from fabric.inventory.models import Chassis, Device
from falconweb.testing.processes import SimulatorProcess
from telemetry.events.models import Event
from telemetry.links.models import CounterReset, LinkCount, LinkMinute, LinkSpan, LinkVerdict
from telemetry.links.selectors import stored_errors
from telemetry.links.services import links_judge
from tests.telemetry.links.conftest import codes_of, host_link, port_in, verdict_of
from tests.telemetry.polling.worker import polling
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def test_faults_are_told_each_by_its_reason_and_go_again(chassis: Chassis, simulator: SimulatorProcess) -> None:
    narrow, slow, bursting = (port_in(chassis, slot=slot) for slot in (1, 2, 3))
    upstream, free, calm = host_link(chassis, "H1"), port_in(chassis, slot=7), port_in(chassis, slot=4)
    assert Device.objects.get(slot__port=free).host_port is None
    simulator.set_speed(20)
    with polling():
        wait_for(lambda: LinkVerdict.objects.filter(tenant=None).count() >= 10)
        simulator.fault("link_downgrade", "drawer1slot1", lanes=4)
        simulator.fault("link_downgrade", "drawer1slot2", generation="Gen1")
        simulator.fault("error_burst", "drawer1slot3", counter="ReplayCount", rate=400)
        simulator.fault("error_burst", "H1", counter="FatalErrorCount", rate=1)
        wait_for(lambda: codes_of(narrow) >= {"width"})
        wait_for(lambda: codes_of(slow) >= {"speed"})
        wait_for(lambda: codes_of(bursting) >= {"sent"})
        wait_for(lambda: codes_of(upstream) >= {"fatal_now"})
        assert "width" not in codes_of(slow)
        assert [verdict_of(one).level for one in (free, calm)] == ["healthy", "healthy"]  # type: ignore[union-attr]
        verdict = verdict_of(free)
        assert verdict is not None
        assert verdict.reasons[0]["sentence"] == "Its device is attached to no host."
        simulator.clear_faults()
        wait_for(lambda: not codes_of(narrow) & {"width"})
    spans = list(LinkSpan.objects.filter(port=narrow).order_by("since", "pk"))
    assert {(one.status, one.width) for one in spans} >= {("LinkUp", 16), ("LinkUp", 4)}
    assert [one.until for one in spans[:-1]] == [one.since for one in spans[1:]]
    assert spans[-1].until is None
    events = Event.objects.filter(port_id=narrow.pk, source="site").order_by("pk")
    assert [one.message_id.rpartition(".")[2] for one in events][:2] == ["LinkWorse", "LinkBetter"]
    assert "x4" in events[0].text


def test_a_flapping_link_is_counted_and_what_an_operation_moves_is_not(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    flapping = port_in(chassis, slot=1)
    simulator.set_speed(20)
    with polling():
        wait_for(lambda: verdict_of(flapping))
        simulator.fault("link_flap", "drawer1slot1", period=1.2)
        wait_for(lambda: "flaps" in codes_of(flapping))
        found = verdict_of(flapping)
        assert found is not None
        assert found.flaps >= 2
        simulator.clear_faults()
        wait_for(lambda: LinkCount.objects.get(port=flapping).status == "LinkUp")
    # The same times, had an operation been at work: no flap.
    LinkSpan.objects.filter(port=flapping).update(asked=True)
    links_judge(chassis_id=chassis.pk)
    assert "flaps" not in codes_of(flapping)


def test_totals_go_on_over_a_reboot_of_the_bmc_and_the_death_of_the_worker(
    chassis: Chassis, simulator: SimulatorProcess
) -> None:
    port = port_in(chassis, slot=3)
    simulator.set_speed(1)
    simulator.fault("error_burst", "drawer1slot3", counter="BadDLLPCount", rate=50)

    def total() -> int:
        found = LinkCount.objects.filter(port=port).first()
        return int(found.totals.get("BadDLLPCount", 0)) if found else 0

    with polling():
        wait_for(lambda: total() > 100)
    simulator.clear_faults()
    before = LinkCount.objects.get(port=port)
    # Nobody looks for a while; then somebody else does.
    simulator.fault("error_burst", "drawer1slot3", counter="BadDLLPCount", rate=1000, seconds=0.5)
    wait_for(lambda: not simulator.ask_control("GET", "/faults"))
    with polling():
        wait_for(lambda: total() > before.totals["BadDLLPCount"] + 200)
        counted = total()
        simulator.fault("bmc_reboot", seconds=3, forgets_counters=True)
        wait_for(lambda: CounterReset.objects.filter(port=port).exists())
        simulator.fault("error_burst", "drawer1slot3", counter="BadDLLPCount", rate=100, seconds=1.0)
        wait_for(lambda: total() > counted)
    after = LinkCount.objects.get(port=port)
    assert after.raw["BadDLLPCount"] < after.totals["BadDLLPCount"]
    reset = CounterReset.objects.get(port=port)
    assert reset.how == CounterReset.How.REBOOT
    assert reset.counted["BadDLLPCount"] >= before.raw["BadDLLPCount"]
    assert reset.not_before is not None
    assert reset.not_before < reset.at
    assert after.reset_at == reset.at
    assert LinkMinute.objects.filter(port=port).exists()


def test_a_device_that_is_pulled_out_is_told_as_down(chassis: Chassis, simulator: SimulatorProcess) -> None:
    port = port_in(chassis, slot=5)
    assert Device.objects.get(slot__port=port).host_port is not None
    simulator.set_speed(20)
    with polling():
        wait_for(lambda: verdict_of(port))
        simulator.fault("surprise_removal", "drawer1slot5")
        wait_for(lambda: codes_of(port) == {"down"})
        found = verdict_of(port)
        assert found is not None
        assert "missing from its slot" in found.reasons[0]["sentence"]


def test_longer_ranges_are_drawn_from_the_store(chassis: Chassis, simulator: SimulatorProcess, boss: User) -> None:
    port = port_in(chassis, slot=3)
    simulator.set_speed(1)
    with polling():
        wait_for(lambda: verdict_of(port))
        since = timezone.now() - timedelta(days=7)
        simulator.fault("error_burst", "drawer1slot3", counter="BadDLLPCount", rate=50)
        names = ["BadDLLPCount", "FatalErrorCount", "NoSuchCount"]

        def newest() -> float:
            kept = stored_errors(boss, port, names, since=since, until=timezone.now())
            assert kept.keys() <= {"BadDLLPCount", "FatalErrorCount"}
            return sum(kept.get("BadDLLPCount", ()))

        wait_for(lambda: newest() > 50)
    client = Client()
    client.force_login(boss)
    page = client.get(f"/links/{port.pk}/?range=week").content.decode()
    assert 'aria-label="Bad DLLP count in the last 7 days"' in page
