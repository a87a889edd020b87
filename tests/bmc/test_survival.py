"""What real services have been seen to answer, one after the other: nothing of it ends a walk or invents a value."""

from __future__ import annotations

from typing import Any

import pytest

from fabric.bmc.discovery import Discovery, discover
from fabric.bmc.errors import Malformed, NotRedfish, ServerFault, Unreachable
from fabric.bmc.types import Dialect, Inventory, InventoryProblem, ProblemKind
from fabric.bmc.values import corrected_link_speed
from tests.bmc.nonsense import ROOT, Answering, Asked, NonsenseServer, Reply, chassis, collection, service_root

LIST = f"{ROOT}/Chassis"
SESSIONS = f"{ROOT}/SessionService/Sessions"
ONE, TWO = f"{LIST}/one", f"{LIST}/two"
EXPANDS = {"ExpandQuery": {"NoLinks": True, "Levels": True, "MaxLevels": 2}}


def tree(**routes: Answering) -> dict[str, Answering]:
    """Return a service with one collection of chassis; `routes` are paths below it."""
    return {
        ROOT: service_root(Chassis={"@odata.id": LIST}),
        SESSIONS: collection(SESSIONS, "Session"),
        LIST: collection(LIST, "Chassis", ONE, TWO),
        ONE: chassis(ONE),
        TWO: chassis(TWO),
        **routes,
    }


async def walk(server: NonsenseServer, **more: Any) -> Inventory:
    async with server.client(**more) as bmc:
        return await discover(bmc, everything=True)


def problem_of(inventory: Inventory, uri: str) -> InventoryProblem:
    """Return the one problem of a resource."""
    (found,) = [problem for problem in inventory.problems if problem.uri == uri]
    return found


@pytest.mark.parametrize("status", [400, 404, 500, 501])
async def test_an_expand_that_fails_is_followed_by_plain_requests(status: int) -> None:
    routes = tree()
    routes[ROOT] = service_root(Chassis={"@odata.id": LIST}, ProtocolFeaturesSupported=EXPANDS)
    routes[f"{LIST}?$expand=.($levels=1)"] = Reply(status, {"error": {"message": "no such option"}})
    with NonsenseServer(routes) as server:
        inventory = await walk(server)
    assert [each.uri for each in inventory.chassis] == [ONE, TWO]
    assert inventory.problems == ()
    assert sum("$expand" in path for path in server.paths()) == 1


async def test_an_expand_that_is_ignored_is_not_tried_again() -> None:
    routes = tree()
    routes[ROOT] = service_root(
        Chassis={"@odata.id": LIST}, Systems={"@odata.id": f"{ROOT}/Systems"}, ProtocolFeaturesSupported=EXPANDS
    )
    routes[f"{ROOT}/Systems"] = collection(f"{ROOT}/Systems", "ComputerSystem")
    routes[ONE] = chassis(ONE, Sensors={"@odata.id": f"{ONE}/Sensors"})
    routes[f"{ONE}/Sensors"] = collection(f"{ONE}/Sensors", "Sensor")
    with NonsenseServer(routes) as server:
        inventory = await walk(server)
    assert len(inventory.chassis) == 2
    assert f"{ONE}/Sensors" in server.paths()


async def test_an_expand_that_works_saves_the_members_requests() -> None:
    routes = tree()
    routes[ROOT] = service_root(Chassis={"@odata.id": LIST}, ProtocolFeaturesSupported=EXPANDS)
    routes[f"{LIST}?$expand=.($levels=1)"] = {
        **collection(LIST, "Chassis"), "Members": [chassis(ONE, SerialNumber="A"), chassis(TWO)],
    }  # fmt: skip
    with NonsenseServer(routes) as server:
        inventory = await walk(server)
    assert [each.serial_number for each in inventory.chassis] == ["A", ""]
    assert ONE not in server.paths()


async def test_expanded_members_that_all_claim_to_be_one_resource_are_read_one_by_one() -> None:
    routes = tree()
    routes[ROOT] = service_root(Chassis={"@odata.id": LIST}, ProtocolFeaturesSupported=EXPANDS)
    routes[f"{LIST}?$expand=.($levels=1)"] = {**collection(LIST, "Chassis"), "Members": [chassis(ONE), chassis(ONE)]}
    with NonsenseServer(routes) as server:
        inventory = await walk(server)
    assert [each.uri for each in inventory.chassis] == [ONE, TWO]


