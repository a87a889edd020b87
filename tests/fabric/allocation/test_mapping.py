"""Files onto hardware: what is the same, what something else stands in for, what does not fit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.allocation.document import export_document
from fabric.allocation.mapping import map_document
from fabric.allocation.matching import IMPOSSIBLE, cheapest_assignment
from fabric.allocation.rules import AllocationReport, MappingMode, SiteHardware
from fabric.bmc.types import DrawerMode
from fabric.operations.rules import PortSetting
from fabric.plans.rules import DesiredState
from tests.fabric.allocation.files import NODES, chassis, device, document, drawer, file, site

LAB = site(
    drawer(1, 1, device(1, 1, attached=10), device(2, 2, attached=11), device(3, 3), device(4, 5, model="V100")),
    drawer(2, 2, device(5, 1, kind="nic", model="X5"), device(6, 2, model="V100"), first=4),
)


def fits(report: AllocationReport) -> list[tuple[int, str]]:
    """Return line and fit of what the file says in slots."""
    return [(line.place.line, line.fit) for line in report.lines if line.place.line > 4]


def only_misfit(report: AllocationReport) -> str:
    [line] = report.misfits
    return line.sentence


def test_an_export_is_the_same_on_the_hardware_that_it_is_of() -> None:
    written = export_document(LAB)
    for format_ in ("json", "yaml"):
        report = map_document(document(written.text(format_)), LAB)
        assert report.is_empty
        assert {line.fit for line in report.lines} == {"exact"}
        assert not report.changes
        assert not report.notes


@pytest.mark.parametrize("by", ["exact", "serial", "slot", "kind"])
def test_an_export_leads_back_from_any_other_state(by: MappingMode) -> None:
    written = document(export_document(LAB).text("json"))
    first, second = LAB.chassis[0].drawers
    moved = replace(
        first,
        mode="StandardTwoHosts",
        devices=tuple(replace(one, attached=12 if one.attached is None else None) for one in first.devices),
        ports=(replace(first.ports[0], host=NODES["b"]), *first.ports[1:]),
        settings={**first.settings, 1001: PortSetting(port_type="DownstreamPort", configured_width=4)},
    )
    report = map_document(written, replace(LAB, chassis=(replace(LAB.chassis[0], drawers=(moved, second)),)), by=by)
    assert not report.misfits
    assert report.desired == DesiredState(
        attachments={1: 10, 2: 11, 3: None, 4: None},
        modes={1: DrawerMode.ADVANCED},
        cables={10: 900},
        settings={1001: PortSetting(configured_width=16)},
    )


def test_what_a_file_does_not_say_stays_as_it_is() -> None:
    report = map_document(document(file("slot: 1", "slot: 3, attached_to: H2", drawer="number: 1, mode: Unknown")), LAB)
    assert report.desired == DesiredState(attachments={3: 11})
    assert fits(report) == [(5, "exact"), (6, "exact")]


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        ("slot: 9", "no such slot with a device"),
        ("slot: 1, device: {serial_number: S9}", "another serial number: 'S1'"),
        ("slot: 5, device: {kind: gpu, model: A100}", "another model: 'V100'"),
        ("slot: 1, device: {kind: nvme}", "another kind: 'gpu'"),
        ("slot: 1, attached_to: H4", "no host port that matches 'H4'"),
        ("slot: 1, lanes: 3", "with 1, 2, 4, 8, 16 lanes, not with 3"),
        ("slot: 1, port_type: ManagementPort", "not as 'ManagementPort'"),
        ("slot: null, device: {name: GPU 1, serial_number: S1}", "no such slot with a device"),
    ],
)
def test_what_is_not_the_same_does_not_fit_and_says_why(slot: str, words: str) -> None:
    report = map_document(document(file("slot: 2, attached_to: null", slot)), LAB)
    assert words in only_misfit(report)
    assert report.misfits[0].place.line == 6
    assert report.misfits[0].place.path == "chassis[0].drawers[0].slots[1]"
    # What fits is wanted all the same, for those who leave the rest out.
    assert report.desired == DesiredState(attachments={2: None})


def test_unknown_chassis_drawers_and_host_ports_do_not_fit() -> None:
    told = map_document(document(file("slot: 1", chassis="name: other, uuid: u-9")), LAB)
    assert [line.fit for line in told.lines] == ["does_not_fit", "does_not_fit"]
    told = map_document(document(file("slot: 1", drawer="number: 7")), LAB)
    assert [line.fit for line in told.lines] == ["exact", "does_not_fit", "does_not_fit"]
    told = map_document(document(file("slot: 1", ports="{label: H9}")), LAB)
    assert only_misfit(told) == "There is no such host port here, or you may not see it."


def test_by_serial_a_device_is_found_where_it_is_now_and_its_host_port_by_the_host() -> None:
    ports = "{label: H1, host: {name: a, identity: uuid-of-a}}, {label: H3, host: {name: c}}"
    raw = file(
        "slot: 1, device: {serial_number: S6}, attached_to: H1",  # it is in drawer 2 now, whose H4 leads to a
        "slot: 2, device: {serial_number: S3}, attached_to: H3",
        "slot: 3, device: {serial_number: S9}",
        "slot: 5, device: {serial_number: S5}, attached_to: H2",  # the file does not tell which host that is
        ports=ports,
    )
    assert len(map_document(document(raw), LAB).misfits) == 4
    report = map_document(document(raw), LAB, by="serial")
    assert fits(report) == [(5, "mapped"), (6, "mapped"), (7, "does_not_fit"), (8, "does_not_fit")]
    assert report.desired.attachments == {6: 20, 3: 12}
    assert [line.sentence for line in report.misfits] == [
        "No device here has its serial number, or you may not see it.",
        "falcon-1 Drawer 2 has no host port that matches 'H2', or you may not see it.",
    ]


def test_by_serial_two_devices_that_changed_places_are_each_found() -> None:
    raw = file(
        "slot: 1, device: {serial_number: S2}, attached_to: H3",
        "slot: 2, device: {serial_number: S1}, attached_to: null",
    )
    assert map_document(document(raw), LAB, by="serial").desired.attachments == {2: 12, 1: None}


def test_by_serial_devices_of_a_chassis_that_is_gone_are_found_in_others() -> None:
    raw = file("slot: 1, device: {serial_number: S3}, attached_to: null", chassis="name: gone, uuid: u-9")
    report = map_document(document(raw), LAB, by="serial")
    assert [line.fit for line in report.lines] == ["mapped", "mapped"]


def test_by_serial_one_that_several_have_is_nobodys() -> None:
    twins = site(drawer(1, 1, device(1, 1, serial_number="0", has_unique_serial=False),
                        device(2, 2, serial_number="0", has_unique_serial=False)))  # fmt: skip
    raw = file("slot: 7, device: {serial_number: '0'}")
    assert (
        only_misfit(map_document(document(raw), twins, by="serial")) == "Several devices here have its serial number."
    )
    # An export leaves such numbers out, so that it can be read again.
    report = map_document(document(export_document(twins).text("json")), twins)
    assert {line.fit for line in report.lines} == {"exact"}


def test_one_device_is_not_asked_for_by_two_entries() -> None:
    raw = file("slot: 3, attached_to: H1", "slot: 9, device: {serial_number: S3}, attached_to: H2")
    assert "already listed in line 5 (chassis[0].drawers[0].slots[0])" in only_misfit(
        map_document(document(raw), LAB, by="serial")
    )


def test_by_slot_another_device_in_the_same_slot_stands_for_it() -> None:
    raw = file("slot: 3, device: {serial_number: S9, kind: nvme}, attached_to: H2", "slot: 9, device: {kind: gpu}")
    report = map_document(document(raw), LAB, by="slot")
    assert fits(report) == [(5, "mapped"), (6, "does_not_fit")]
    assert report.desired.attachments == {3: 11}
    assert "another kind" in report.notes[0].note


def test_a_file_of_another_lab_is_put_onto_chassis_in_their_place() -> None:
    there = chassis(7, drawer(3, 1, device(31, 1, attached=30), device(32, 2)), name="rack-7", serial_number="C-7")
    away = document(export_document(replace(LAB, chassis=(there,))).text("yaml"))
    assert {line.fit for line in map_document(away, LAB).lines} == {"does_not_fit"}
    report = map_document(away, LAB, by="slot")
    assert not report.misfits
    assert {line.fit for line in report.lines} == {"mapped"}
    assert report.desired == DesiredState(attachments={2: None})


def test_of_two_chassis_in_its_place_the_one_of_the_same_model_is_taken_or_the_chosen_one() -> None:
    lab = replace(
        LAB,
        chassis=(
            chassis(2, drawer(3, 1, device(31, 1)), model="other"), chassis(3, drawer(4, 1, device(41, 1))),
            chassis(4, drawer(5, 1, device(51, 1))),
        ),
    )  # fmt: skip
    raw = document(file("slot: 1, attached_to: H1", chassis="name: x, uuid: u-9, model: '4016'"))
    assert map_document(raw, lab, by="slot").desired.attachments == {41: 40}
    assert map_document(raw, lab, by="slot", onto=4).desired.attachments == {51: 50}
    assert map_document(raw, lab, by="slot", onto=2).desired.attachments == {31: 30}


def test_another_chassis_of_the_same_name_is_not_taken_for_the_same() -> None:
    report = map_document(document(file("slot: 1", chassis="name: falcon-1, uuid: u-9")), LAB)
    assert report.lines[0].fit == "mapped"
    assert "of another chassis" in only_misfit(report)


def test_a_chassis_that_was_renamed_is_the_same() -> None:
    report = map_document(document(file("slot: 1", chassis="name: old, uuid: U-1")), LAB)
    assert report.lines[0].fit == "exact"
    assert report.lines[0].sentence == "It was matched by its UUID, and is named falcon-1 here."


def test_by_kind_every_entry_that_can_be_served_is_served() -> None:
    """The nearest for the first would leave none for the second: only slot 3 may serve H1 in this mode."""
    lab = site(drawer(1, 1, device(1, 3), device(2, 7), mode="StandardTwoHosts"))
    raw = file(
        "slot: 4, device: {kind: gpu}, attached_to: null",
        "slot: 1, device: {kind: gpu}, attached_to: H1",
        "slot: 8, device: {kind: nvme}, attached_to: H2",
    )
    report = map_document(document(raw), lab, by="kind")
    assert fits(report) == [(5, "mapped"), (6, "mapped"), (7, "does_not_fit")]
    assert report.desired.attachments == {1: 10}
    assert "No device of kind nvme here fits" in only_misfit(report)


def test_by_kind_the_same_model_comes_before_the_nearest_slot_and_attached_ones_before_free_ones() -> None:
    raw = file("slot: 1, device: {kind: gpu, model: V100, serial_number: X}, attached_to: H1")
    assert map_document(document(raw), LAB, by="kind").desired.attachments == {4: 10}
    few = site(drawer(1, 1, device(1, 1)))
    raw = file(
        "slot: 1, device: {kind: gpu, serial_number: X}, attached_to: null",
        "slot: 8, device: {kind: gpu, serial_number: Y}, attached_to: H1",
    )
    report = map_document(document(raw), few, by="kind")
    assert fits(report) == [(5, "does_not_fit"), (6, "mapped")]
    assert only_misfit(report) == "There are too few devices of kind gpu here."


def test_by_kind_a_device_of_another_drawer_stands_in_where_its_drawer_has_none_left() -> None:
    raw = file(
        *(f"slot: {slot}, device: {{kind: gpu, serial_number: X{slot}}}, attached_to: H1" for slot in range(1, 6)),
        ports="{label: H1, host: {name: a}}",
    )
    report = map_document(document(raw), LAB, by="kind")
    assert not report.misfits
    assert report.desired.attachments == {2: 10, 3: 10, 4: 10, 6: 20}


def test_a_mode_is_wanted_from_those_who_may_change_it_and_else_told() -> None:
    raw = document(file("slot: 1", drawer="number: 1, mode: StandardOneHost"))
    report = map_document(raw, LAB)
    assert report.desired == DesiredState(modes={1: DrawerMode.STANDARD_ONE_HOST})
    assert [line.change for line in report.changes] == ["Change its mode from Advanced to StandardOneHost."]
    first = replace(LAB.chassis[0].drawers[0], may_change_mode=False)
    report = map_document(raw, replace(LAB, chassis=(replace(LAB.chassis[0], drawers=(first,)),)))
    assert report.is_empty
    assert report.notes[0].note.startswith("Its mode stays Advanced, where the file says StandardOneHost")
    assert not report.misfits


@pytest.mark.parametrize(
    ("ports", "may", "cables", "note"),
    [
        ("{label: H1, host: {name: b, identity: UUID-OF-B}}", True, {10: 901}, ""),
        ("{label: H1, host: {name: b}}", True, {10: 901}, ""),
        ("{label: H1, host: null}", True, {10: None}, ""),
        ("{label: H1}", True, {}, ""),
        ("{label: H1, host: {name: z, identity: uuid-of-z}}", True, {}, "where the file says 'z': it stays"),
        ("{label: H1, host: {name: b}}", False, {}, "not yours to move"),
    ],
)
def test_cables(ports: str, may: bool, cables: dict[int, int | None], note: str) -> None:
    report = map_document(document(file("slot: 1", ports=ports)), replace(LAB, may_move_cables=may))
    assert report.desired == DesiredState(cables=cables)
    assert note in "".join(line.note for line in report.notes)
    assert bool(report.notes) == bool(note)


def test_cables_of_other_hardware_are_left_alone() -> None:
    raw = file("slot: 1", chassis="name: x, uuid: u-9", ports="{label: H1, host: {name: b}}")
    report = map_document(document(raw), LAB, by="slot")
    assert report.desired.cables == {}


AWAY = "name: x, uuid: u-9"  # another chassis than falcon-1, which is put in its place


def stand_ins(
    ports: str, *slots: str, chassis: str = AWAY, by: MappingMode = "slot"
) -> tuple[dict[int, int | None], list[str]]:
    """Return where devices go that ask for a file's host ports, and what does not fit. Here H1 to H3 lead to a to c."""
    bare = site(drawer(1, 1, *(device(pk, pk) for pk in range(1, 5))))
    report = map_document(document(file(*slots, chassis=chassis, ports=ports)), bare, by=by)
    return dict(report.desired.attachments), [f"{line.what}: {line.sentence}" for line in report.misfits]


