"""Pages and API of figures: who sees which runs, what an address asks for, and what is refused."""

from __future__ import annotations

import csv
import io
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import Role, Tenant, User
from benchmarks.figures.catalogue import FIGURES
from benchmarks.model.calibration import PAPER_TOPOLOGIES
from benchmarks.runs.models import Run
from benchmarks.sweeps.models import Sweep
from tests.benchmarks.figures.making import pairs, run_made, topology
from tests.turns import in_turn

pytestmark = pytest.mark.django_db


@pytest.fixture
def stranger() -> Client:
    other = User.objects.create_user("carol", password="x", role=Role.USER, tenant=Tenant.objects.create(name="Other"))
    client = Client()
    client.force_login(other)
    return client


@pytest.fixture
def study(bob: User) -> list[Run]:
    return [
        run_made(bob, place=place, seconds=seconds, provenance=provenance, steps=20, traffic=1e9, ago=one)
        for one, (place, seconds, provenance) in enumerate(
            (
                ("localGPUs", 0.2, "measured"),
                ("falconGPUs", 0.3, "measured"),
                ("localGPUs", 0.2, "simulated"),
                ("falconGPUs", 0.4, "simulated"),
            )
        )
    ]


def encoded(query: dict[str, Any]) -> str:
    return urlencode({name.rstrip("_"): value for name, value in query.items()}, doseq=True)


def page(client: Client, name: str = "", status: int = 200, **query: Any) -> str:
    answer = client.get(f"/benchmarks/figures/{name}?{encoded(query)}")
    assert answer.status_code == status, answer.content[:500]
    return (answer.getvalue() if answer.streaming else answer.content).decode()


def api(client: Client, name: str = "", status: int = 200, **query: Any) -> Any:
    answer = client.get(f"/api/v1/benchmarks/figures/{name}?{encoded(query)}")
    assert answer.status_code == status, answer.content[:500]
    return answer.json()


def test_without_a_run_the_page_says_why_it_is_empty_and_what_to_do(client: Client) -> None:
    text = page(client)
    assert "there are none yet" in text
    assert "Start a run" in text
    assert page(client, "relative-time/").count("requires runs of training in two configurations")


def test_before_there_are_enough_runs_figures_show_what_the_model_predicts(client: Client, bob: User) -> None:
    offer = re.compile(r'href="/benchmarks/figures/([\w-]+)/\?with=predicted"')

    def shown(name: str, **query: Any) -> set[tuple[str, bool]]:
        marks = [mark for one in api(client, f"{name}/", with_="predicted", **query)["charts"] for mark in one["marks"]]
        return {(mark["provenance"], mark["count"] > 0) for mark in marks}

    assert offer.findall(page(client)) == [one.name for one in FIGURES.values() if "predicted" in one.overlays]
    for name in offer.findall(page(client)):
        assert "There are not enough runs for this figure yet" in page(client, f"{name}/", with_="predicted")
        assert shown(name) == {("predicted", False)}
    # A filter that nothing fits is no lack of runs.
    assert not offer.search(page(client, workload="resnet50"))
    assert shown("pcie", workload="resnet50") == set()
    run_made(bob, place="localGPUs", seconds=0.2, traffic=1e9)
    assert shown("relative-time") == {("measured", True), ("predicted", False)}
    assert "resources" not in offer.findall(page(client))


def test_the_overview_has_a_picture_of_each_available_figure(client: Client, bob: User) -> None:
    def pictures() -> dict[str, set[str]]:
        cards = re.findall(r'<li class="card.*?</li>', page(client), re.DOTALL)
        assert len(cards) == len(FIGURES)
        shapes = r'class="shade-\d (\w+)"'
        return {
            name: set(re.findall(shapes, card)) for name, card in zip(FIGURES, cards, strict=True) if "<svg" in card
        }

    predicted = {name: {"predicted"} for name, entry in FIGURES.items() if "predicted" in entry.overlays}
    assert pictures() == predicted
    for place in ("localGPUs", "falconGPUs"):
        run_made(bob, place=place, seconds=0.2)
    assert pictures() == predicted | {
        name: {"measured"} for name in ("utilisation", "resources", "relative-time", "loss", "step-time")
    }


def test_the_page_offers_the_figures_that_make_sense_and_says_what_others_need(
    client: Client, study: list[Run]
) -> None:
    text = page(client)
    assert 'href="/benchmarks/figures/relative-time/"' in text
    assert 'href="/benchmarks/figures/gpu-to-gpu/"' not in text
    assert "imported tables of p2pBandwidthLatencyTest" in text
    offers = {one["name"]: one["ready"] for one in api(client)["figures"]}
    assert set(offers) == set(FIGURES)
    assert offers["utilisation"]
    assert not offers["software"]
    chosen = [str(study[0].pk)]
    assert not {one["name"]: one["ready"] for one in api(client, run=chosen)["figures"]}["relative-time"]