DEVICES = f"{ONE}/PCIeDevices"


def cut_short(name: str, uri: str) -> dict[str, object]:
    """Return a collection that counts one member and has none."""
    return {**collection(uri, name), "Members": [], "Members@odata.count": 1}


def with_functions(*, answer: Answering | None = None) -> dict[str, Answering]:
    """Return a service with a device whose function is below it, and the answer to $expand with three levels."""
    functions = f"{DEVICES}/gpu/PCIeFunctions"
    function = {
        "@odata.id": f"{functions}/0", "@odata.type": "#PCIeFunction.v1_5_0.PCIeFunction", "Id": "0",
        "VendorId": "0x10DE",
    }  # fmt: skip
    device = {
        "@odata.id": f"{DEVICES}/gpu", "@odata.type": "#PCIeDevice.v1_14_0.PCIeDevice", "Id": "gpu", "Name": "GPU",
        "PCIeFunctions": {"@odata.id": functions},
    }  # fmt: skip
    below = {**collection(functions, "PCIeFunction"), "Members": [function]}
    listed = collection(DEVICES, "PCIeDevice", f"{DEVICES}/gpu")
    offered = {"ExpandQuery": {"NoLinks": True, "Levels": True, "MaxLevels": 6}}
    return tree(**{
        ROOT: service_root(Chassis={"@odata.id": LIST}, ProtocolFeaturesSupported=offered),
        f"{LIST}?$expand=.($levels=1)": {
            **collection(LIST, "Chassis"), "Members": [chassis(ONE, PCIeDevices={"@odata.id": DEVICES}), chassis(TWO)]
        },
        DEVICES: listed, f"{DEVICES}/gpu": device, functions: below, f"{functions}/0": function,
        f"{DEVICES}?$expand=.($levels=1)": {**listed, "Members": [device]},
        f"{functions}?$expand=.($levels=1)": below,
        f"{DEVICES}?$expand=.($levels=3)": answer or {**listed, "Members": [{**device, "PCIeFunctions": below}]},
    })  # fmt: skip


async def test_one_answer_has_the_functions_of_devices_too_and_a_refresh_leaves_them_out() -> None:
    with NonsenseServer(with_functions()) as server:
        async with server.client() as bmc:
            discovery = Discovery(bmc)
            inventory = await discovery.walk()
            asked = server.paths()
            assert [one.vendor_id for one in (await discovery.refresh()).devices] == ["0x10DE"]
    assert [one.vendor_id for one in inventory.devices] == ["0x10DE"]
    assert not any("PCIeFunctions" in path for path in server.paths())
    assert f"{DEVICES}?$expand=.($levels=3)" in asked
    assert server.paths()[len(asked) :].count(f"{DEVICES}?$expand=.($levels=1)") == 1


async def test_functions_that_an_answer_leaves_out_are_read_by_themselves() -> None:
    answer = with_functions()[f"{DEVICES}?$expand=.($levels=3)"]
    assert isinstance(answer, dict)
    answer["Members"][0]["PCIeFunctions"] = cut_short("PCIeFunction", f"{DEVICES}/gpu/PCIeFunctions")
    with NonsenseServer(with_functions(answer=answer)) as server:
        inventory = await walk(server)
    assert [one.vendor_id for one in inventory.devices] == ["0x10DE"]


@pytest.mark.parametrize(
    "answer",
    [
        Reply(400, {}),
        Reply(500, {}),
        Reply(200, b"[]"),
        collection(DEVICES, "PCIeDevice", f"{DEVICES}/gpu"),
        cut_short("PCIeDevice", DEVICES),
        Reply(hang_up=True),
    ],
)
async def test_a_service_that_refuses_several_levels_is_asked_for_one(answer: Answering) -> None:
    with NonsenseServer(with_functions(answer=answer)) as server:
        inventory = await walk(server)
    assert [one.vendor_id for one in inventory.devices] == ["0x10DE"]
    assert inventory.problems == ()
    paths = server.paths()
    assert not any("levels=3" in path for path in paths[paths.index(f"{DEVICES}?$expand=.($levels=1)") :])
    assert f"{DEVICES}/gpu/PCIeFunctions?$expand=.($levels=1)" in server.paths()


