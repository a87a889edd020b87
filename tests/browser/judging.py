"""Judging what a page shows, once it is at rest: by axe in both themes, and whether it fits wide and narrow windows."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Literal

import pytest
from playwright.sync_api import Page

from tests.processes import ROOT
from tests.turns import NIGHTLY, in_turn

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
AT_REST = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const moves = () => document.getAnimations().some((one) => one.playState === "running");
  if (document.readyState !== "complete") await new Promise((done) => addEventListener("load", done, { once: true }));
  await document.fonts.ready;
  do {
    await frame();
    await frame();
    await new Promise((done) => requestIdleCallback(done, { timeout: 2000 }));
  } while (window.awaited || moves() || document.querySelector("[aria-busy=true]"));
}"""
# An element of each look that a page's texts and fields have, by all that decides whether its colours are apart enough.
FIND_LOOKS = """() => {
  const under = new Map();
  const backgrounds = (element) => {
    if (!element) return "";
    if (!under.has(element)) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(element);
      const own = [backgroundColor, backgroundImage, opacity].join();
      under.set(element, (own === "rgba(0, 0, 0, 0),none,1" ? "" : own + ";") + backgrounds(element.parentElement));
    }
    return under.get(element);
  };
  const looks = new Map();
  const see = (element) => {
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) return;
    const style = getComputedStyle(element);
    const link = element.closest("a");
    const off = ":disabled, [aria-disabled=true]";
    const look = [
      ...["color", "fontSize", "fontWeight", "position", "clipPath", "textShadow"].map((name) => style[name]),
      element.matches("input, select, textarea"),
      element.closest(off) !== null || element.closest("label")?.control?.matches(off),
      link && [getComputedStyle(link).textDecorationLine, getComputedStyle(link.parentElement).color],
      backgrounds(element),
    ];
    looks.set(look.join("|"), element);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) if (texts.currentNode.data.trim()) see(texts.currentNode.parentElement);
  document.querySelectorAll("input, select, textarea").forEach(see);
  return looks;
}"""
RUN_AXE = (
    "async ([rules, known]) => { const looks = known ? ("
    + FIND_LOOKS
    + """)() : new Map();
  const parts = known ? [...looks].filter(([look]) => !known.includes(look)).map(([, element]) => element) : document;
  if (parts.length === 0) return [[], []];
  const options = { ...rules, resultTypes: ["violations"], selectors: false, preload: false };
  const { violations } = await axe.run(parts, options);
  return [violations.map((one) => one.id + ": " + one.nodes[0].html.slice(0, 150)), [...looks.keys()]];
}"""
)
ALL_RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]
# A theme changes colours, and nothing that other rules look at.
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
STRUCTURE = {"runOnly": ALL_RULES, "rules": {rule: {"enabled": False} for rule in COLOUR_RULES}}
COLOURS = {"runOnly": {"type": "rule", "values": COLOUR_RULES}}
THEMES: tuple[Literal["dark", "light"], ...] = ("dark", "light")
# By address without numbers, how many times a page was judged.
judged: Counter[str] = Counter()
# Looks in which axe found nothing wrong on some page: by day it looks at nothing alike again.
well: set[str] = set()


@cache
def axe() -> str:
    """Return axe's source; skips the test where it is not installed."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make test installs it")
    return AXE.read_text()


def judge(page: Page, where: str = "", *, without: str = "") -> None:
    """Let axe judge what is shown, `without` one of its rules; see that nothing exceeds the window.

    A page is judged in both themes; what becomes of it (`where`) in the one and the other in turn, at night in both.
    """
    has_axe, is_dark = page.evaluate("['axe' in window, matchMedia('(prefers-color-scheme: dark)').matches]")
    if not has_axe:
        page.evaluate(axe())
    kind = re.sub(r"\?.*|[0-9a-f-]{36}|\d+", "", page.url)
    themes = in_turn(THEMES, judged[kind], of=2) if where and judged[kind] else THEMES
    judged[kind] += 1
    violations = []
    # It begins with the theme that is shown: to change it draws all charts anew.
    for number, scheme in enumerate(sorted(themes, key=lambda one: (one == "dark") != is_dark)):
        page.emulate_media(color_scheme=scheme)
        page.evaluate(AT_REST)
        if number == 0:
            violations, _ = page.evaluate(RUN_AXE, [STRUCTURE, None])
        found, looks = page.evaluate(RUN_AXE, [COLOURS, None if NIGHTLY else sorted(well)])
        violations += [f"{one} ({scheme})" for one in found]
        well.update(looks if not found else ())
    violations = [one for one in violations if not without or not one.startswith(without)]
    assert violations == [], f"{where}: {violations}"
    size = page.viewport_size
    assert size is not None
    # The one that is shown first: each change lays the page out anew.
    for width in sorted((390, 1440), key=lambda width: width != size["width"]):
        if width != size["width"]:
            page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{where}: wider than {width}"
    page.set_viewport_size(size)