@pytest.mark.parametrize("by", ["slot", "kind"])
def test_devices_of_two_hosts_of_a_file_stay_with_two_hosts(by: MappingMode) -> None:
    """The cables cross: host b is at H2 in the file and at H1 of the other lab, c at H3 and at H2."""
    crossed = replace(LAB.chassis[0].drawers[0], devices=(device(1, 1), device(2, 2)))
    b, c = (replace(port, host=NODES[name]) for port, name in zip(crossed.ports, "bc", strict=False))
    lab = replace(LAB, chassis=(chassis(1, replace(crossed, ports=(b, c))),))
    ports = "{label: H2, host: {name: b, identity: uuid-of-b}}, {label: H3, host: {name: c, identity: uuid-of-c}}"
    raw = file(
        "slot: 1, device: {kind: gpu}, attached_to: H2", "slot: 2, device: {kind: gpu}, attached_to: H3",
        chassis=AWAY, ports=ports,
    )  # fmt: skip
    report = map_document(document(raw), lab, by=by)
    assert report.desired.attachments == {1: b.id, 2: c.id}
    told = {line.what: (line.fit, line.sentence) for line in report.lines if "host port" in line.what}
    assert told == {
        "x drawer 1 host port H2": ("mapped", "Mapped to falcon-1 H1."),
        "x drawer 1 host port H3": ("mapped", "Mapped to falcon-1 H2."),
    }


