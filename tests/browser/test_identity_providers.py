"""People of a company in Chromium: through OpenID Connect and LDAP, from the administrator's forms to their sign-in."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from falconweb.launch.broker import free_port
from tests.accounts.providers import running_openid_provider
from tests.accounts.slapd import BASE, SITE_DN, SITE_PASSWORD, SLAPD, Directory
from tests.browser.conftest import WIDE, give_password, opened, see_signed_in, without_errors
from tests.browser.judging import judge
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite


def add_provider(page: Page, kind: str, **values: str) -> int:
    """Add a provider, switched on, with a rule for the group 'vision'; return its id."""
    page.goto(f"/identity-providers/add/?kind={kind}")
    for name, value in values.items():
        page.fill(f"#id_{name}", value)
    page.check("#id_enabled")
    page.locator("main form button").first.click()
    page.wait_for_url("**/rules/")
    page.fill("#id_rules-0-group", "vision")
    page.select_option("#id_rules-0-role", "viewer")
    page.select_option("#id_rules-0-tenant", "1")
    page.fill("#id_sample", "vision")
    page.get_by_role("button", name="Try, without saving").click()
    expect(page.get_by_text("Rule 1 fits")).to_be_visible()
    judge(page, f"rules of {kind}")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("They count from each person's next sign-in")).to_be_visible()
    return int(page.url.split("/")[-3])


def sign_in_there(page: Page, name: str) -> None:
    """Sign in at the provider's own page, and agree where it asks."""
    page.fill("[name=login]", name)
    page.fill("[name=password]", "any")
    page.click("button[type=submit]")


def test_a_person_signs_in_at_the_companys_provider_and_confirms_there(
    page: Page, browser: Browser, running_site: RunningSite
) -> None:
    port = free_port()
    number = add_provider(
        page, "oidc", name="Company", address=f"http://127.0.0.1:{port}", client_id="falconweb", secret="of-the-client"
    )
    page.goto(f"/identity-providers/{number}/")
    judge(page, "a provider")
    answers_to = page.get_by_text("/answer/").inner_text()
    with opened(browser, running_site, viewport=WIDE) as context:
        theirs = context.new_page()
        with running_openid_provider(port, answers_to):
            theirs.goto("/sign-in/?next=/account/")
            judge(theirs, "a sign-in page with a provider")
            theirs.get_by_role("link", name="Sign in with Company").click()
            sign_in_there(theirs, "olga")
            theirs.get_by_role("button", name="Continue").click()
            theirs.wait_for_url("**/account/")
            see_signed_in(theirs, "olga")
            expect(theirs.get_by_text("You sign in through Company")).to_be_visible()
            theirs.goto("/account/confirmation/?next=/account/")
            judge(theirs, "a confirmation at a provider")
            theirs.get_by_role("link", name="Confirm at Company").click()
            sign_in_there(theirs, "olga")
            theirs.wait_for_url("**/account/")


@pytest.mark.skipif(SLAPD is None, reason="slapd is not installed: apt-get install slapd ldap-utils")
def test_a_person_of_the_directory_signs_in_and_the_page_says_when_it_is_away(
    page: Page, browser: Browser, running_site: RunningSite
) -> None:
    with Directory() as directory, opened(browser, running_site, viewport=WIDE) as context:
        add_provider(
            page, "ldap", name="Company directory", address=directory.address, ca=directory.ca, bind_dn=SITE_DN,
            secret=SITE_PASSWORD, user_base=f"ou=people,{BASE}", group_base=f"ou=groups,{BASE}",
        )  # fmt: skip
        with without_errors(context) as theirs:
            give_password(theirs, "ada", "of-ada-in-the-directory")
            see_signed_in(theirs, "ada")
        context.clear_cookies()
        theirs = context.new_page()
        give_password(theirs, "bob", "of-bob-in-the-directory")
        expect(theirs.get_by_role("alert")).to_contain_text("None of your groups may sign in here")
        directory.stop()
        give_password(theirs, "ada", "of-ada-in-the-directory")
        expect(theirs.get_by_role("alert")).to_contain_text("Company directory does not answer")
        give_password(theirs, "administrator", ADMINISTRATOR_PASSWORD)
        see_signed_in(theirs, "administrator")
