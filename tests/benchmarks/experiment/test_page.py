"""The published experiment as a page: verdicts, charts and who sees which runs."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from django.template.loader import render_to_string
from django.test import Client

from accounts.models import Role, Tenant, User
from benchmarks.experiment.figures import EXPERIMENT_FIGURES
from benchmarks.experiment.published import observation_label
from benchmarks.experiment.selectors import ObservationVerdict
from benchmarks.model import paper_rows, published_belief
from benchmarks.model.calibration import PAPER_TOPOLOGIES, paper_spec
from benchmarks.model.observations import judge_observations
from benchmarks.model.paper_study import PaperStudy
from benchmarks.model.published_observations import TRAFFIC
from benchmarks.simulation import simulate_step
from benchmarks.simulation.observations import SimulatedObservation, simulated_observations
from benchmarks.workloads.catalogue import workload_title
from tests.benchmarks.figures.making import run_made
from tests.pages import page_text

pytestmark = pytest.mark.django_db
PAGE = "/benchmarks/experiment/"


def page(client: Client, path: str = "") -> str:
    answer = client.get(PAGE + path)
    assert answer.status_code == 200
    return page_text(answer)


def table(client: Client, figure: str, chart: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(page(client, f"{figure}/csv/?chart={chart}"))))


def test_without_any_run_all_figures_follow_in_their_order_with_a_verdict_on_each_observation(client: Client) -> None:
    text = page(client)
    places = [text.index(f'id="{slug}"') for slug in EXPERIMENT_FIGURES]
    assert places == sorted(places)
    judged = judge_observations()
    assert f"{sum(one.holds for one in judged)} of {len(judged)} published observations" in text
    simulated = simulated_observations().values()
    assert f"{sum(one.holds for one in simulated)} of the {len(simulated)} that it can show" in text
    for one in judged:
        section = text[text.index(f"<b>{observation_label(one.observation.key)}</b>") :]
        assert section.index("holds" if one.holds else "does not hold") < section.index("</p>")
    assert len(text) < 150_000


def test_relative_times_are_those_of_the_model_beside_the_published_limits(client: Client) -> None:
    rows = table(client, "figure-11", "relative-time")
    shown = {
        (row["Workload"], row["Configuration"]): float(row["Time relative to localGPUs"])
        for row in rows
        if row["Provenance"] == "predicted"
    }
    for one in paper_rows():
        if one.configuration in {"localGPUs", "hybridGPUs", "falconGPUs"}:
            assert shown[workload_title(one.workload), one.configuration] == pytest.approx(1 + one.overhead)
    assert {row["Workload"]: row["Time relative to localGPUs"] for row in rows if row["Provenance"] == "published"} == {
        "MobileNetV2": "< 1.05", "ResNet-50": "< 1.05", "YOLOv5-L": "< 1.07", "BERT-large": "≈ 2",
    }  # fmt: skip


def test_nothing_is_published_but_what_the_publication_gives(client: Client) -> None:
    found: dict[str, set[str]] = {}
    for slug in EXPERIMENT_FIGURES:
        for chart in client.get(f"{PAGE}{slug}/").context["drawing"].charts:
            values = {row[3] for row in chart.rows() if "published" in row} if chart.kind == "bars" else set()
            found[chart.name] = {f"{one}" for one in values}
    assert {name: values for name, values in found.items() if values} == {
        "gpu-bandwidth": {"72.37", "19.64", "24.47"},
        "gpu-latency": {"1.85", "2.66", "2.08"},
        "gpu": {"> 80"},
        "relative-time": {"< 1.05", "< 1.07", "≈ 2"},
        "pcie": {f"{one}" for one in TRAFFIC.values()},
        "software": {"< 0.5", "< 0.3"},
    }


def test_runs_of_the_published_cells_stand_beside_by_their_provenance_and_others_are_left_out(
    client: Client, bob: User
) -> None:
    before = table(client, "figure-11", "relative-time")
    for place, seconds in (("localGPUs", 0.2), ("falconGPUs", 0.21)):
        run_made(bob, place=place, seconds=seconds)
        run_made(bob, place=place, seconds=3 * seconds, provenance="simulated", batch=17)
    rows = table(client, "figure-11", "relative-time")
    measured = [row for row in rows if row["Provenance"] == "measured"]
    assert [row["Time relative to localGPUs"][:4] for row in measured] == ["1.0", "1.05"]
    assert [row for row in rows if row not in measured] == before
    assert "Left out: 2 runs" in page(client, "figure-11/")
    assert "2 completed runs of these cells" in page(client)


def test_another_tenant_sees_none_of_these_runs(bob: User) -> None:
    for place in ("localGPUs", "falconGPUs"):
        run_made(bob, place=place, title="Secret")
    carol = User.objects.create_user("carol", password="x", role=Role.USER, tenant=Tenant.objects.create(name="Other"))
    other = Client()
    other.force_login(carol)
    shown = page(other) + "".join(page(other, f"{slug}/") for slug in EXPERIMENT_FIGURES)
    assert "Secret" not in shown
    assert "2 completed runs" not in shown
    assert not [row for row in table(other, "figure-11", "relative-time") if row["Runs"]]
    assert "measured" not in page(other, "figure-11/csv/")


def test_simulated_values_are_those_of_the_event_simulation_until_runs_of_all_cells_take_their_place(
    client: Client, bob: User
) -> None:
    def ratio() -> tuple[object, str]:
        found = [
            row
            for row in table(client, "figure-11", "relative-time")
            if (row["Workload"], row["Configuration"], row["Provenance"]) == ("ResNet-50", "falconGPUs", "simulated")
        ]
        return float(found[0]["Time relative to localGPUs"]), found[0]["Runs"]

    spec = paper_spec("resnet50")
    local, falcon = (simulate_step(spec, PAPER_TOPOLOGIES[name]).step_seconds for name in ("localGPUs", "falconGPUs"))
    assert ratio() == (pytest.approx(falcon / local), "")
    for place, seconds in (("localGPUs", 0.2), ("falconGPUs", 0.5)):
        run_made(bob, place=place, seconds=seconds, provenance="simulated")
    assert ratio() == (pytest.approx(falcon / local), "")
    assert "Left out: 2 runs until all cells of the workload" in page(client, "figure-11/")
    run_made(bob, place="hybridGPUs", seconds=0.4, provenance="simulated")
    assert ratio() == (pytest.approx(2.5, rel=0.05), "1")


def test_a_software_variant_is_in_its_figure_alone(client: Client, bob: User) -> None:
    run_made(bob, workload="bert_large", place="localGPUs", strategy="dp")
    run_made(bob, workload="bert_large", place="localGPUs", precision="fp32", batch=4)
    measured = {
        slug: {row["Provenance"] for row in table(client, slug, chart)}
        for slug, chart in (("figure-11", "relative-time"), ("figure-10", "gpu"), ("figure-16", "software"))
    }
    assert {slug for slug, found in measured.items() if "measured" in found} == {"figure-16"}


def test_storage_is_predicted_of_whole_trainings(client: Client) -> None:
    study = PaperStudy(published_belief())
    rows = {(one["Workload"], one["Storage"]): one for one in table(client, "figure-15", "training-storage")}
    for name, storage in (("localNVMe", "local NVMe"), ("falconNVMe", "Falcon NVMe")):
        ratio = study.figure("training", "bert_large", name) / study.figure("training", "bert_large", "localGPUs")
        found = rows["BERT-large", storage]
        assert float(found["Time relative to local storage"]) == pytest.approx(ratio.value)
        assert float(found["Low"]) <= ratio.value <= float(found["High"])


def test_an_observation_that_does_not_hold_is_told_by_word_and_sign() -> None:
    first, second, *__ = judge_observations()
    missed = SimulatedObservation(simulated="+19.0%", value=0.19, holds=False)
    shown = [
        ObservationVerdict("O1", replace(first, holds=False, fitted=False), None),
        ObservationVerdict("O2", replace(second, holds=True, fitted=True), missed),
    ]
    text = " ".join(render_to_string("benchmarks/experiment/verdicts.html", {"verdicts": shown}).split())
    assert '<b>O1</b> <span class="state failed">does not hold</span>' in text
    assert '<b>O2</b> <span class="state done">holds</span> <span class="faint"> the model is fitted to it' in text
    assert '+19.0% <span class="state failed">does not hold</span>' in text


def test_the_api_has_the_verdicts_and_charts_of_the_page(client: Client, bob: User) -> None:
    for place in ("localGPUs", "falconGPUs"):
        run_made(bob, place=place)
    found = client.get("/api/v1/benchmarks/experiment/").json()
    assert [one["name"] for one in found["figures"]] == list(EXPERIMENT_FIGURES)
    assert [(one["key"], one["holds"]) for one in found["observations"]] == [
        (one.observation.key, one.holds) for one in judge_observations()
    ]
    assert {one["key"]: one["simulated"]["holds"] for one in found["observations"] if one["simulated"]} == {
        key: one.holds for key, one in simulated_observations().items()
    }
    assert [one["title"] for one in found["workloads"]][-1] == "BERT-large"
    of_figure = client.get("/api/v1/benchmarks/experiment/figure-11/").json()
    assert of_figure == found["figures"][list(EXPERIMENT_FIGURES).index("figure-11")]
    (chart,) = of_figure["charts"]
    rows = table(client, "figure-11", "relative-time")
    assert [(one["x"], one["group"], one["provenance"], one["value"]) for one in chart["marks"]] == [
        (row["Workload"], row["Configuration"], row["Provenance"], float(row["Time relative to localGPUs"]))
        for row in rows
        if row["Provenance"] != "published"
    ]
    assert len(chart["bounds"]) == 4
    assert client.get("/api/v1/benchmarks/experiment/figure-17/").status_code == 404


def test_observations_have_labels_to_read() -> None:
    assert [observation_label(key) for key in ("O1", "O3-time", "O4-bert_large")] == ["O1", "O3 time", "O4 BERT-large"]


def test_an_unknown_figure_or_chart_is_not_found(client: Client) -> None:
    for path in ("figure-17/", "figure-17/csv/", "figure-11/csv/?chart=loss"):
        assert client.get(PAGE + path).status_code == 404
