"""The page of deployments in a browser: fields, JSON beside them, and files without leaving the page."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.judging import judge


def test_a_form_makes_a_script_and_json_is_a_tab(page: Page) -> None:
    page.goto("/benchmarks/deploy/")
    expect(page.locator("#request")).to_be_hidden()
    page.get_by_label("Command").fill("python train.py --batch {batch}")
    page.get_by_label("Workload").select_option("resnet50")
    page.get_by_label("GPUs").fill("2")
    page.get_by_role("button", name="Generate files").click()
    expect(page.get_by_role("tab", name="Slurm script")).to_be_visible()
    expect(page.locator("#text-slurm")).to_contain_text("--gres=gpu:2")
    expect(page.get_by_label("Command")).to_have_value("python train.py --batch {batch}")
    judge(page, "a deployment")
    page.get_by_role("tab", name="Form").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="JSON")).to_be_focused()
    expect(page.locator("#request")).to_be_visible()
    expect(page.get_by_label("Command")).to_be_hidden()