async def test_no_expand_is_asked_for_where_none_is_offered() -> None:
    with NonsenseServer(tree()) as server:
        await walk(server)
    assert not any("$" in path for path in server.paths())


async def test_pages_are_followed_to_their_end() -> None:
    names = [f"{LIST}/c{number}" for number in range(25)]
    routes = tree(**{name: chassis(name) for name in names})
    for page in range(5):
        more = {"Members@odata.nextLink": f"{LIST}?$skip={5 * page + 5}"} if page < 4 else {}
        key = f"{LIST}?$skip={5 * page}" if page else LIST
        routes[key] = collection(LIST, "Chassis", *names[5 * page : 5 * page + 5], **more)
    with NonsenseServer(routes) as server:
        inventory = await walk(server)
    assert {each.uri for each in inventory.chassis} == set(names)
    assert [each.uri for each in inventory.chassis] == names, "numbers are ordered as numbers"


async def test_pages_that_lead_in_a_circle_end() -> None:
    routes = tree()
    routes[LIST] = collection(LIST, "Chassis", ONE, **{"Members@odata.nextLink": f"{LIST}?$skip=1"})
    routes[f"{LIST}?$skip=1"] = collection(LIST, "Chassis", TWO, **{"Members@odata.nextLink": f"{LIST}?$skip=1"})
    with NonsenseServer(routes) as server:
        inventory = await walk(server)
    assert [each.uri for each in inventory.chassis] == [ONE, TWO]
    assert len(server.asked) == 6


async def test_a_500_that_carries_properties_gives_both_resource_and_problem() -> None:
    body = {**chassis(ONE, Model="Falcon"), "error": {"message": "a sensor did not answer"}}
    with NonsenseServer(tree(**{ONE: Reply(500, body)})) as server:
        inventory = await walk(server)
    assert [each.model for each in inventory.chassis] == ["Falcon", ""]
    problem = problem_of(inventory, ONE)
    assert (problem.kind, problem.status) == (ProblemKind.SERVER_ERROR, 500)
    assert "a sensor did not answer" in problem.sentence


async def test_182_dead_links_are_182_problems_and_no_more() -> None:
    dead = [f"{LIST}/dead{number}" for number in range(182)]
    with NonsenseServer(tree(**{LIST: collection(LIST, "Chassis", ONE, *dead, TWO)})) as server:
        inventory = await walk(server)
    assert [each.uri for each in inventory.chassis] == [ONE, TWO]
    assert [problem.uri for problem in inventory.problems] == dead
    assert {(problem.kind, problem.status, problem.referrer) for problem in inventory.problems} == {
        (ProblemKind.DEAD_LINK, 404, LIST)
    }


@pytest.mark.parametrize("status", [401, 403])
async def test_a_resource_that_is_refused_is_a_problem(status: int) -> None:
    with NonsenseServer(tree(**{ONE: Reply(status, {})})) as server:
        inventory = await walk(server)
    assert [each.uri for each in inventory.chassis] == [TWO]
    assert problem_of(inventory, ONE).kind is ProblemKind.REFUSED


@pytest.mark.parametrize(
    "body", [b"<html>busy</html>", b"[1, 2]", b'"text"', b"\xff\xfe", b'{"Id": ', b"[" * 100_000], ids=str.__call__
)
async def test_a_resource_that_is_no_json_object_is_a_problem(body: bytes) -> None:
    with NonsenseServer(tree(**{ONE: Reply(200, body)})) as server:
        inventory = await walk(server)
    assert [each.uri for each in inventory.chassis] == [TWO]
    assert problem_of(inventory, ONE).kind is ProblemKind.MALFORMED


@pytest.mark.parametrize("given", [7, 7.5, "7"])
async def test_an_id_that_is_a_number_is_kept_as_it_is(given: float | str) -> None:
    with NonsenseServer(tree(**{ONE: chassis(ONE, Id=given)})) as server:
        inventory = await walk(server)
    assert inventory.chassis[0].id == given
    assert type(inventory.chassis[0].id) is type(given)


async def test_a_wrong_odata_id_of_a_collection_and_of_members_changes_nothing() -> None:
    routes = tree(**{ONE: chassis(TWO, Id="one"), TWO: chassis(TWO, Id="two")})
    routes[LIST] = {**collection(LIST, "Chassis", ONE, TWO), "@odata.id": f"{ROOT}/Managers"}
    with NonsenseServer(routes) as server:
        inventory = await walk(server)
    assert [(each.uri, each.id) for each in inventory.chassis] == [(ONE, "one"), (TWO, "two")]
    assert problem_of(inventory, f"{ROOT}/Managers").kind is ProblemKind.DEAD_LINK


