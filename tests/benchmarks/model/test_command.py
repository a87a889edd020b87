"""`manage.py predict`, without a database."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from benchmarks.model.calibration import PAPER_CONFIGURATIONS, PAPER_WORKLOADS
from benchmarks.model.published_observations import OBSERVATIONS
from falconweb.config import BASE_DIR

EXAMPLES = BASE_DIR / "docs" / "topologies"
FALCON = f"--topology={EXAMPLES / 'falconGPUs.json'}"


def predict(*arguments: str) -> tuple[int, str, str]:
    """Run the command; returns its exit code, what it printed, and what it complained of."""
    out, complaints = io.StringIO(), io.StringIO()
    try:
        call_command("predict", *arguments, stdout=out, stderr=complaints)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue(), complaints.getvalue()
    return 0, out.getvalue(), complaints.getvalue()


def predicted(*arguments: str) -> dict[str, Any]:
    code, out, complaints = predict(*arguments, "--json")
    assert code == 0, complaints
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_published_experiment_is_25_cells() -> None:
    rows: Any = predicted("--paper")
    assert [(row["workload"], row["configuration"]) for row in rows] == [
        (workload, configuration) for workload in PAPER_WORKLOADS for configuration in PAPER_CONFIGURATIONS
    ]
    for row in rows:
        low, high = row["interval"]
        assert low < row["step_seconds"] < high
        worst, best = row["overhead_interval"]
        assert worst <= row["overhead_vs_localGPUs"] <= best
        local = row["configuration"] == "localGPUs"
        assert not local or row["overhead_vs_localGPUs"] == 0
        has_traffic = row["configuration"] in ("hybridGPUs", "falconGPUs")
        assert (row["pcie_gigabytes_per_second"] > 0) == has_traffic
        assert row["provenance"] == "predicted"


def test_a_prediction_in_words_gives_interval_terms_and_basis() -> None:
    code, out, _ = predict("bert_large", FALCON)
    assert code == 0
    for word in ("90% between", "compute", "communication", "input", "optimiser", "Prior:", "GB/s"):
        assert word in out


def test_settings_change_what_is_predicted() -> None:
    whole = predicted("bert_large", FALCON)
    half = predicted("bert_large", FALCON, "--set", "gradient=fp16", "--batch", "3", "--set", "options.sequence=128")
    assert half["step_seconds"] < whole["step_seconds"]
    assert half["spec"]["batch"] == 3
    assert half["spec"]["options"]["sequence"] == 128
    assert predicted("bert_large", FALCON, "--strategy", "single")["spec"]["devices"] == 1
    assert predicted("resnet50", FALCON, "--preset", "tiny")["spec"]["backend"] == "cpu"


def test_a_run_takes_the_devices_that_are_there(tmp_path: Path) -> None:
    plain = json.loads((EXAMPLES / "falconGPUs.json").read_text())
    for count in (1, 3):
        file = tmp_path / f"{count}.json"
        file.write_text(json.dumps({**plain, "accelerators": plain["accelerators"][:count], "uplinks": {}}))
        assert predicted("resnet50", f"--topology={file}")["spec"]["devices"] == count


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "Name a workload"),
        (("resnet50", "--paper"), 2, "Name a workload"),
        (("resnet50",), 2, "--topology FILE"),
        (("resnet50", "--topology=/nowhere/x.json"), 2, "cannot be read"),
        (("resnet50", "--topology=/"), 2, "cannot be read"),
        (("resnet50", FALCON, "--set", "batch"), 2, "FIELD=VALUE"),
        (("resnet51", FALCON), 3, "resnet51"),
        (("resnet50", FALCON, "--batch", "many"), 3, "batch:"),
        (("resnet50", FALCON, "--set", "colour=red"), 3, "colour"),
        (("resnet50", FALCON, "--preset", "large"), 3, "preset"),
        (("resnet50", FALCON, "--devices", "9"), 4, "9 devices"),
        (("bert_large", FALCON, "--batch", "64", "--json"), 4, "GB"),
        (("command", FALCON, "--preset", "tiny"), 4, "no model"),
    ],
)
def test_what_is_wrong_is_named_and_has_an_exit_code(arguments: tuple[str, ...], code: int, said: str) -> None:
    ended, _, complaints = predict(*arguments)
    assert ended == code
    assert said in complaints


def test_a_wrong_topology_is_named_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text('{"format": "falconweb.topology/1",\n "cores": }')
    code, _, complaints = predict("resnet50", f"--topology={file}")
    assert code == 3
    assert "broken.json: Line 2" in complaints


def test_the_check_tells_each_published_figure_and_how_far_it_is_off() -> None:
    code, out, _ = predict("--check")
    assert code == 0
    assert "Median error" in out
    assert all({"figure", "published", "predicted", "error", "inside"} <= set(one) for one in predicted("--check"))


def test_the_published_observations_are_told_with_prediction_interval_and_whether_they_hold() -> None:
    code, out, _ = predict("--paper", "--check")
    assert code == 0
    assert "of 16 hold" in out
    assert "did not hold  O3: BERT-large, almost twice as long: 2.33 times" in out
    assert "Median error" in out
    judged: Any = predicted("--paper", "--check")["observations"]
    assert [one["observation"] for one in judged] == [one.key for one in OBSERVATIONS]
    assert all(one["published"] and one["predicted"] for one in judged)
    assert all(one["interval"][0] <= one["interval"][1] for one in judged if one["interval"])


def test_the_schema_is_printed() -> None:
    code, out, _ = predict("--schema")
    assert code == 0
    assert json.loads(out)["$schema"]


@pytest.mark.django_db
def test_a_topology_is_printed_as_infragraph() -> None:
    code, out, complaints = predict("--infragraph", FALCON)
    assert code == 0, complaints
    assert [one["name"] for one in json.loads(out)["devices"]] == ["host-0", "pcie-switch", "v100-pcie-16gb"]
    assert predict("--infragraph")[0] == 2
    assert predict("--infragraph", "resnet50", FALCON)[0] == 2


def test_with_a_person_what_they_see_is_learnt_from_and_a_stranger_is_refused(django_user_model: Any) -> None:
    django_user_model.objects.create_user("ada")
    assert predict("resnet50", FALCON, "--as", "ada")[0] == 0
    code, _, complaints = predict("resnet50", FALCON, "--as", "nobody")
    assert code == 2
    assert "nobody" in complaints
