"""What the judge of pages finds: in the header and in what is below it, in either theme, and what is too wide."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.browser.judging import judge
from tests.turns import in_turn

PAGE = """<!doctype html><html lang="en"><head><title>A page</title><meta name="color-scheme" content="dark light">
<style>:root { color-scheme: light dark; color: CanvasText; background: Canvas }</style></head>
<body><header><a href="/">A site</a>%s</header><main><h1>A page</h1>%s</main></body></html>"""
PALE_WHEN_LIGHT = '<p style="color: light-dark(#aaa, #fff)">Words</p>'
PALE_WHEN_DARK = '<p style="color: light-dark(#000, #444)">Words</p>'
FAULTS = {
    PALE_WHEN_LIGHT: "color-contrast",
    PALE_WHEN_DARK: "color-contrast",
    '<input type="text">': "label",
    "<ul><p>Words</p></ul>": "list",
    '<p style="width: 1000px">Words</p>': "wider than 390",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_in_the_header_and_in_the_page(browser: Browser, fault: str) -> None:
    with browser.new_page() as page:
        page.set_content(PAGE % ("", ""))
        judge(page)
        for inside in in_turn(((fault, ""), ("", fault)), list(FAULTS).index(fault), of=2):
            page.set_content(PAGE % inside)
            with pytest.raises(AssertionError, match=FAULTS[fault]):
                judge(page)
