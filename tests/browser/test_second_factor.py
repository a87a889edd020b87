"""Passkeys of Chromium's virtual authenticator, and an authenticator app, from their page to the next sign-in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyotp
import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from tests.browser.conftest import WIDE, give_password, opened, see_signed_in, sign_in, without_errors
from tests.browser.judging import judge
from tests.site import RunningSite

AUTHENTICATOR = {
    "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
    "isUserVerified": True, "automaticPresenceSimulation": True,
}  # fmt: skip


def added(administrator: BrowserContext, name: str) -> str:
    """Add a viewer; return the password."""
    token = next(str(one["value"]) for one in administrator.cookies() if one["name"] == "csrftoken")
    answer = administrator.request.post(
        "/api/v1/people/",
        data={"username": name, "role": "viewer", "tenant_id": 1},
        headers={"X-CSRFToken": token},
    )
    assert answer.ok, answer.text()
    return str(answer.json()["password"])


@contextmanager
def named(browser: Browser, site: RunningSite) -> Iterator[BrowserContext]:
    """Open a context on the site by its host name, which passkeys need."""
    with opened(browser, site, base_url=f"http://localhost:{site.port}", viewport=WIDE) as context:
        yield context


def test_a_passkey_is_made_signs_in_alone_and_is_a_second_factor(
    administrator: BrowserContext, browser: Browser, running_site: RunningSite
) -> None:
    name = "passkey-user"
    password = added(administrator, name)
    with named(browser, running_site) as context, without_errors(context) as page:
        devtools = context.new_cdp_session(page)
        devtools.send("WebAuthn.enable")
        devtools.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
        give_password(page, name, password)
        see_signed_in(page, name)
        page.goto("/account/")
        page.get_by_role("link", name="Add a passkey").click()
        page.fill("#id_name", "laptop")
        page.get_by_role("button", name="Continue").click()
        create = page.get_by_role("button", name="Create the passkey")
        expect(create).to_be_visible()
        judge(page, "a passkey is about to be made")
        create.click()
        expect(page.get_by_role("link", name="Download as text")).to_be_visible()
        judge(page, "recovery codes")
        page.goto("/account/")
        judge(page, "an account with a passkey")

        context.clear_cookies()
        page.goto("/sign-in/?next=/account/")
        page.get_by_role("button", name="Sign in with a passkey").click()
        page.wait_for_url("**/account/")
        see_signed_in(page, name)

        context.clear_cookies()
        give_password(page, name, password)
        use = page.get_by_role("button", name="Use a passkey")
        expect(use).to_be_visible()
        judge(page, "a second factor")
        use.click()
        see_signed_in(page, name)

        page.goto("/account/")
        page.get_by_role("link", name="laptop").click()
        judge(page, "a passkey")
        page.get_by_role("button", name="Remove the passkey").click()
        expect(page.get_by_text("was removed here")).to_be_visible()


def test_an_authenticator_app_is_added_and_each_of_its_codes_signs_in_once(
    administrator: BrowserContext, browser: Browser, running_site: RunningSite
) -> None:
    name = "app-user"
    password = added(administrator, name)
    with opened(browser, running_site, viewport=WIDE) as context:
        page = sign_in(context, name, password)
        page.goto("/account/authenticator/")
        assert page.locator(".qr-code").evaluate(
            "async (one) => { await one.decode(); return one.naturalWidth > 100; }"
        )
        judge(page, "a new authenticator app")
        app = pyotp.TOTP(page.locator("#secret").input_value())
        page.fill("#id_code", app.now())
        page.get_by_role("button", name="Add the app").click()
        codes = page.locator("main pre").inner_text().split()[-10:]

        code = app.at(int(time.time()) + 30)  # the one of now was used
        for attempt in ("first", "second"):
            context.clear_cookies()
            give_password(page, name, password)
            page.fill("#id_code", code)
            page.get_by_role("button", name="Use the code").click()
            if attempt == "first":
                see_signed_in(page, name)
        expect(page.get_by_text("was used before")).to_be_visible()
        judge(page, "a code that was used before")
        page.fill("#id_code", codes[0])
        page.get_by_role("button", name="Use the code").click()
        expect(page.get_by_text("You have 9 recovery codes left")).to_be_visible()
        page.goto("/account/")
        page.get_by_role("button", name="Remove the authenticator app").click()
        expect(page.get_by_text("was removed")).to_be_visible()


@pytest.mark.nightly
def test_under_a_plain_address_the_page_says_what_passkeys_need(browser: Browser, running_site: RunningSite) -> None:
    with opened(browser, running_site) as context:
        page = context.new_page()
        page.goto("/sign-in/")
        page.get_by_role("button", name="Sign in with a passkey").click()
        expect(page.get_by_role("alert")).to_contain_text("host name")
