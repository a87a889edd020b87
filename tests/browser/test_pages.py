"""Every page: without a violation that axe finds, without a scroll bar sideways, in light and dark, wide and narrow."""

from __future__ import annotations

import pytest
from django.urls import get_resolver
from playwright.sync_api import Page

from tests.access.test_matrix import names
from tests.processes import ROOT
from tests.site import RunningSite

RUN_AXE = """;
axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
   .then((found) => found.violations.map((one) => one.id + ": " + one.nodes[0].html.slice(0, 150)))
"""
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
# Each page's address; None for addresses that take forms only or show no page.
PAGES: dict[str, str | None] = {
    "accounts:account": "/account/",
    "accounts:account_password": None,
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
    "fabric:chassis": "/chassis/1/",
    "fabric:chassis_add": "/chassis/add/",
    "fabric:chassis_edit": "/chassis/1/edit/",
    "fabric:chassis_remove": "/chassis/1/remove/",
    "fabric:device": "/devices/1/",
    "fabric:devices_csv": None,
    "fabric:drawer": "/drawers/1/",
    "fabric:fabric": "/fabric/",
    "fabric:hosts": "/hosts/",
    "fabric:host": "/hosts/1/",
    "fabric:operation": None,  # looked at in the tests that compose
    "fabric:operations": "/operations/",
    "fabric:overview": "/",
    "fabric:port": "/ports/1/",
    "fabric:slot": "/slots/1/",
    "fabric:system": "/system/",
    "fabric:tenant": "/tenants/1/",
    "fabric:tenant_grants": None,
    "fabric:tenant_removal": None,
}
ADDRESSES = sorted({*filter(None, PAGES.values()), "/fabric/?view=list"})


@pytest.fixture(scope="module", autouse=True)
def tenant(running_site: RunningSite, administrators: dict[str, object]) -> None:
    """One tenant, so that its page is there."""
    page = administrators["light"].new_page()  # type: ignore[attr-defined]
    page.goto("/tenants/add/")
    page.fill("#id_name", "Vision group")
    page.click("main form button")
    page.wait_for_url("**/tenants/1/")
    page.close()


def test_every_page_of_the_routers_has_its_line() -> None:
    pages = {name for name in names(get_resolver().url_patterns) if not name.startswith("api:")}
    assert pages == set(PAGES)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_page_is_accessible_and_fits(page: Page, address: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make test installs it")
    page.goto(address)
    page.wait_for_timeout(300)
    violations = page.evaluate(AXE.read_text() + RUN_AXE)
    assert violations == []
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
