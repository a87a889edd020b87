"""A Chakra trace in a browser: imported from a file, played on a published configuration, and deleted."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.benchmarks.simulation.traces import COLLECTIVE, COMPUTE, binary, node
from tests.browser.judging import judge


def test_a_trace_is_imported_played_and_deleted(page: Page) -> None:
    nodes = [node(0, COMPUTE, 50_000, is_cpu_op=False), node(1, COLLECTIVE, 0, 0, comm_type=0, comm_size=400_000_000)]
    page.goto("/benchmarks/records/import/")
    page.set_input_files("#file", {"name": "ring.et", "mimeType": "application/octet-stream", "buffer": binary(*nodes)})
    page.get_by_role("button", name="Preview").click()
    judge(page, "the preview of a trace")
    page.get_by_role("button", name="Import the trace").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ring.et")
    page.get_by_label("Host, as it is composed now").select_option("falconGPUs")
    page.get_by_label("GPUs, empty for all").fill("4")
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("heading", name="4 GPUs, falconGPUs")).to_be_visible()
    judge(page, "a trace that was played")
    page.locator("#sure-delete summary").click()
    page.get_by_role("button", name="Delete it").click()
    expect(page.get_by_text("‘ring.et’ was deleted.")).to_be_visible()