@pytest.mark.parametrize("name", [*in_turn(FIGURES, 0, of=2)])
def test_every_figure_is_drawn_of_a_study_by_page_api_and_table(client: Client, study: list[Run], name: str) -> None:
    page(client, f"{name}/")
    found = api(client, f"{name}/")
    assert found["title"] == FIGURES[name].title
    page(client, f"{name}/csv/")


def test_page_table_and_api_tell_the_same_numbers(client: Client, study: list[Run]) -> None:
    (chart,) = api(client, "relative-time/")["charts"]
    table = list(csv.DictReader(io.StringIO(page(client, "relative-time/csv/"))))
    assert [float(one["Time relative to localGPUs"]) for one in table] == [one["value"] for one in chart["marks"]]
    assert [one["Provenance"] for one in table] == [one["provenance"] for one in chart["marks"]]
    text = page(client, "relative-time/")
    for mark in chart["marks"]:
        assert f'data-value="{mark["value"]!r}"' in text
    assert {one["provenance"]: one["value"] for one in chart["marks"] if one["group"] == "falconGPUs"} == {
        "measured": pytest.approx(1.5, rel=0.05), "simulated": pytest.approx(2.0, rel=0.05),
    }  # fmt: skip


def test_predictions_stand_beside_as_marks_of_their_own_on_request_alone(client: Client, study: list[Run]) -> None:
    (chart,) = api(client, "relative-time/")["charts"]
    assert chart["provenances"] == ["measured", "simulated"]
    found = api(client, "relative-time/", with_="predicted")
    (chart,) = found["charts"]
    assert chart["provenances"] == ["measured", "simulated", "predicted"]
    (predicted,) = [one for one in chart["marks"] if one["provenance"] == "predicted" and one["group"] == "falconGPUs"]
    assert predicted["low"] < predicted["value"] < predicted["high"]
    assert (predicted["runs"], predicted["count"]) == ([], 0)
    assert "prior" in found["notes"][0]


def test_runs_are_chosen_by_id_by_sweep_and_by_what_they_are(client: Client, bob: User, study: list[Run]) -> None:
    sweep = Sweep.objects.create(title="Grid", requested_by=bob, tenant=bob.tenant)
    Run.objects.filter(pk=study[3].pk).update(sweep=sweep)
    assert api(client)["found"] == 4
    assert api(client, sweep=sweep.pk)["found"] == 1
    assert api(client, run=[study[0].pk], sweep=sweep.pk)["found"] == 2
    assert api(client, provenance="simulated")["found"] == 2
    assert api(client, provenance=["simulated", "measured"], workload="resnet50")["found"] == 4
    assert api(client, workload="vgg16")["found"] == 0
    assert api(client, since="2999-01-01")["found"] == 0
    assert api(client, since="2020-01-01T00:00Z")["found"] == 4
    assert "Sweep ‘Grid’" in page(client, sweep=sweep.pk)
    assert "No completed run matches" in page(client, workload="vgg16")


def test_what_the_list_of_runs_is_filtered_by_is_heeded_and_kept(client: Client, study: list[Run]) -> None:
    Run.objects.filter(pk=study[0].pk).update(title="The odd one", executor="torch")
    Run.objects.filter(pk=study[1].pk).update(state="failed", requested_by_name="carol")
    assert api(client, q="odd")["found"] == 1
    assert api(client, executor="torch")["found"] == 1
    assert api(client)["found"] == 3
    assert api(client, state="failed")["found"] == 1
    assert api(client, state="ended", person="carol")["found"] == 1
    text = page(client, q="odd", state="completed")
    assert "Text ‘odd’" in " ".join(text.split())
    assert "q=odd" in text
    assert 'name="state" value="completed"' in page(client, "relative-time/", q="odd", state="completed")


def test_the_address_keeps_all_that_was_chosen(client: Client, study: list[Run]) -> None:
    query: dict[str, Any] = {"run": [str(one.pk) for one in study[:2]], "baseline": "falconGPUs", "with": "predicted"}
    text = page(client, "relative-time/", **query)
    assert '<option value="falconGPUs" selected>' in text
    assert text.count(f'name="run" value="{study[0].pk}"') == 1
    assert "baseline=falconGPUs" in text
    assert 'value="predicted" checked' in text


