"""What docs/api.md says to type works, and the reference page runs under the site's policy."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import hurried, opened, watched
from tests.browser.judging import judge
from tests.processes import ROOT
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite
from tests.waiting import wait_for

pytestmark = pytest.mark.process

EXAMPLE = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "api.md").read_text(), re.DOTALL)


class SignedIn:
    """The administrator of a running site, as a browser would be."""

    def __init__(self, site: RunningSite) -> None:
        self.site = site
        self.jar = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self.jar)
        )
        self.opener.open(f"{site.address}/sign-in/", timeout=60).read()
        form = {"username": "administrator", "password": ADMINISTRATOR_PASSWORD, "csrfmiddlewaretoken": self.forgery()}
        self.opener.open(f"{site.address}/sign-in/", urllib.parse.urlencode(form).encode(), timeout=60).read()

    def forgery(self) -> str:
        """Return the token against forgery."""
        return next(str(cookie.value) for cookie in self.jar if cookie.name == "csrftoken")

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the JSON that is answered."""
        headers = {"X-CSRFToken": self.forgery(), "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.site.address + path, data, headers, method=method)
        with self.opener.open(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")


@pytest.mark.nightly
@pytest.mark.skipif(
    not all(map(shutil.which, ("curl", "jq", "openssl"))), reason="The example needs curl, jq and openssl."
)
def test_the_example_of_the_documentation_attaches_a_device(running_site: RunningSite, tmp_path: Path) -> None:
    administrator = SignedIn(running_site)
    wait_for(lambda: administrator.ask("GET", "/api/v1/devices/")["count"] >= 24, "the site has not seen its chassis")
    made = administrator.ask("POST", "/api/v1/me/tokens/", {"name": str(tmp_path), "scope": "write", "days": 1})
    environment = {**os.environ, "SITE": running_site.address, "TOKEN": made["secret"], "NO_PROXY": "*"}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", EXAMPLE[0]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    shown = json.loads(ran.stdout)
    assert shown["name"]
    assert shown["host_name"]
    assert shown["host_port_label"].startswith("H")
    # The site is shared with other tests: everything goes back where it was.
    free = json.loads((tmp_path / "free.json").read_text())[0]["id"]
    asked = administrator.ask("POST", "/api/v1/operations/", {"device_id": free, "target_host_port_id": None})
    with hurried(running_site):
        wait_for(lambda: administrator.ask("GET", f"/api/v1/operations/{asked['id']}/")["state"] == "done")
    assert administrator.ask("GET", f"/api/v1/devices/{free}/")["host_port_id"] is None
    administrator.ask("DELETE", f"/api/v1/me/tokens/{made['id']}/")


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_reference_page_breaks_no_policy_and_asks_nobody_else(
    browser: Browser, running_site: RunningSite, scheme: str
) -> None:
    with opened(browser, running_site, color_scheme=scheme) as context:
        page, wrong = watched(context)
        page.on(
            "request",
            lambda asked: None if asked.url.startswith((running_site.address, "data:")) else wrong.append(asked.url),
        )
        page.goto("/api/v1/docs/")
        page.fill("#id_username", "administrator")
        page.fill("#id_password", ADMINISTRATOR_PASSWORD)
        page.click("form.narrow button")
        page.wait_for_url("**/api/v1/docs/")
        page.locator("#operations-tag-me button").click()
        page.locator(".opblock-summary").first.wait_for()
        # A link within each button is how the library draws its operations.
        judge(page, without="nested-interactive")
        page.locator("#operations-tag-me button").click()
        # A reading and a writing address, tried out as the signed-in person.
        for one, answer in (("me_retrieve", "administrator"), ("tenants_create", "Documentation tenant")):
            page.locator(f"#operations-tag-{one.partition('_')[0]} button").click()
            block = page.locator(f"[id$=-{one}]")
            block.locator(".opblock-summary-control").click()
            block.get_by_role("button", name="Try it out").click()
            if one == "tenants_create":
                block.locator("textarea").fill(json.dumps({"name": f"{answer} {scheme}"}))
            block.get_by_role("button", name="Execute").click()
            block.locator(".live-responses-table").wait_for()
            assert answer in block.locator(".live-responses-table").inner_text()
        if target := os.environ.get("FALCONWEB_SCREENSHOTS"):
            page.screenshot(path=str(Path(target) / f"api-docs-{scheme}.png"))
    assert wrong == []