def test_one_host_port_stands_for_no_two_of_a_file() -> None:
    """H1 of the file is c's, which is at H3 here: H3 of the file, of a host that is not here, has no other."""
    there, misfits = stand_ins(
        "{label: H1, host: {name: c}}, {label: H3, host: {name: z}}",
        "slot: 1, attached_to: H1", "slot: 2, attached_to: H3",
    )  # fmt: skip
    assert there == {1: 12}
    assert misfits == [
        "x drawer 1 host port H3: H3 here is mapped to 'H1' of the file already.",
        "x drawer 1 slot 2: falcon-1 Drawer 1 has no host port that matches 'H3', or you may not see it.",
    ]


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ("{label: H1, host: {name: y}}, {label: H2, host: {name: z}}", {1: 10, 2: 11}),  # hosts of another lab
        ("{label: H1}, {label: H2, host: null}", {1: 10, 2: 11}),  # no host is told
        ("{label: H1, host: {name: b}}, {label: H2, host: {name: b}}", {1: 10, 2: 11}),  # the same label comes first
        ("{label: H1, host: {name: b}}, {label: H2, host: {name: a}}", {1: 11, 2: 10}),
        ("{label: H1, host: {name: b, identity: other}}, {label: H2}", {1: 10, 2: 11}),  # another host of the name
        ("{label: H1, host: {name: b}}, {label: H2}", {1: 11}),  # what the host needs, no label takes
        ("", {1: 10, 2: 11}),
    ],
)
def test_the_host_comes_before_the_label_elsewhere(ports: str, expected: dict[int, int]) -> None:
    there, misfits = stand_ins(ports, "slot: 1, attached_to: H1", "slot: 2, attached_to: H2")
    assert there == expected
    assert bool(misfits) == (len(expected) < 2)


