"""Every page: without a violation that axe finds, without a scroll bar sideways, in light and dark, wide and narrow."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.urls import get_resolver
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.access.test_matrix import names
from tests.browser.conftest import hurried, opened, sign_in, watched
from tests.browser.judging import axe, judge
from tests.browser.test_fabric import handle, port, slot
from tests.site import RunningSite

# Each page's address; None for addresses that take forms only or show no page.
PAGES: dict[str, str | None] = {
    "accounts:account": "/account/",
    "accounts:account_password": None,
    "accounts:audit": "/audit/",
    "accounts:audit_entry": "/audit/2/",
    "accounts:audit_export": None,
    "accounts:audit_verification": None,
    "accounts:people": "/people/",
    "accounts:person": "/people/1/",
    "accounts:person_add": "/people/add/",
    "accounts:person_password": None,
    "accounts:sign_in": "/sign-in/",
    "accounts:sign_out": None,
    "accounts:tenant_add": "/tenants/add/",
    "accounts:tenants": "/tenants/",
    "accounts:token_add": None,
    "accounts:token_revoke": None,
    "alerts:alerts": "/alerts/",
    "alerts:rules": "/alerts/rules/",
    "alerts:rule_add": "/alerts/rules/add/",
    "alerts:silences": "/alerts/silences/",
    "alerts:silence_add": "/alerts/silences/add/",
    "alerts:routes": "/alerts/routes/",
    "alerts:route_add": "/alerts/routes/add/",
    "alerts:deliveries": "/alerts/deliveries/",
    **{f"alerts:{name}": None for name in ("alert", "rule", "route")},  # have tests of their own
    **{f"alerts:{name}": None for name in ("alerts_csv", "badge", "acknowledge", "rule_preview", "rule_switch")},
    **{f"alerts:{name}": None for name in ("rule_remove", "built_in", "silence_end", "route_remove", "route_test")},
    "alerts:delivery_retry": None,
    "events:catalogue": "/events/catalogue/",
    "events:event": "/events/1/",
    "events:events": "/events/",
    "events:catalogue_csv": None,
    **{f"events:{name}": None for name in ("events_csv", "newest", "news", "saved", "saved_change", "saved_remove")},
    "exports:exports": "/exports/",
    "exports:export_add": "/exports/add/",
    "exports:export_runs": "/exports/runs/",
    **{f"exports:{name}": None for name in ("exports_csv", "export_runs_csv", "export_run_file")},
    # Those that show a page have tests of their own.
    **{f"exports:export{name}": None for name in ("", "_edit", "_remove", "_switch", "_start", "_preview", "_test")},
    **{f"exports:export_run{name}": None for name in ("", "_cancel", "_resume")},
    "figures:figures": "/benchmarks/figures/",
    "figures:compare": "/benchmarks/figures/compare/",
    "figures:figure": "/benchmarks/figures/gpu-to-gpu/?with=published",
    "figures:figure_csv": None,
    "fabric:allocation": "/allocation/",
    "fabric:allocation_export": None,
    "fabric:chassis": "/chassis/1/",
    "fabric:chassis_add": "/chassis/add/",
    "fabric:chassis_edit": "/chassis/1/edit/",
    "fabric:chassis_remove": "/chassis/1/remove/",
    "fabric:device": "/devices/1/",
    "fabric:device_history": "/devices/1/history/",
    "fabric:device_history_csv": None,
    "fabric:devices_csv": None,
    "fabric:drawer": "/drawers/1/",
    "fabric:drifts": "/drift/",
    **{f"fabric:drift{name}": None for name in ("", "_accept", "_reapply")},  # have tests of their own
    "fabric:fabric": "/fabric/",
    "fabric:hosts": "/hosts/",
    "fabric:host": "/hosts/1/",
    "fabric:host_agent": None,
    "fabric:leases": "/leases/",
    "fabric:lease_calendar": "/leases/calendar/",
    "fabric:lease_give": "/leases/give/",
    "fabric:lease_request": "/leases/request/",
    "fabric:lease_usage": "/leases/usage/",
    "fabric:lease_usage_csv": None,
    "fabric:lease": None,
    **{f"fabric:lease_{name}": None for name in ("decision", "withdrawal", "extension", "extension_decline", "return")},
    "fabric:operation_cancel": None,
    "fabric:operation": None,  # has a test of its own
    "fabric:operations": "/operations/",
    "fabric:draft": "/draft/",
    "fabric:plans": "/plans/",
    "fabric:plan": None,  # has tests of its own
    **{f"fabric:plan_{name}": None for name in ("title", "anew", "apply", "cancel", "resume", "undo", "discard")},
    "fabric:overview": "/",
    "fabric:port": "/ports/1/",
    "metrics": None,
    "pipeline:pipeline": "/telemetry/pipeline/",
    "pipeline:chassis_csv": None,
    "pipeline:counts_csv": None,
    "fabric:quotas": "/tenants/1/quotas/",
    "fabric:slot": "/slots/1/",
    "fabric:slot_history": "/slots/1/history/",
    "fabric:slot_history_csv": None,
    "fabric:system": "/system/",
    "fabric:tenant": "/tenants/1/",
    "fabric:tenant_grants": None,
    "fabric:tenant_removal": None,
    "history:telemetry": "/telemetry/?of=chassis/1",
    "history:throughput": "/telemetry/throughput/",
    "history:throughput_csv": None,
    "history:heat_map": "/telemetry/heat-map/",
    "history:dashboards": "/telemetry/dashboards/",
    "history:dashboard_change": None,
    "history:dashboard_remove": None,
    "links:links": "/links/",
    "links:link": "/links/1/",
    **{f"links:{name}": None for name in ("links_csv", "states_csv", "counter_reset")},
    "runs:catalogue": "/benchmarks/",
    "runs:runs": "/benchmarks/runs/",
    "runs:run_new": "/benchmarks/runs/new/",
    "runs:run_from_file": "/benchmarks/runs/new/file/",
    **{f"runs:run{name}": None for name in ("", "_log", "_series", "_cancel", "_retry", "_return", "_delete")},
    **{f"runs:runs_{name}": None for name in ("csv", "cancel")},
    "deploy:deploy": "/benchmarks/deploy/",
    "recommend:recommend": "/benchmarks/recommend/?workload=resnet50&preset=paper",
    **{f"recommend:recommend_{name}": None for name in ("csv", "plan", "run")},
    "sweeps:sweeps": "/benchmarks/sweeps/",
    "sweeps:sweep_add": "/benchmarks/sweeps/new/",
    "sweeps:manifest": "/benchmarks/sweeps/new/manifest/",
    "sweeps:sweep": None,  # has a test of its own
    **{f"sweeps:{name}": None for name in ("sweeps_csv", "count", "points_csv")},
    **{f"sweeps:{name}": None for name in ("pause", "resume", "halt", "retry", "delete")},
    "records:import": "/benchmarks/records/import/",
    **{f"records:{name}": None for name in ("run_jsonl", "run_csv", "runs_jsonl", "runs_csv")},
}
ADDRESSES = sorted({*filter(None, PAGES.values()), "/fabric/?view=list"})


def test_every_page_of_the_routers_has_its_line() -> None:
    pages = {name for name in names(get_resolver().url_patterns) if not name.startswith("api:")}
    assert pages == set(PAGES)


@pytest.fixture(scope="module")
def visited(administrator: BrowserContext) -> Iterator[tuple[Page, list[str]]]:
    """A page that goes from address to address, and all that its console is told as an error."""
    page, wrong = watched(administrator)
    page.add_init_script(axe())
    yield page, wrong
    page.close()


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_page_is_accessible_and_fits(visited: tuple[Page, list[str]], address: str) -> None:
    page, wrong = visited
    page.goto(address)
    judge(page)
    errors = wrong.copy()
    wrong.clear()
    assert errors == []


@pytest.mark.nightly
def test_the_sign_in_is_accessible_also_when_it_refuses(browser: Browser, running_site: RunningSite) -> None:
    with opened(browser, running_site) as context:
        page = context.new_page()
        page.goto("/sign-in/")
        judge(page, "signed out")
        for attempt in range(12):
            page.fill("#id_username", "nobody")
            page.fill("#id_password", "wrong")
            page.click("form.narrow button")
            page.wait_for_load_state()
            if attempt == 0:
                expect(page.get_by_role("alert")).to_be_visible()
                judge(page, "after a wrong password")
            if page.locator("#id_username").count() == 0:
                break
        expect(page.get_by_role("heading", name="Too many attempts")).to_be_visible()
        judge(page, "locked out")


def test_a_new_token_is_accessible(page: Page) -> None:
    page.goto("/account/")
    page.fill("#id_name", f"A script of {time.monotonic()}")
    page.get_by_role("button", name="Make the token").click()
    expect(page.locator("#secret")).to_be_visible()
    judge(page, "a new token")


@pytest.mark.nightly
def test_a_nic_is_attached_and_detached_by_form_and_its_operations_are_accessible(
    page: Page, running_site: RunningSite
) -> None:
    page.goto("/fabric/")
    page.locator(slot(page, "falcon-1", 1, 7)).click()
    device = page.url
    for target, shown in (("node-b (H2)", "node-b"), ("no host: detach", "not attached")):
        page.select_option("#target", label=target)
        page.click("form[data-compose-form] button")
        page.click("#attach-yes")
        page.wait_for_url("**/operations/**")
        judge(page, "an operation")
        with hurried(running_site):
            expect(page.locator(".state.done")).to_be_visible()
        judge(page, "an operation that is done")
        page.goto("/fabric/")
        expect(page.locator(slot(page, "falcon-1", 1, 7))).to_contain_text(shown)
        page.goto(device)


@pytest.mark.nightly
def test_a_new_password_and_what_is_refused_are_accessible(
    page: Page, browser: Browser, running_site: RunningSite
) -> None:
    page.goto("/people/add/")
    page.fill("#id_username", "user")
    page.select_option("#id_role", value="user")
    page.select_option("#id_tenant", label="Vision group")
    page.get_by_role("button", name="Add").click()
    expect(page.locator("#secret")).to_be_visible()
    judge(page, "a new password")
    with opened(browser, running_site) as context:
        theirs = sign_in(context, "user", page.locator("#secret").input_value())
        for address, status in (("/system/", 403), ("/devices/999999/", 404), ("/nowhere/", 404)):
            answer = theirs.goto(address)
            assert answer is not None
            assert answer.status == status
            judge(theirs, f"{status} at {address}")


def test_dialogs_and_menus_are_accessible(page: Page) -> None:
    page.goto("/fabric/")
    for summary in page.locator("details.menu > summary").all():
        summary.click()
        judge(page, "a menu")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    judge(page, "keys")
    page.keyboard.press("Escape")
    handle(page, "falcon-1", 1, 6).click()
    judge(page, "a device is held")
    page.locator(port(page, "falcon-1", "H3")).click()
    expect(page.locator("#attach")).to_be_visible()
    judge(page, "the topology's dialog")
    page.click("#attach-no")
    page.goto("/fabric/?view=list")
    page.locator("button[data-compose]").first.click()
    expect(page.locator("#attach")).to_be_visible()
    judge(page, "the list's dialog")
    page.goto("/drawers/1/")
    page.locator("[name=mode]:enabled").first.check()
    page.get_by_role("button", name="Change mode").click()
    expect(page.locator("#mode")).to_be_visible()
    judge(page, "the mode's dialog")


def test_on_a_narrow_screen_the_navigation_is_behind_one_button(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto("/plans/")
    navigation = page.get_by_role("navigation", name="Main")
    button = page.get_by_role("button", name="Menu")
    expect(navigation).to_be_hidden()
    button.focus()
    page.keyboard.press("Enter")
    expect(navigation.get_by_role("link", name="Overview")).to_be_visible()
    judge(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(navigation).to_be_hidden()
    expect(button).to_be_focused()
