"""The published experiment played in the simulated lab."""

from __future__ import annotations

import pytest
from django.test import Client

from benchmarks.sweeps.models import Point, Sweep
from tests.benchmarks.runs.lab import RunningLab
from tests.pages import page_text

PLAY = "/benchmarks/experiment/play/simulated/"


@pytest.mark.process
@pytest.mark.with_agent
def test_the_button_plays_every_cell_the_variants_and_the_pairs_once(lab: RunningLab) -> None:
    client = Client()
    client.force_login(lab.person)
    shown = page_text(client.get(PLAY))
    assert "Start 35 runs" in shown
    assert "falcon-1 Drawer 2 slot 4: V100-PCIE-16GB" in shown
    answers = [client.post(PLAY, {"key": "once"}) for __ in range(2)]
    sweep = Sweep.objects.get()
    assert [answer["Location"] for answer in answers] == [f"/benchmarks/sweeps/{sweep.pk}/"] * 2
    points = Point.objects.filter(sweep=sweep)
    assert {(one.spec["workload"], one.values["placement"], one.values["storage"][:4]) for one in points} >= {
        (workload, placement, storage)
        for workload in ("mobilenet_v2", "resnet50", "yolov5l", "bert_base", "bert_large")
        for placement, storage in (
            ("local", "host"), ("hybrid", "host"), ("spread", "host"), ("local", "own"), ("local", "nvme"),
        )
    }  # fmt: skip
    assert points.count() == 35
    assert "0 of 35 runs have ended" in page_text(client.get("/benchmarks/experiment/"))
    assert client.get(f"/benchmarks/sweeps/{sweep.pk}/").status_code == 200


@pytest.mark.process
@pytest.mark.with_agent
def test_no_host_of_the_lab_trains_on_gpus_and_the_button_says_so(lab: RunningLab) -> None:
    client = Client()
    client.force_login(lab.person)
    assert "Install PyTorch with CUDA" in page_text(client.get("/benchmarks/experiment/"))
    refused = client.post("/benchmarks/experiment/play/torch/")
    assert "Install PyTorch with CUDA" in page_text(refused)
    assert not Sweep.objects.exists()