@pytest.mark.parametrize("kind", ["# Chassis.v1_0_0.Chassis", "#Chassis.v1 0 0.Chassis", "Chassis", "", None, 5, ["x"]])
async def test_a_corrupted_type_is_made_good_by_collection_or_place(kind: Any) -> None:
    with NonsenseServer(tree(**{ONE: {**chassis(ONE), "@odata.type": kind}})) as server:
        assert [each.uri for each in (await walk(server)).chassis] == [ONE, TWO]
    routes = tree(**{ONE: {**chassis(ONE), "@odata.type": kind}})
    routes[LIST] = {**collection(LIST, "Chassis", ONE, TWO), "@odata.type": kind}
    with NonsenseServer(routes) as server:
        assert [each.uri for each in (await walk(server)).chassis] == [ONE, TWO]


async def test_a_well_formed_type_counts_more_than_the_place() -> None:
    device = {**chassis(ONE), "@odata.type": "#PCIeDevice.v1_21_0.PCIeDevice"}
    with NonsenseServer(tree(**{ONE: device})) as server:
        inventory = await walk(server)
    assert [each.uri for each in inventory.devices] == [ONE]
    assert [each.uri for each in inventory.chassis] == [TWO]


async def test_chassis_that_all_have_one_name_are_told_apart_by_uri() -> None:
    routes = tree(**{ONE: chassis(ONE, Name="Chassis Collection"), TWO: chassis(TWO, Name="Chassis Collection")})
    with NonsenseServer(routes) as server:
        inventory = await walk(server)
    assert [(each.uri, each.name) for each in inventory.chassis] == [
        (ONE, "Chassis Collection"), (TWO, "Chassis Collection"),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [None, "n/a", True, [], {}])
async def test_readings_and_thresholds_that_are_no_numbers_are_none_and_never_zero(value: Any) -> None:
    sensor = f"{ONE}/Sensors/t"
    routes = tree(
        **{
            ONE: chassis(ONE, Sensors={"@odata.id": f"{ONE}/Sensors"}, Thermal={"@odata.id": f"{ONE}/Thermal"}),
            f"{ONE}/Sensors": collection(f"{ONE}/Sensors", "Sensor", sensor),
            sensor: {
                "@odata.id": sensor, "@odata.type": "#Sensor.v1_12_0.Sensor", "Id": "t", "Name": "t", "Reading": value,
                "Thresholds": {"UpperCritical": {"Reading": value}, "UpperCaution": value},
            },
            f"{ONE}/Thermal": {
                "@odata.id": f"{ONE}/Thermal", "@odata.type": "#Thermal.v1_7_3.Thermal", "Id": "Thermal", "Name": "x",
                "Temperatures": [{"Name": "old", "ReadingCelsius": value, "UpperThresholdCritical": value}],
                "Fans": [{"FanName": "fan", "Reading": value}],
            },
        }
    )  # fmt: skip
    with NonsenseServer(routes) as server:
        inventory = await walk(server)
    assert [(each.reading, each.thresholds.upper_critical) for each in inventory.sensors] == [(None, None)] * 2
    assert [(each.name, each.speed_rpm) for each in inventory.fans] == [("fan", None)]


def test_speeds_divided_by_two_to_the_thirty_are_put_right() -> None:
    divided = 256e9 / 2**30
    assert corrected_link_speed(divided, (16, 16)) == 256.0
    assert corrected_link_speed(256.0, (16, 16)) == 256.0
    assert corrected_link_speed(8e9 * 4 / 2**30, (4, 16)) == 32.0
    assert corrected_link_speed(100.0, (16,)) == 100.0, "a speed that no PCIe link has stays as it was given"
    assert corrected_link_speed(None, (16,)) is None


