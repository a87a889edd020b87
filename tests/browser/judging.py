"""Judging what a page shows, once it is at rest: by axe in both themes, and whether it fits wide and narrow windows."""

from __future__ import annotations

from functools import cache
from typing import Literal

import pytest
from playwright.sync_api import Page

from tests.processes import ROOT

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
# Run before a page's own scripts: how many answers it waits for.
COUNT_FETCHES = """(() => {
  const { fetch } = window;
  window.awaited = 0;
  window.fetch = async (...given) => {
    window.awaited += 1;
    try {
      return await fetch(...given);
    } finally {
      // Whoever asked goes on first.
      setTimeout(() => { window.awaited -= 1; });
    }
  };
})()"""
RUN_AXE = """async (runOnly) => {
  const frame = () => new Promise(requestAnimationFrame);
  const moves = () => document.getAnimations().some((one) => one.playState === "running");
  await document.fonts.ready;
  do {
    await frame();
    await frame();
    await new Promise((done) => requestIdleCallback(done, { timeout: 2000 }));
  } while (window.awaited || moves() || document.querySelector("[aria-busy=true]"));
  const { violations } = await axe.run({ runOnly, resultTypes: ["violations"], preload: false });
  return violations.map((one) => one.id + ": " + one.nodes[0].html.slice(0, 150));
}"""
ALL_RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]
# A theme changes colours, and nothing that other rules look at.
COLOUR_RULES = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
THEMES: tuple[tuple[Literal["dark", "light"], object], ...] = (("dark", ALL_RULES), ("light", COLOUR_RULES))


@cache
def axe() -> str:
    """Return axe's source; skips the test where it is not installed."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make test installs it")
    return AXE.read_text()


def judge(page: Page, where: str = "", *, without: str = "") -> None:
    """Let axe judge what is shown, in both themes, `without` one of its rules; see that nothing exceeds the window."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe())
    for scheme, rules in THEMES:
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate(RUN_AXE, rules)
        violations = [one for one in found if not without or not one.startswith(without)]
        assert violations == [], f"{where} ({scheme})"
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, where