def test_a_stranger_sees_none_of_it(stranger: Client, bob: User, study: list[Run]) -> None:
    sweep = Sweep.objects.create(title="Grid", requested_by=bob, tenant=bob.tenant)
    assert api(stranger)["found"] == 0
    text = page(stranger)
    assert "ResNet-50" not in text
    queries: list[dict[str, Any]] = [{"run": study[0].pk}, {"sweep": sweep.pk}]
    for query in queries:
        page(stranger, status=404, **query)
        page(stranger, "loss/", status=404, **query)
        page(stranger, "loss/csv/", status=404, **query)
        api(stranger, status=404, **query)
        api(stranger, "loss/", status=404, **query)
    ids = [str(one.pk) for one in study[:2]]
    page(stranger, "compare/", status=404, run=ids)
    address = f"{reverse('api:comparison')}?{urlencode({'run': ids}, doseq=True)}"
    assert stranger.get(address).status_code == 404


def test_one_run_that_is_not_seen_hides_none_of_the_others_but_refuses_all(client: Client, study: list[Run]) -> None:
    theirs = run_made(None, steps=5)
    api(client, status=404, run=[study[0].pk, theirs.pk])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"run": "nonsense"}, "run"),
        ({"sweep": "7"}, "sweep"),
        ({"host": "x"}, "host"),
        ({"provenance": "invented"}, "provenance"),
        ({"since": "yesterday"}, "since"),
        ({"since": "0001-01-01T00:00+14:00"}, "since"),
        ({"with": "luck"}, "with"),
        ({"state": "tired"}, "state"),
        ({"executor": "abacus"}, "executor"),
        ({"q": "\0"}, "q"),
        ({"person": "a\0"}, "person"),
        ({"workload": "a\0"}, "workload"),
        ({"time": "weeks"}, "time"),
        ({"reading": "mood"}, "reading"),
        ({"run": [f"00000000-0000-0000-0000-{one:012}" for one in range(201)]}, "run"),
        ({"workload": "x" * 300}, "workload"),
    ],
)
def test_what_is_wrong_in_an_address_is_named(client: Client, query: dict[str, Any], field: str) -> None:
    assert field in api(client, "utilisation/", status=400, **query)["errors"]
    assert 'role="alert"' in page(client, status=400, **query)
    assert 'role="alert"' in page(client, "utilisation/", status=400, **query)
    page(client, "utilisation/csv/", status=400, **query)


def test_an_unknown_baseline_names_those_that_there_are(client: Client, study: list[Run]) -> None:
    told = api(client, "relative-time/", status=400, baseline="moonGPUs")["errors"]["baseline"]
    assert "falconGPUs" in told
    assert "falconGPUs" in page(client, "relative-time/", status=400, baseline="moonGPUs")


def test_unknown_parameters_figures_and_charts_are_refused(client: Client, study: list[Run]) -> None:
    assert "baselin" in api(client, "relative-time/", status=400, baselin="x")["errors"]
    assert "baseline" in api(client, status=400, baseline="x")["errors"]
    api(client, "horoscope/", status=404)
    page(client, "horoscope/", status=404)
    page(client, "horoscope/csv/", status=404)
    page(client, "loss/csv/", status=404, chart="horoscope")


def test_a_run_without_series_or_results_is_left_out_and_told_of(client: Client, bob: User, study: list[Run]) -> None:
    failed = run_made(bob, title="It crashed", state="failed", has_series=False)
    text = page(client, "loss/", run=[failed.pk, study[0].pk])
    assert "1 run without results: ‘It crashed’" in text
    assert "1 without results is left out" in page(client, run=[failed.pk, study[0].pk])
    assert "Not available for these runs" in page(client, "loss/", run=failed.pk)


def test_a_chart_names_the_runs_in_it_that_were_not_alone(client: Client, study: list[Run]) -> None:
    Run.objects.filter(pk=study[1].pk).update(overlaps=[{"shared": ["host"], "seconds": 3.0}], title="Met another")
    says = "1 run was not alone on its host and links: ‘Met another’."
    assert says in page(client, "step-time/", run=[one.pk for one in study[:2]])
    assert says not in page(client, "step-time/", run=study[0].pk)


def test_imported_runs_alone_are_drawn_as_imported(client: Client, bob: User) -> None:
    two = topology(local=2)
    tables = {"bandwidth": pairs(two)}
    run_made(
        bob, workload="gpu_bandwidth", place=two, provenance="imported", tables=tables, units={"bandwidth": "GB/s"}
    )
    chart = api(client, "gpu-to-gpu/")["charts"][0]
    assert [(one["x"], one["value"], one["provenance"]) for one in chart["marks"]] == [
        ("local-local", 72.0, "imported")
    ]
    assert "imported" in page(client, "gpu-to-gpu/")