def test_in_the_very_drawer_a_label_is_the_port_and_its_cable_is_wanted() -> None:
    ports = "{label: H1, host: {name: b}}, {label: H2, host: {name: a}}"
    raw = file("slot: 1, attached_to: H1", "slot: 2, attached_to: H2", ports=ports)
    report = map_document(document(raw), site(drawer(1, 1, device(1, 1), device(2, 2))))
    assert report.desired == DesiredState(attachments={1: 10, 2: 11}, cables={10: 901, 11: 900})
    assert not report.misfits


@given(
    st.lists(st.sampled_from(["H1", "H2", "H3", "H7"]), unique=True, max_size=4),
    st.lists(st.sampled_from(["", "a", "b", "c", "z"]), min_size=4, max_size=4),
    st.booleans(),
)
def test_of_any_file_no_host_port_stands_for_two_and_none_for_another_host_that_is_here(
    labels: list[str], hosts: list[str], is_same: bool
) -> None:
    known = dict(zip(labels, hosts, strict=False))
    ports = ", ".join(f"{{label: {one}{f', host: {{name: {host}}}' if host else ''}}}" for one, host in known.items())
    slots = [f"slot: {at}, attached_to: {label}" for at, label in enumerate(labels, start=1)]
    there, misfits = stand_ins(ports, *slots, chassis="name: falcon-1, uuid: u-1" if is_same else AWAY)
    assert len(set(there.values())) == len(there)
    assert len(there) == len(labels) - sum(" slot " in one for one in misfits)
    here = {"a": 10, "b": 11, "c": 12}
    for host in set(known.values()) & set(here) if not is_same else ():
        assert here[host] in {there.get(at) for at, label in enumerate(labels, start=1) if known[label] == host}


