"""The page of components, as a site in DEBUG has it: what axe finds there is wrong on every page that uses them."""

from __future__ import annotations

from django.template.loader import render_to_string
from django.test import RequestFactory
from playwright.sync_api import Page

from accounts.models import Role, User
from accounts.sign_in.security import SessionStore
from falconweb.patterns import samples
from tests.browser.judging import judge


def test_every_component_reads_well_in_both_themes_wide_and_narrow(page: Page) -> None:
    request = RequestFactory().get("/patterns/")
    request.user, request.session = User(username="ada", role=Role.USER), SessionStore()
    shown = render_to_string("falconweb/patterns.html", samples(), request)
    page.route("**/patterns/", lambda route: route.fulfill(body=shown, content_type="text/html; charset=utf-8"))
    # A page that no server sent is of no known network to Chromium, which lets it open no socket to this machine.
    page.route_web_socket("**/ws/live/", lambda _: None)
    page.goto("/patterns/")
    assert page.locator("main section.card").count() > 10
    judge(page, "of components")