def test_a_record_of_elsewhere_in_another_shape_breaks_nothing(client: Client, bob: User, study: list[Run]) -> None:
    odd = run_made(bob, provenance="imported", steps=5)
    Run.objects.filter(pk=odd.pk).update(
        workload="made_up",
        spec={"name": "x"},
        topology={"racks": 3},
        results={"step_seconds": "fast"},
        software={"a": [1]},
    )
    for name in FIGURES:
        page(client, f"{name}/")
    assert "specification not recorded" not in page(client, "loss/")
    page(client, "compare/", run=[odd.pk, study[0].pk])


def test_two_hundred_runs_are_drawn_and_what_is_more_is_told_of(
    client: Client, bob: User, django_assert_max_num_queries: Any
) -> None:
    first = run_made(bob, steps=5)
    Run.objects.bulk_create(
        Run(
            title=f"Run {one}", workload="resnet50", state="completed", provenance="measured", tenant=bob.tenant,
            requested_by_name="bob", spec=first.spec, topology=first.topology, results=first.results,
        )
        for one in range(204)
    )  # fmt: skip
    found = api(client)
    assert (found["found"], found["used"]) == (205, 200)
    with django_assert_max_num_queries(40):
        text = page(client, "resources/")
    assert "There are 205 runs: the newest 200 are shown" in text
    assert api(client, "resources/")["charts"][0]["marks"][0]["runs"].__len__() == 200
    assert "the newest of 205" in page(client)


def test_a_name_that_begins_like_a_formula_is_none_in_a_table(client: Client, bob: User) -> None:
    run_made(bob, title='=HYPERLINK("http://127.0.0.1")', steps=5)
    head = page(client, "loss/csv/").splitlines()[0]
    assert "'=HYPERLINK" in head
    assert ",=HYPERLINK" not in head


def test_a_name_with_markup_stays_a_name(client: Client, bob: User) -> None:
    run_made(bob, title="</script><script>alert(1)</script>", steps=5)
    for text in (page(client), page(client, "loss/")):
        assert "<script>alert(1)" not in text


def test_what_is_the_same_stands_once_and_ratios_are_to_the_first(client: Client, study: list[Run]) -> None:
    text = page(client, "compare/", run=[str(study[0].pk), str(study[1].pk)])
    assert text.index("The same in all") < text.index("What differs") < text.index("Results")
    assert text.count("<dt>Batch</dt>") == 1
    assert "localGPUs" in text
    assert "different provenance" not in text
    ids = urlencode({"run": [str(study[1].pk), str(study[0].pk)]}, doseq=True)
    answer = client.get(f"{reverse('api:comparison')}?{ids}").json()
    assert [one["id"] for one in answer["runs"]] == [str(study[1].pk), str(study[0].pk)]
    differ = {one["name"] for one in answer["facts"] if one["differs"]}
    assert "configuration" in differ
    assert "batch" not in differ
    step = answer["results"][0]
    assert step["values"][0]["ratio"] is None
    assert step["values"][1]["ratio"] == pytest.approx(2 / 3, rel=0.05)
    assert step["values"][1]["ratio_low"] < step["values"][1]["ratio"] < step["values"][1]["ratio_high"]


def test_runs_of_different_provenance_are_compared_with_a_word_of_warning(client: Client, study: list[Run]) -> None:
    assert "different provenance" in page(client, "compare/", run=[study[0].pk, study[2].pk])


def test_one_run_none_and_nine_are_no_comparison(client: Client, bob: User, study: list[Run]) -> None:
    assert "Choose 2 to 8" in page(client, "compare/")
    assert "nothing to be compared with" in page(client, "compare/", run=study[0].pk)
    nine = [run_made(bob, steps=2, has_series=False).pk for _ in range(9)]
    assert "9 runs are more than fit" in page(client, "compare/", status=400, run=nine)
    answer = client.get(f"{reverse('api:comparison')}?run={study[0].pk}")
    assert "run" in answer.json()["errors"]


def test_a_viewer_sees_what_their_tenant_measured(bob: User, study: list[Run]) -> None:
    viewer = Client()
    viewer.force_login(User.objects.create_user("eve", password="x", role=Role.VIEWER, tenant=bob.tenant))
    assert api(viewer)["found"] == len(study)
    assert PAPER_TOPOLOGIES["falconGPUs"].name in page(viewer)
