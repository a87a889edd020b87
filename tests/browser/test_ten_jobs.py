"""Ten daily jobs of an operator, by pointer and by keyboard alone: the clicks and keys that each takes are limited."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.browser.conftest import opened, sign_in
from tests.browser.test_fabric import port, slot
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly

MAX_TABS = 250
IS_FOCUSED = """(one) => {
  const focused = document.activeElement;
  return one === focused || (one.type === "radio" && one.name === focused.name);
}"""


class Visitor:
    """A person with a pointer: counts clicks, and the keys that are pressed; typed characters are not counted."""

    by_keyboard = False
    place = "Drawer 2 slot 3"  # of the narrow link of the demonstration

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = self.keys = 0

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.keys += 1

    def click(self, target: Locator) -> None:
        target.click()
        self.clicks += 1

    def check(self, target: Locator) -> None:
        self.click(target)
        expect(target).to_be_checked()

    def choose(self, target: Locator, label: str) -> None:
        target.select_option(label=label)
        self.clicks += 2

    def write(self, target: Locator, text: str) -> None:
        target.fill(text)
        self.clicks += 1

    def menu(self, menu: str, label: str) -> None:
        """Open an entry of a menu of the navigation."""
        group = self.page.locator("#navigation details", has=self.page.get_by_text(menu, exact=True))
        if group.get_attribute("open") is None:
            self.click(group.locator("summary"))
        self.click(group.get_by_role("link", name=label, exact=True))

    def find(self, words: str, hit: str) -> None:
        """Open what the palette finds."""
        self.press("Control+k")
        self.page.keyboard.type(words)
        expect(self.page.get_by_role("option").first).to_contain_text(hit)
        with self.page.expect_navigation():
            self.press("Enter")

    def select(self, chassis: str, drawer: int, first: int, last: int, host_port: str) -> None:
        """Select the devices of a drawer from one slot to another, and place them on a host port."""
        expect(self.page.locator("#freshness")).to_have_text("● Live")
        for number, modifiers in ((first, []), (last, ["Shift"])):
            self.page.locator(f"{slot(self.page, chassis, drawer, number)} + .handle").click(modifiers=modifiers)  # type: ignore[arg-type]
        self.clicks += 2
        self.click(self.page.locator(port(self.page, chassis, host_port)))


class KeyboardVisitor(Visitor):
    """A person without a pointer, who finds everything by Tab, and by arrows within a group or a picture."""

    by_keyboard = True
    place = "Drawer 2 slot 4"

    def focus(self, target: Locator) -> None:
        """Press Tab until the target has the focus; of radio buttons, until one of its group has it."""
        target.wait_for()
        for _ in range(MAX_TABS):
            if target.evaluate(IS_FOCUSED):
                return
            self.press("Tab")
        pytest.fail(f"{target} is not reached by Tab")

    def click(self, target: Locator) -> None:
        self.focus(target)
        self.press("Enter")

    def check(self, target: Locator) -> None:
        self.focus(target)
        if target.get_attribute("type") == "checkbox":
            self.press("Space")
        for _ in range(20):
            if target.is_checked():
                return
            self.press("ArrowDown")
        expect(target).to_be_checked()

    def choose(self, target: Locator, label: str) -> None:
        self.focus(target)
        self.page.keyboard.type(label)
        expect(target.locator("option:checked")).to_have_text(label)

    def write(self, target: Locator, text: str) -> None:
        self.focus(target)
        target.fill(text)

    def select(self, chassis: str, drawer: int, first: int, last: int, host_port: str) -> None:
        expect(self.page.locator("#freshness")).to_have_text("● Live")
        self.arrow_to(self.page.locator(slot(self.page, chassis, drawer, first)))
        for _ in range(first, last):
            self.press("Control+Space")
            self.press("ArrowRight")
        self.press("Space")
        self.arrow_to(self.page.locator(port(self.page, chassis, host_port)))
        self.press("Enter")

    def arrow_to(self, target: Locator) -> None:
        for _ in range(20):
            if target.evaluate("(one) => one === document.activeElement"):
                return
            self.press("ArrowRight")
        pytest.fail(f"{target} is not reached by arrows")


def settled(person: Visitor) -> None:
    """See the newest task end well."""
    expect(person.page.locator("#tasks li").first.locator(".state.done")).to_be_visible()


def undone(person: Visitor) -> None:
    """Undo the newest task."""
    person.click(person.page.locator("#tasks li").first.locator("[data-undo]"))
    expect(person.page.locator(".impacts li").first).to_be_visible()
    person.click(person.page.locator("#attach-yes"))
    expect(person.page.locator("#tasks li").first).to_contain_text("Undo:")
    settled(person)


def the_hottest_gpu_and_who_uses_it(person: Visitor) -> None:
    hottest = person.page.locator("section", has=person.page.get_by_role("heading", name="Hottest devices"))
    person.click(hottest.get_by_role("link").first)
    expect(person.page.locator("main")).to_contain_text(re.compile("uses? it now|Its use on|In use"))


def two_gpus_to_node_b(person: Visitor) -> None:
    person.click(person.page.get_by_role("link", name="Fabric", exact=True))
    person.select("falcon-1", 1, 1, 2, "H2")
    person.click(person.page.locator("#attach-yes"))
    settled(person)
    undone(person)


def all_of_a_drawer_by_one_plan_and_back(person: Visitor) -> None:
    person.click(person.page.get_by_role("link", name="Fabric", exact=True))
    person.select("falcon-1", 1, 3, 6, "H1")
    person.click(person.page.locator("#attach-yes"))
    settled(person)
    undone(person)


def an_allocation_out_and_in(person: Visitor) -> None:
    page = person.page
    person.menu("Compose", "Allocation files")
    person.choose(page.get_by_label("What", exact=True), "Chassis falcon-1")
    with page.expect_download() as download:
        person.click(page.get_by_role("button", name="Export"))
    plain = json.loads(Path(download.value.path()).read_text())
    plain["chassis"][0]["drawers"][1]["slots"][0]["attached_to"] = None
    changed = Path(download.value.path()).with_suffix(".json")
    changed.write_text(json.dumps(plain))
    with page.expect_file_chooser() as chooser:
        person.click(page.get_by_label("File, JSON or YAML"))
    chooser.value.set_files(changed)
    person.click(page.get_by_role("button", name="Check file"))
    expect(page.get_by_text("1 entry changes something.")).to_be_visible()
    person.click(page.get_by_role("button", name="Make plan"))
    page.wait_for_url("**/plans/**")


def why_a_link_is_degraded_and_its_alert(person: Visitor) -> None:
    page = person.page
    person.click(page.locator("main").get_by_role("link", name=re.compile(person.place)).first)
    expect(page.locator("main")).to_contain_text("x8")
    person.click(page.locator("#navigation").get_by_role("link", name="Alerts", exact=True))
    person.click(page.get_by_role("button", name=re.compile(f"Acknowledge: .*{person.place}")))
    expect(page.get_by_text("acknowledged", exact=False).first).to_be_visible()


def a_tenant_its_user_and_two_gpus(person: Visitor) -> None:
    page, number = person.page, time.time_ns()
    person.find("add tenant", "Add tenant")
    person.write(page.get_by_label("Name", exact=True), f"vision {number}")
    person.press("Enter")
    person.click(page.get_by_role("link", name="New user"))
    person.write(page.get_by_label("User name"), f"vera{number}")
    person.press("Enter")
    password = page.locator("#secret").input_value()
    person.click(page.get_by_role("button", name=re.compile("^Copy")))
    person.click(page.get_by_role("link", name=re.compile("Create lease")))
    person.write(page.locator("[name=ends_at]"), f"{datetime.now(UTC) + timedelta(days=3):%Y-%m-%dT18:00}")
    for place in (0, 1):
        person.check(page.get_by_role("checkbox", name=re.compile("Hold Tesla V100")).nth(place))
    person.click(page.get_by_role("button", name="Create lease"))
    expect(page.get_by_role("heading", name=re.compile(r"Lease \d+"))).to_be_visible()
    person.click(page.locator(".person summary", has=page.locator(".account")))
    person.click(page.get_by_role("button", name="Sign out", exact=True))
    person.write(page.locator("#id_username"), f"vera{number}")
    person.write(page.locator("#id_password"), password)
    person.press("Enter")
    person.click(page.get_by_role("link", name="Fabric", exact=True))
    expect(page.locator("svg.topology a[data-device]")).to_have_count(2)


def the_traffic_of_two_ports_pinned_and_saved(person: Visitor) -> None:
    page = person.page
    person.menu("Telemetry", "Charts")
    for name in ("H1", "H2"):
        person.write(page.locator("#q"), name)
        person.press("Enter")
        person.click(page.locator("#results a").first)
        expect(page.locator("#results")).to_have_count(0)
    person.write(page.locator("#name"), f"Two ports {time.time_ns()}")
    person.press("Enter")
    expect(page.get_by_text("was pinned")).to_be_visible()
    for name in ("PNG", "CSV"):
        with page.expect_download():
            person.click(page.locator("figure.chart").first.get_by_role("button", name=name))


def events_as_json_lines_each_hour(person: Visitor) -> None:
    page = person.page
    person.find("add export", "Add export")
    person.write(page.get_by_label("Name", exact=True), f"Hourly {time.time_ns()}")
    for name in ("JSON Lines", "On a schedule", "New since the last run"):
        person.check(page.get_by_label(name, exact=True))
    person.press("Enter")
    page.wait_for_url(re.compile(r"/exports/\d+/"))


def two_runs_compared_and_a_recommendation(person: Visitor) -> None:
    page = person.page
    part = page.locator('[data-host-name="node-a"]')

    def count(group: str) -> Locator:
        return part.get_by_role("group", name=group).get_by_role("spinbutton")

    def run() -> None:
        person.click(page.get_by_role("button", name="Start run"))
        expect(page.locator("#run-now")).to_contain_text(re.compile("Completed|Failed"))
        expect(page.locator("#run-now")).to_contain_text("Completed")

    person.find("start run", "Start run")
    person.choose(page.locator("#workload"), "ResNet-50")
    page.wait_for_url("**workload=resnet50**")
    person.check(page.get_by_role("radio", name="node-a", exact=True))
    person.check(page.get_by_role("radio", name="GPUs", exact=True))
    person.check(page.locator("#executor-simulated"))
    person.write(count("Its own GPUs"), "2")
    run()
    person.click(page.get_by_role("link", name="Change and run"))
    person.write(count("Its own GPUs"), "0")
    person.write(count("falcon-1 · Drawer 2"), "2")
    run()
    person.click(page.get_by_role("link", name=re.compile("Compare with ResNet-50, 2 local GPUs")).first)
    expect(page.get_by_role("heading", name="What differs")).to_be_visible()
    page.go_back()
    person.keys += 1
    person.click(page.get_by_role("link", name="Recommend topology"))
    expect(page.locator("#answer")).to_be_visible()


def a_slurm_script(person: Visitor) -> None:
    person.find("deployment", "Deployment")
    person.write(person.page.get_by_label("Command"), "python train.py")
    person.press("Enter")
    expect(person.page.locator("#deployment")).to_contain_text("#SBATCH")


# The clicks and keys that a person without a manual may need, by pointer; docs/interface.md has those of the first
# interface.
JOBS: dict[Callable[[Visitor], None], tuple[int, int]] = {
    the_hottest_gpu_and_who_uses_it: (1, 0),
    two_gpus_to_node_b: (7, 0),
    all_of_a_drawer_by_one_plan_and_back: (7, 0),
    an_allocation_out_and_in: (8, 0),
    why_a_link_is_degraded_and_its_alert: (3, 0),
    a_tenant_its_user_and_two_gpus: (14, 5),
    the_traffic_of_two_ports_pinned_and_saved: (9, 3),
    events_as_json_lines_each_hour: (4, 3),
    two_runs_compared_and_a_recommendation: (13, 3),
    a_slurm_script: (1, 3),
}


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSite]:
    """The site that newcomers find, with a second narrow link."""
    with RunningSite(tmp_path_factory.mktemp("jobs"), arguments=["--demo"]) as site:
        site.control("falcon-1", "POST", "/faults", {"kind": "link_downgrade", "target": "drawer2slot4", "lanes": 8})
        yield site


@pytest.fixture
def context(browser: Browser, demonstration: RunningSite) -> Iterator[BrowserContext]:
    with opened(browser, demonstration, viewport={"width": 1440, "height": 900}) as context:
        yield context


@pytest.mark.parametrize("kind", [Visitor, KeyboardVisitor], ids=["by pointer", "by keyboard"])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_a_job_is_done_in_few_steps(
    context: BrowserContext, kind: type[Visitor], job: Callable[[Visitor], None]
) -> None:
    page = sign_in(context, "administrator", ADMINISTRATOR_PASSWORD)
    expect(page.locator("section", has_text="Hottest devices")).to_contain_text("°C")
    person = kind(page)
    page.goto("/alerts/")
    wait_for(lambda: page.reload() and page.get_by_text(person.place).count() > 0, "the alert fires", seconds=120)
    page.goto("/")
    began = time.monotonic()
    job(person)
    clicks, keys = JOBS[job]
    print(f"{job.__name__}: {person.clicks} clicks, {person.keys} keys, {time.monotonic() - began:.1f} s")  # noqa: T201
    if person.by_keyboard:
        assert person.clicks == 0
    else:
        assert (person.clicks <= clicks, person.keys <= keys) == (True, True), (person.clicks, person.keys)