def test_ports_are_configured_as_the_file_says_where_the_site_can_tell_how_they_are() -> None:
    raw = file("slot: 1, lanes: 8, port_type: UnconfiguredPort", ports="{label: H2, lanes: 4}")
    report = map_document(document(raw), LAB)
    assert report.desired.settings == {
        1001: PortSetting(port_type="UnconfiguredPort", configured_width=8), 101: PortSetting(configured_width=4)
    }  # fmt: skip
    first = LAB.chassis[0].drawers[0]
    dumb = replace(first, settings=dict.fromkeys(first.settings, PortSetting()))
    report = map_document(document(raw), replace(LAB, chassis=(replace(LAB.chassis[0], drawers=(dumb,)),)))
    assert report.is_empty
    assert "unknown here: " in report.notes[0].note


def test_what_can_be_attached_nowhere_does_not_fit_where_that_would_be_needed() -> None:
    lab = site(
        drawer(1, 1, device(1, 1, fixed="It has no endpoint."), device(2, 2, attached=77, attached_elsewhere=True))
    )
    assert map_document(document(file("slot: 1, attached_to: null", "slot: 2")), lab).is_empty
    report = map_document(document(file("slot: 1, attached_to: H1", "slot: 2, attached_to: null")), lab)
    assert [line.sentence for line in report.misfits] == [
        "It has no endpoint.",
        "GPU 2 is attached to a host port that is not yours: only its owner can move it.",
    ]
    # Where it is, an export does not say, so that the file wants nothing of it.
    assert "attached_to" not in export_document(lab).plain()["chassis"][0]["drawers"][0]["slots"][1]


