"""Allocation files against a real simulated chassis: exported, imported by way of a plan, exported the same again."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from accounts.models import Tenant, User
from core.errors import Conflict, FalconWebError, Forbidden, Invalid, NotFound
from fabric.allocation.document import Format
from fabric.allocation.reader import MAX_FILE_BYTES, AllocationFile
from fabric.allocation.selectors import distinct_names
from fabric.allocation.services import allocation_check, allocation_export, allocation_plan
from fabric.bmc.types import DrawerMode
from fabric.inventory.models import Chassis, Device, Drawer, HostPort
from fabric.leases.grants import device_grant, host_port_grant
from fabric.operations.models import Operation, Plan
from fabric.operations.rules import PortSetting
from fabric.operations.services import operation_request
from fabric.plans.rules import DesiredState
from fabric.plans.services import plan_apply, plan_create
from falconweb.testing import carry_out_plan, device_in, host_port_of
from falconweb.testing.chassis import mirror
from tests.turns import in_turn


@pytest.fixture
def share(chassis: Chassis, administrator: User, tenant: Tenant) -> list[Device]:
    """What the tenant holds: the GPUs in slots 1 and 2 of drawer 1, and host port H1."""
    devices = [device_in(chassis, drawer=1, slot=slot) for slot in (1, 2)]
    for one in devices:
        device_grant(person=administrator, device=one, tenant=tenant)
    host_port_grant(person=administrator, host_port=host_port_of(chassis, "H1"), tenant=tenant)
    return devices


def written(person: User, format: Format = "json", **scope: Any) -> str:  # noqa: A002 - as the address calls it
    return allocation_export(person=person, **scope).text(format)


def checked(person: User, text: str, **how: Any) -> AllocationFile:
    return allocation_check(person=person, raw=text.encode(), **how)


def slot_of(plain: Any, number: int, drawer: int = 1) -> Any:
    found = next(one for one in plain["chassis"][0]["drawers"] if one["number"] == drawer)
    return next(one for one in found["slots"] if one["slot"] == number)


def misfits(found: AllocationFile) -> list[str]:
    assert found.report is not None, found.problems
    return [line.sentence for line in found.report.misfits]


@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("format_", [*in_turn(["json", "yaml"], 1, of=2)])
def test_the_way_out_and_back_is_exact(chassis: Chassis, administrator: User, format_: Format) -> None:
    before = written(administrator, format_)
    found = checked(administrator, before)
    assert found.report is not None
    assert found.report.is_empty
    assert allocation_plan(person=administrator, checked=found) is None
    gpu, other = (device_in(chassis, drawer=1, slot=slot) for slot in (1, 2))
    assert gpu.slot is not None
    wanted = DesiredState(
        attachments={
            gpu.pk: None, other.pk: host_port_of(chassis, "H2").pk,
            device_in(chassis, drawer=2, slot=1).pk: None,
        },
        modes={Drawer.objects.get(number=2).pk: DrawerMode.ADVANCED},
        settings={gpu.slot.port_id or 0: PortSetting(configured_width=4)},
    )  # fmt: skip
    changed = plan_create(person=administrator, desired=wanted, title="Change much", origin="api")
    plan_apply(person=administrator, plan=changed)
    assert carry_out_plan(changed).state == "done"
    mirror(chassis)
    assert written(administrator, format_) != before
    plan = allocation_plan(person=administrator, checked=checked(administrator, before), name="lab.json")
    assert plan is not None
    assert (plan.state, plan.origin, plan.title) == ("draft", "file", "Import of lab.json")
    plan_apply(person=administrator, plan=plan)
    assert carry_out_plan(plan).state == "done"
    mirror(chassis)
    assert written(administrator, format_) == before


def test_an_export_says_what_the_person_sees_and_nothing_else(
    administrator: User, member: User, viewer: User, tenant: Tenant, share: list[Device]
) -> None:
    everything, theirs = written(administrator), written(member)
    [drawer] = json.loads(theirs)["chassis"][0]["drawers"]
    assert [one["slot"] for one in drawer["slots"]] == [1, 2]
    assert [one["label"] for one in drawer["host_ports"]] == ["H1"]
    assert "tenant" not in drawer["slots"][0]
    for one in Device.objects.exclude(tenant=tenant):
        assert one.serial_number in everything
        assert one.serial_number not in theirs
    assert "node-b" not in theirs
    assert written(viewer) == theirs
    of_tenant = json.loads(written(administrator, tenant_id=tenant.pk))
    assert of_tenant["scope"] == {"kind": "tenant", "name": "Vision group"}
    assert slot_of(of_tenant, 1)["tenant"] == "Vision group"
    assert [one["slot"] for one in of_tenant["chassis"][0]["drawers"][0]["slots"]] == [1, 2]
    assert (
        written(member, tenant_id=tenant.pk).replace('"tenant",\n    "name": "Vision group"', '"everything"') == theirs
    )
    other = Tenant.objects.create(name="Others")
    with pytest.raises(NotFound):
        written(member, tenant_id=other.pk)
    assert json.loads(written(administrator, tenant_id=other.pk))["chassis"] == []


def test_of_a_host_port_of_others_an_export_says_nothing_and_an_import_moves_nothing(
    chassis: Chassis, administrator: User, member: User, share: list[Device]
) -> None:
    host_port_grant(
        person=administrator, host_port=host_port_of(chassis, "H1"), tenant=Tenant.objects.create(name="B"), take=True
    )
    text = written(member)
    plain = json.loads(text)
    assert "attached_to" not in slot_of(plain, 1)
    assert "H1" not in text
    found = checked(member, text)
    assert found.report is not None
    assert found.report.is_empty
    slot_of(plain, 1)["attached_to"] = None
    assert "only its owner can move it" in misfits(checked(member, json.dumps(plain)))[0]


def test_what_others_hold_is_as_unknown_as_what_there_is_not(
    chassis: Chassis, administrator: User, member: User, share: list[Device]
) -> None:
    theirs = json.loads(written(member))
    whole = json.loads(written(administrator))
    real, made_up = slot_of(whole, 3), {**slot_of(whole, 3), "slot": 77}
    made_up["device"] = {**made_up["device"], "serial_number": "NONE"}
    for by in ("exact", "serial", "slot", "kind"):
        told = []
        for entry in (real, made_up):
            theirs["chassis"][0]["drawers"][0]["slots"] = [entry]
            told.append(misfits(checked(member, json.dumps(theirs), by=by)))
        assert told[0] == told[1]
        # By kind, one of the tenant's own stands in for both.
        assert len(told[0]) == (0 if by == "kind" else 1)
    for label in ("H2", "H9"):
        asked = json.loads(written(member))
        slot_of(asked, 1)["attached_to"] = label
        [sentence] = misfits(checked(member, json.dumps(asked)))
        assert sentence == f"falcon-1 Drawer 1 has no host port that matches '{label}', or you may not see it."
    # The whole lab's file: the tenant's own fits, and nothing of the rest is told.
    whole_report = checked(member, written(administrator)).report
    assert whole_report is not None
    assert whole_report.misfits
    other = device_in(chassis, drawer=1, slot=3)
    assert other.serial_number not in json.dumps(whole_report.as_json())
    elsewhere = Chassis.objects.create(name="falcon-9", url="https://127.0.0.1:9")
    with pytest.raises(NotFound):
        checked(member, written(member), onto=elsewhere.pk)


def test_who_may_not_compose_imports_nothing(viewer: User, administrator: User, share: list[Device]) -> None:
    with pytest.raises(Forbidden):
        checked(viewer, written(administrator))


def test_nothing_is_made_of_a_file_with_problems_or_of_half_a_file(administrator: User, share: list[Device]) -> None:
    plain = json.loads(written(administrator))
    slot_of(plain, 1)["attached_to"] = None
    slot_of(plain, 2)["device"]["serial_number"] = "OTHER"
    found = checked(administrator, json.dumps(plain, indent=2))
    with pytest.raises(Invalid) as refused:
        allocation_plan(person=administrator, checked=found)
    [problem] = refused.value.details["problems"]
    assert problem["path"] == "chassis[0].drawers[0].slots[1]"
    assert problem["line"] > 1
    plain["chassis"][0]["drawers"][0]["slots"][0]["slto"] = 1
    with pytest.raises(Invalid) as refused:
        allocation_plan(person=administrator, checked=checked(administrator, json.dumps(plain)))
    assert refused.value.details["problems"][0]["path"] == "chassis[0].drawers[0].slots[0].slto"
    assert Plan.objects.count() == 0
    plan = allocation_plan(person=administrator, checked=found, partial=True)
    assert plan is not None
    assert plan.title == "Import of an allocation file, without 1 entry that does not fit"
    assert DesiredState.from_json(plan.wanted) == DesiredState(attachments={share[0].pk: None})


@pytest.mark.usefixtures("simulator")
def test_a_tenant_rearranges_its_share_by_a_file(chassis: Chassis, member: User, share: list[Device]) -> None:
    plain = json.loads(written(member))
    slot_of(plain, 1)["attached_to"] = None
    plan = allocation_plan(person=member, checked=checked(member, json.dumps(plain)))
    assert plan is not None
    plan_apply(person=member, plan=plan)
    assert carry_out_plan(plan).state == "done"
    assert device_in(chassis, drawer=1, slot=1).host_port is None
    assert device_in(chassis, drawer=1, slot=3).host_port is not None


def test_a_file_is_compared_with_what_will_be_once_open_operations_are_done(
    chassis: Chassis, administrator: User
) -> None:
    before = written(administrator)
    gpu = device_in(chassis, drawer=1, slot=1)
    operation_request(person=administrator, device=gpu, target=None)
    report = checked(administrator, before).report
    assert report is not None
    assert report.desired.attachments == {gpu.pk: gpu.host_port_id}
    # The file says how it is, not how it will be.
    assert written(administrator) == before


@pytest.mark.usefixtures("transactional_db")
def test_of_two_imports_at_once_one_is_applied_and_the_other_told_why_not(
    chassis: Chassis, administrator: User
) -> None:
    files = []
    for label in ("H2", "H3"):
        plain = json.loads(written(administrator))
        slot_of(plain, 1)["attached_to"] = label
        files.append(json.dumps(plain))
    ended: list[str] = []
    ready = threading.Barrier(2)

    def work(text: str) -> None:
        try:
            ready.wait(60)
            plan = allocation_plan(person=administrator, checked=checked(administrator, text))
            assert plan is not None
            ready.wait(60)
            plan_apply(person=administrator, plan=plan)
            ended.append("applied")
        except Conflict:
            ended.append("refused")
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(text,)) for text in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(ended) == ["applied", "refused"]
    assert Operation.objects.count() == 1


def test_a_key_makes_a_repeated_import_one_plan(chassis: Chassis, administrator: User) -> None:
    plain = json.loads(written(administrator))
    slot_of(plain, 1)["attached_to"] = None
    found = checked(administrator, json.dumps(plain))
    plans = {
        allocation_plan(person=administrator, checked=found, idempotency_key="k") for _ in range(2)
    }  # fmt: skip
    assert len(plans) == 1


def test_names_that_several_have_get_a_number_that_nothing_else_has() -> None:
    given = distinct_names({1: ("c", "H1"), 2: ("c", "H1"), 3: ("c", "H1 #1"), 4: ("d", "H1"), 5: ("c", "H1 #1")})
    assert given[4] == "H1"
    assert len({given[pk] for pk in (1, 2, 3, 5)}) == 4


def test_a_chassis_with_names_and_numbers_that_come_twice_goes_out_and_back(
    chassis: Chassis, administrator: User
) -> None:
    Drawer.objects.update(number=0, name="Drawer")
    HostPort.objects.update(label="P")
    Device.objects.update(serial_number="0", name="GPU")
    before = written(administrator)
    found = checked(administrator, before)
    assert found.problems == ()
    assert found.report is not None
    assert {line.fit for line in found.report.lines} == {"exact"}
    assert found.report.is_empty


def test_hardware_that_is_missing_is_not_written_and_does_not_fit(chassis: Chassis, administrator: User) -> None:
    before = written(administrator)
    gpu = device_in(chassis, drawer=1, slot=1)
    Device.objects.filter(pk=gpu.pk).update(missing_since=chassis.created_at)
    assert gpu.serial_number not in written(administrator)
    assert len(misfits(checked(administrator, before))) == 1


def test_the_example_of_the_documentation_is_a_file(chassis: Chassis, administrator: User) -> None:
    told = (Path(__file__).parents[3] / "docs" / "allocation.md").read_text()
    example = told.partition("```yaml\n")[2].partition("```")[0]
    found = checked(administrator, example)
    assert misfits(found) == []
    assert found.report is not None
    assert found.report.desired == DesiredState(attachments={device_in(chassis, drawer=1, slot=5).pk: None})


class TestPage:
    """The page of allocation files."""

    @pytest.fixture
    def browser(self, administrator: User) -> Client:
        client = Client()
        client.force_login(administrator)
        return client

    def send(self, browser: Client, text: str, **fields: str) -> Any:
        return browser.post(reverse("fabric:allocation"), {"text": text, "by": "exact", **fields})

    def test_a_file_is_sent_under_a_name_with_the_time_and_is_the_same_each_time(
        self, browser: Client, chassis: Chassis
    ) -> None:
        address = reverse("fabric:allocation_export")
        first, second = (browser.get(address, {"what": f"chassis-{chassis.pk}", "format": "yaml"}) for _ in range(2))
        assert first["Content-Type"] == "application/yaml; charset=utf-8"
        assert first["Content-Disposition"].startswith('attachment; filename="allocation-falcon-1-2')
        assert first.content == second.content
        assert first.content.decode().startswith("format: falconweb-allocation\nversion: 1\n")
        for wrong in ({"what": "chassis-99"}, {"what": "tenant-x"}):
            assert browser.get(address, wrong).status_code == 404
        for wrong in ({"what": "all"}, {"format": "xml"}):
            assert browser.get(address, wrong).status_code == 400

    def test_problems_are_shown_beside_their_lines(self, browser: Client, chassis: Chassis) -> None:
        text = '{"format": "falconweb-allocation", "version": 1,\r\n "chassis": [{"name": "<b>", "colour": 1}]}'
        answer = self.send(browser, text)
        page = answer.content.decode()
        assert answer.status_code == 400
        assert "1 problem in the file" in page
        assert "&#x27;colour&#x27; is not known here" in page
        column = text.split("\n")[1].index('"colour"') + 1
        assert f"2:{column}" in page
        assert "&quot;chassis&quot;: [{&quot;name&quot;: &quot;&lt;b&gt;&quot;" in page
        assert "<b>" not in page

    def test_without_a_file_it_says_so(self, browser: Client, chassis: Chassis) -> None:
        answer = browser.post(reverse("fabric:allocation"), {})
        assert (answer.status_code, "The file is empty" in answer.content.decode()) == (400, True)

    def test_a_report_comes_before_a_plan_and_misfits_before_both(
        self, browser: Client, chassis: Chassis, administrator: User
    ) -> None:
        plain = json.loads(written(administrator))
        slot_of(plain, 1)["attached_to"] = None
        slot_of(plain, 2)["device"]["serial_number"] = "OTHER"
        file = SimpleUploadedFile("lab.json", json.dumps(plain).encode())
        answer = browser.post(reverse("fabric:allocation"), {"file": file, "by": "exact"})
        page = answer.content.decode()
        assert answer.status_code == 200
        for words in (
            "lab.json",
            "Entries that do not fit",
            "another serial number",
            "Detach it from node-a (H1).",
            "Make plan",
        ):
            assert words in page
        answer = self.send(browser, json.dumps(plain), make="1")
        assert (answer.status_code, Plan.objects.count()) == (400, 0)
        assert "1 entry of the file does not fit here" in answer.content.decode()
        answer = self.send(browser, json.dumps(plain), make="1", partial="on", name="lab.json")
        plan = Plan.objects.get()
        assert plan.title == "Import of lab.json, without 1 entry that does not fit"
        assert (answer.status_code, answer["Location"]) == (302, reverse("fabric:plan", args=[plan.pk]))

    def test_where_nothing_is_to_be_changed_there_is_no_plan(
        self, browser: Client, chassis: Chassis, administrator: User
    ) -> None:
        answer = self.send(browser, written(administrator, "yaml"), make="1")
        assert (answer.status_code, answer["Location"]) == (302, reverse("fabric:allocation"))
        assert Plan.objects.count() == 0
        assert "Nothing to change" in browser.get(answer["Location"]).content.decode()

    def test_what_is_typed_may_be_as_large_as_a_file(self, browser: Client, chassis: Chassis) -> None:
        assert "The file has no meaning" not in self.send(browser, " " * (MAX_FILE_BYTES - 1) + "x").content.decode()
        answer = self.send(browser, " " * MAX_FILE_BYTES + "x")
        assert (answer.status_code, "larger than 5 MiB" in answer.content.decode()) == (400, True)

    def test_odd_choices_are_refused(self, browser: Client, chassis: Chassis, administrator: User) -> None:
        text = written(administrator)
        plain = json.loads(text)
        slot_of(plain, 1)["attached_to"] = None
        assert self.send(browser, json.dumps(plain), make="1", name="a\x00\r\n\u202eb" + "c" * 500).status_code == 302
        assert Plan.objects.get().title == "Import of ab" + "c" * 98
        for wrong, status in (({"by": "magic"}, 400), ({"onto": "x"}, 404), ({"onto": "99"}, 404)):
            assert self.send(browser, text, **wrong).status_code == status
        empty = json.dumps({"format": "falconweb-allocation", "version": 1, "chassis": []})
        assert self.send(browser, empty, onto=str(chassis.pk)).status_code == 400


class TestCommand:
    """`manage.py allocation`."""

    def run(self, capsys: Any, *words: str) -> tuple[int, str, str]:
        code = 0
        try:
            call_command("allocation", *words)
        except SystemExit as end:
            code = int(str(end.code))
        out, err = capsys.readouterr()
        return code, out, err

    def test_a_file_goes_out_and_back(
        self, chassis: Chassis, administrator: User, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "lab.yaml"
        assert self.run(capsys, "export", "--as", "ada", "--format", "yaml", "--output", str(file)) == (0, "", "")
        assert file.read_text() == written(administrator, "yaml")
        code, out, _ = self.run(capsys, "import", str(file), "--as", "ada")
        assert (code, "nothing to change" in out) == (0, True)
        file.write_text(file.read_text().replace("attached_to: H1", "attached_to: H2", 1))
        code, out, _ = self.run(capsys, "import", str(file), "--as", "ada", "--dry-run", "--json")
        told = json.loads(out)
        assert (code, told["changes"], told["plan_id"], Plan.objects.count()) == (0, 1, None, 0)
        code, out, _ = self.run(capsys, "import", str(file), "--as", "ada")
        assert (code, Plan.objects.get().state) == (0, "draft")
        assert "Move it from node-a (H1) to node-b (H2)." in out

    def test_exit_codes_say_what_is_wrong(
        self, chassis: Chassis, administrator: User, viewer: User, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "lab.json"
        file.write_text('{"format": "falconweb-allocation",\n"version": 3}')
        code, _, err = self.run(capsys, "import", str(file), "--as", "ada")
        assert (code, err.startswith("line 2, column 12: This is an allocation file of version 3.")) == (3, True)
        code, out, _ = self.run(capsys, "import", str(file), "--as", "ada", "--json")
        assert (code, json.loads(out)["problems"][0]["line"]) == (3, 2)
        plain = json.loads(written(administrator))
        slot_of(plain, 1)["slot"] = 77
        file.write_text(json.dumps(plain))
        assert self.run(capsys, "import", str(file), "--as", "ada")[0] == 4
        assert self.run(capsys, "import", str(file), "--as", "eve")[0] == 5
        for wrong in (
            ("import", str(tmp_path / "none"), "--as", "ada"), ("import", str(file), "--as", "nobody"),
            ("export", "--as", "ada", "--chassis", "none"), ("export", "--as", "ada", "--tenant", "none"),
        ):  # fmt: skip
            assert self.run(capsys, *wrong)[0] == 2
        with pytest.raises(CommandError):
            call_command("allocation", "export")
        assert Plan.objects.count() == 0

    @pytest.mark.usefixtures("simulator")
    def test_it_waits_for_the_plan(
        self, chassis: Chassis, administrator: User, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plain = json.loads(written(administrator))
        slot_of(plain, 1)["attached_to"] = None
        file = tmp_path / "lab.json"
        file.write_text(json.dumps(plain))
        worker = threading.Thread(target=_work)
        worker.start()
        code, out, _ = self.run(capsys, "import", str(file), "--as", "ada", "--wait")
        worker.join(60)
        assert (code, "done" in out) == (0, True)
        assert device_in(chassis, drawer=1, slot=1).host_port is None


def _work() -> None:
    """Be the worker that carries the plan out once it is applied."""
    try:
        for _ in range(300):
            plan = Plan.objects.exclude(state="draft").first()
            if plan is not None:
                carry_out_plan(plan)
                return
            threading.Event().wait(0.1)
    except FalconWebError:
        return
    finally:
        connection.close()