@pytest.mark.parametrize("status", [200, 201, 204])
async def test_a_session_may_be_answered_with_any_success(status: int) -> None:
    def one(asked: Asked) -> Any:
        return chassis(ONE) if asked.headers.get("X-Auth-Token") == "t0ken" else Reply(401)

    created = Reply(status, b"", {"X-Auth-Token": "t0ken", "Location": f"{SESSIONS}/9"})
    routes = tree(**{ONE: one, f"POST {SESSIONS}": created, f"DELETE {SESSIONS}/9": Reply(204, b"")})
    with NonsenseServer(routes) as server:
        inventory = await walk(server, username="u", password="p")
    assert [each.uri for each in inventory.chassis] == [ONE, TWO]
    assert server.paths("DELETE") == [f"{SESSIONS}/9"]


async def test_members_that_are_no_list_are_a_problem() -> None:
    with NonsenseServer(tree(**{LIST: {**collection(LIST, "Chassis"), "Members": {"@odata.id": ONE}}})) as server:
        inventory = await walk(server)
    assert problem_of(inventory, LIST).kind is ProblemKind.MALFORMED
    assert [each.uri for each in inventory.chassis] == [ONE]


async def test_links_that_lead_elsewhere_are_problems_and_are_not_followed() -> None:
    with NonsenseServer({}) as stranger:
        links = {"A": f"{stranger.url}/redfish/v1/Chassis/x", "B": "//127.0.0.2/redfish/v1", "C": "Sensors/1", "D": 5,
                 "E": "/etc/passwd", "F": "http://[broken"}  # fmt: skip
        one = chassis(ONE, Oem={name: {"@odata.id": target} for name, target in links.items()})
        with NonsenseServer(tree(**{ONE: one})) as server:
            inventory = await walk(server, username="u", password="p")
        assert stranger.asked == []
    assert len(inventory.problems) == len(links)
    kinds = [problem.kind for problem in inventory.problems]
    assert kinds.count(ProblemKind.FOREIGN_LINK) == 2
    assert kinds.count(ProblemKind.MALFORMED) == 4
    assert "/etc/passwd" not in server.paths()


async def test_an_absolute_link_to_the_service_itself_is_followed() -> None:
    routes = tree()
    with NonsenseServer(routes) as server:
        server.routes[LIST] = collection(LIST, "Chassis", server.url + ONE, TWO + "/")
        inventory = await walk(server)
    assert [each.uri for each in inventory.chassis] == [ONE, TWO]


async def test_a_resource_that_hangs_up_is_a_problem_of_its_own() -> None:
    with NonsenseServer(tree(**{ONE: Reply(hang_up=True)})) as server:
        inventory = await walk(server)
    assert [each.uri for each in inventory.chassis] == [TWO]
    assert problem_of(inventory, ONE).kind is ProblemKind.UNREACHABLE


async def test_a_service_that_goes_away_during_the_walk_gives_no_half_inventory() -> None:
    names = [f"{LIST}/c{number}" for number in range(40)]
    routes = tree(**{LIST: collection(LIST, "Chassis", *names)}, **{name: Reply(hang_up=True) for name in names})
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            with pytest.raises(Unreachable):
                await discover(bmc)


@pytest.mark.parametrize(
    "root",
    [{}, {"hello": "world"}, b"<html></html>", [], Reply(404), Reply(403), Reply(302, {}, {"Location": "/login"})],
    ids=repr,
)
async def test_what_is_no_redfish_service_is_said_to_be_none(root: Any) -> None:
    answer = root if isinstance(root, dict | list | Reply) else Reply(200, root)
    with NonsenseServer({ROOT: answer}) as server:
        async with server.client(username="u", password="p") as bmc:
            with pytest.raises(NotRedfish) as refusal:
                await discover(bmc)
    assert "127.0.0.1" in refusal.value.sentence
    assert not server.paths("POST"), "no credentials for a stranger"


async def test_a_root_that_answers_500_is_a_fault_and_not_another_service() -> None:
    with NonsenseServer({ROOT: Reply(503, {"error": {"message": "starting"}})}) as server:
        async with server.client() as bmc:
            with pytest.raises(ServerFault, match="starting"):
                await discover(bmc)


async def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric.bmc.transport.LARGE_RESPONSE_BYTES", 50_000)
    monkeypatch.setattr("fabric.bmc.transport.MAX_RESPONSE_BYTES", 100_000)
    routes = tree(**{ONE: chassis(ONE, Description="x" * 200_000)})
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            with pytest.raises(Malformed, match="larger than"):
                await bmc.get(ONE)
            inventory = await discover(bmc)
    assert problem_of(inventory, ONE).kind is ProblemKind.MALFORMED
    assert [each.uri for each in inventory.chassis] == [TWO]