def test_devices_outside_slots_are_told_by_serial_number_or_name() -> None:
    lab = site(drawer(1, 1, device(1, None, name="NIC #1"), device(2, None, name="NIC #2", serial_number="")))
    assert map_document(document(export_document(lab).text("yaml")), lab).is_empty
    raw = file(
        "slot: null, device: {name: 'NIC #2'}, attached_to: H1",
        "slot: null, device: {name: x, serial_number: S1}, attached_to: H2",
    )
    assert map_document(document(raw), lab).desired.attachments == {2: 10, 1: 11}


def test_whose_a_thing_is_changes_by_no_import() -> None:
    report = map_document(document(file("slot: 1, tenant: Vision")), LAB)
    assert report.is_empty
    assert report.notes[0].note == "It is unassigned, where the file says 'Vision': an import grants nothing."


COSTS = st.integers(0, 4).flatmap(
    lambda columns: st.lists(
        st.lists(st.just(IMPOSSIBLE) | st.integers(0, 20).map(float), min_size=columns, max_size=columns), max_size=4
    )
)


@given(COSTS, st.lists(st.sampled_from([100.0, 1000.0]), min_size=4, max_size=4))
def test_the_matching_is_the_cheapest_of_all(costs: list[list[float]], left_out: list[float]) -> None:
    def total(found: tuple[int | None, ...]) -> float:
        return sum(left_out[row] if to is None else costs[row][to] for row, to in enumerate(found))

    got = tuple(cheapest_assignment(costs, left_out[: len(costs)]))
    columns = [None, *range(len(costs[0]) if costs else 0)]
    given_once = (
        found
        for found in itertools.product(columns, repeat=len(costs))
        if len({one for one in found if one is not None}) == len([one for one in found if one is not None])
    )
    assert got in itertools.product(columns, repeat=len(costs))
    assert total(got) == min(map(total, given_once))
    matched = [one for one in got if one is not None]
    assert len(matched) == len(set(matched))


@given(st.data())
def test_whatever_the_file_nothing_is_wanted_that_the_person_does_not_see(data: st.DataObject) -> None:
    slots = data.draw(
        st.lists(
            st.tuples(st.integers(0, 9), st.sampled_from(["S1", "S3", "S6", "S9", ""]),
                      st.sampled_from(["gpu", "nic", "nvme"]), st.sampled_from(["H1", "H2", "H5", "H9", "null"])),
            unique_by=(lambda one: one[0], lambda one: one[1] or one[0]), max_size=5,
        )
    )  # fmt: skip
    raw = file(
        *(
            f"slot: {slot}, device: {{kind: {kind}, serial_number: '{serial}'}}, attached_to: {to}"
            for slot, serial, kind, to in slots
        ),
        chassis=data.draw(st.sampled_from(["name: falcon-1", "name: x", "name: x, uuid: u-1"])),
        drawer=data.draw(st.sampled_from(["number: 1", "number: 2", "number: 3", "name: Drawer 2"])),
        ports="{label: H2, host: {name: c}}",
    )
    lab: SiteHardware = LAB
    report = map_document(document(raw), lab, by=data.draw(st.sampled_from(["exact", "serial", "slot", "kind"])))
    assert set(report.desired.attachments) <= {1, 2, 3, 4, 5, 6}
    assert set(report.desired.attachments.values()) <= {None, 10, 11, 12, 20, 21, 22}
    for one, to in report.desired.attachments.items():
        # A device and its host port are in one drawer.
        assert to is None or (to < 20) == (one < 5)
    assert sum(line.fit in {"exact", "mapped", "does_not_fit"} for line in report.lines) == len(report.lines)
    assert len([line for line in report.lines if line.place.line > 4]) == len(slots)