async def test_a_service_without_any_way_to_compose_is_monitored_only() -> None:
    with NonsenseServer(tree()) as server:
        assert (await walk(server)).dialect is Dialect.NONE


async def test_slots_of_the_deprecated_kind_are_read_where_no_device_describes_its_own() -> None:
    device = f"{ONE}/PCIeDevices/1"
    routes = tree(
        **{
            ONE: chassis(ONE, PCIeSlots={"@odata.id": f"{ONE}/PCIeSlots"}),
            device: {"@odata.id": device, "@odata.type": "#PCIeDevice.v1_4_0.PCIeDevice", "Id": "1", "Name": "NIC"},
            f"{ONE}/PCIeSlots": {
                "@odata.id": f"{ONE}/PCIeSlots", "@odata.type": "#PCIeSlots.v1_6_0.PCIeSlots", "Id": "x", "Name": "x",
                "Slots": [
                    {"PCIeType": "Gen4", "Lanes": 16, "Links": {"PCIeDevice": [{"@odata.id": device}]},
                     "Location": {"PartLocation": {"ServiceLabel": "Slot 4"}}},
                    {"PCIeType": "Gen3", "Lanes": 8, "Links": {"PCIeDevice": []}},
                ],
            },
        }
    )  # fmt: skip
    with NonsenseServer(routes) as server:
        inventory = await walk(server)
    assert [(slot.number, slot.lanes, slot.occupied, slot.device_uri) for slot in inventory.slots] == [
        (4, 16, True, device), (2, 8, False, ""),
    ]  # fmt: skip
    assert inventory.devices[0].slot_uri == f"{ONE}/PCIeSlots#/Slots/0"


async def test_a_refresh_keeps_what_cannot_be_read_for_now_and_drops_what_is_gone() -> None:
    with NonsenseServer(tree()) as server:
        async with server.client() as bmc:
            discovery = Discovery(bmc)
            assert [each.uri for each in (await discovery.walk()).chassis] == [ONE, TWO]
            for failing in (ONE, LIST):
                whole = server.routes[failing]
                server.routes[failing] = Reply(500)
                inventory = await discovery.refresh()
                assert [each.uri for each in inventory.chassis] == [ONE, TWO]
                assert problem_of(inventory, failing).kind is ProblemKind.SERVER_ERROR
                server.routes[failing] = whole
                inventory = await discovery.refresh()
                assert inventory.problems == ()
            three = f"{LIST}/three"
            server.routes[three] = chassis(three)
            server.routes[LIST] = collection(LIST, "Chassis", TWO, three)
            assert [each.uri for each in (await discovery.refresh()).chassis] == [three, TWO]


async def test_a_refresh_follows_pages_too() -> None:
    three = f"{LIST}/three"
    routes = tree(**{three: chassis(three)})
    routes[LIST] = collection(LIST, "Chassis", ONE, **{"Members@odata.nextLink": f"{LIST}?$skip=1"})
    routes[f"{LIST}?$skip=1"] = collection(LIST, "Chassis", TWO)
    with NonsenseServer(routes) as server:
        async with server.client() as bmc:
            discovery = Discovery(bmc)
            await discovery.walk()
            server.routes[f"{LIST}?$skip=1"] = collection(LIST, "Chassis", three)
            inventory = await discovery.refresh()
            assert [each.uri for each in inventory.chassis] == [ONE, three]
            assert inventory.problems == ()


async def test_a_refresh_that_gets_the_same_answers_gives_the_same_inventory() -> None:
    with NonsenseServer(tree()) as server:
        async with server.client() as bmc:
            discovery = Discovery(bmc)
            await discovery.walk()
            first = await discovery.refresh()
            assert await discovery.refresh() is first
            server.routes[ONE] = chassis(ONE, SerialNumber="other")
            assert (await discovery.refresh()).chassis[0].serial_number == "other"
            # A resource that fails for now is asked for each time.
            server.routes[TWO] = Reply(500)
            failing = await discovery.refresh()
            assert problem_of(failing, TWO).kind is ProblemKind.SERVER_ERROR
            server.routes[TWO] = chassis(TWO)
            assert (await discovery.refresh()).problems == ()
