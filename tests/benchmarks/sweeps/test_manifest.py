"""FfDL manifests: explained field by field, refused with line and column, and secrets of data stores never told."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.sweeps.manifest import Manifest, manifest_error, read_manifest
from core.errors import Invalid

SECRET = "hunter2-very-secret"
FFDL = f"""\
name: tf_convolutional_network_tutorial
description: Convolutional network model
version: "1.0"
gpus: 2
cpus: 0.5
memory: 1Gb
learners: 2
data_stores:
  - id: test-datastore
    type: mount_cos
    training_data:
      container: tf_training_data
    training_results:
      container: tf_trained_model
    connection:
      auth_url: http://s3.default.svc.cluster.local
      user_name: test-user
      password: {SECRET}
framework:
  name: pytorch
  version: "1.7"
  command: python3 convolutional_network.py --epochs 10
evaluation_metrics:
  type: tensorboard
  in: "$JOB_STATE_DIR/logs/tb"
"""


def fates_of(manifest: Manifest) -> dict[str, str]:
    """Return what became of each field."""
    return {one.field: one.fate for one in manifest.explained}


def with_line(old: str, new: str) -> Manifest:
    """Return the manifest with something else in place of something."""
    assert old in FFDL
    return read_manifest(FFDL.replace(old, new))


def test_a_manifest_of_ffdl_is_explained_field_by_field() -> None:
    manifest = read_manifest(FFDL)
    assert manifest.problems == ()
    assert fates_of(manifest) == {
        "name": "used", "description": "kept", "version": "kept", "gpus": "used", "cpus": "used", "memory": "ignored",
        "learners": "used", "data_stores": "ignored", "framework.name": "used", "framework.version": "ignored",
        "framework.command": "used", "evaluation_metrics": "ignored",
    }  # fmt: skip
    assert [one.line for one in manifest.explained if one.field in {"gpus", "memory"}] == [4, 6]
    assert manifest.title == "tf_convolutional_network_tutorial"
    grid = manifest.grid_with({"host": [3]})
    assert (grid.count, grid.threads, grid.workload, grid.host) == ((4,), (1,), ("command",), (3,))
    assert grid.command == ("python3", "convolutional_network.py", "--epochs", "10")


def test_lists_make_a_grid() -> None:
    text = FFDL.replace("gpus: 2", "gpus: [1, 2, 4]").replace("cpus: 0.5", "cpus: [2, 8, 64]")
    text = text.replace("name: pytorch", "name: [pytorch, tensorflow]").replace("learners: 2", "learners: [1, 2]")
    manifest = read_manifest(
        text
        + "workload: [resnet50, bert_base]\ngpu_type: V100-SXM2-16GB\ngrid:\n  batch: [32, 64, 512]\n  repeats: 3\n"
    )
    assert manifest.problems == ()
    grid = manifest.grid_with({"host": [1], "executor": "simulated"})
    assert (grid.count, grid.threads, grid.batch, grid.repeats) == ((1, 2, 4, 8), (2, 8, 64), (32, 64, 512), 3)
    assert (grid.workload, grid.framework) == (("resnet50", "bert_base"), ("pytorch", "tensorflow"))
    assert grid.accelerator == ("V100-SXM2-16GB",)
    assert fates_of(manifest)["framework.command"] == "ignored"


def test_no_gpus_are_runs_on_the_cpu() -> None:
    manifest = with_line("gpus: 2", "gpus: 0")
    assert (manifest.grid["placement"], manifest.grid["count"]) == (["cpu"], [2])


def test_the_same_manifest_may_be_json() -> None:
    manifest = read_manifest('{"name": "a", "gpus": 1, "framework": {"name": "pytorch"}, "workload": "resnet50"}')
    assert manifest.problems == ()
    assert manifest.grid_with({"host": [1]}).workload == ("resnet50",)


@pytest.mark.parametrize(
    ("old", "new", "place", "path", "sentence"),
    [
        ("gpus: 2", "gpus: many", (4, 7), "gpus", "'gpus' is a whole number from 0 to 64, or a list of them."),
        ("gpus: 2", "gpus: [1, 65]", (4, 11), "gpus", "'gpus' is a whole number from 0 to 64, or a list of them."),
        ("learners: 2", "learners: 60", (1, 1), "gpus",
         "'gpus' times 'learners' is 120: a run has at most 64 devices."),
        ("memory: 1Gb", "memory: much", (6, 9), "memory", "'memory' is a size such as 8Gb or 512MiB."),
        ("memory: 1Gb", "memry: 1Gb", (6, 1), "memry", "'memry' is not known here. Is 'memory' meant?"),
        ("name: pytorch", "name: caffe", (20, 9), "framework.name",
         "caffe does not run here: hosts run PyTorch alone. Change it to pytorch."),
        ("  version", "  versoin", (21, 3), "framework.versoin", "'versoin' is not known here. Is 'version' meant?"),
        ("--epochs 10", "'half", (22, 12), "framework.command",
         "The command has a quotation mark without its other half."),
        ("learners: 2", "gpus: 2", (7, 1), "gpus", "'gpus' appears twice: first in line 4."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(
    old: str, new: str, place: tuple[int, int], path: str, sentence: str
) -> None:
    manifest = with_line(old, new)
    (problem,) = manifest.problems
    assert (problem.sentence, problem.place.path) == (sentence, path)
    assert (problem.place.line, problem.place.column) == place
    assert manifest_error(manifest).details["errors"] == {path: sentence}
    with pytest.raises(Invalid, match=f"Line {place[0]}, column {place[1]}"):
        manifest.grid_with({})


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("name: x\ngpus: [1, 2\nframework: {}\n", 3, 10),
        ("name: 'x\n", 2, 1),
        ("name: x\n\tgpus: 1\n", 2, 1),
        ("a: &a [1]\nb: *a\n", 1, 4),
        ("a: !!python/object/apply:os.system ['ls']\n", 1, 4),
        ("- 1\n- 2\n", 1, 1),
        ("", 1, 1),
        ("name: a\n---\nname: b\n", 2, 1),
    ],
)
def test_what_is_no_manifest_is_told_with_line_and_column(text: str, line: int, column: int) -> None:
    problem = read_manifest(text).problems[0]
    assert (problem.place.line, problem.place.column) == (line, column)


def test_bombs_and_heaps_are_refused_at_once() -> None:
    bomb = "a: &a [x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
    )
    assert "aliases are not supported" in read_manifest(bomb).problems[0].sentence
    assert "at most 100,000 characters" in read_manifest("name: " + "x" * 200_000).problems[0].sentence
    assert "nested too deeply" in read_manifest("[" * 90_000).problems[0].sentence


def test_grids_in_manifests_are_held_to_the_same_rules() -> None:
    def problem(lines: str) -> Any:
        text = "name: a\ngpus: 1\nframework: {name: pytorch}\nworkload: resnet50\ngrid:\n"
        return read_manifest(text + lines).problems[0]

    assert problem("  colour: [1]\n").sentence.startswith("'colour' is not known here.")
    assert problem("  count: [1]\n").sentence == "'count' has a field of its own in a manifest."
    wrong = problem("  precision: [fp8]\n")
    assert wrong.place.path == "grid.precision"
    assert "fp8" in wrong.sentence


def everything_told(manifest: Manifest) -> str:
    """Return all that is ever shown or kept of a manifest."""
    error = manifest_error(manifest) if manifest.problems else None
    return repr((manifest, error and (error.sentence, error.details)))


@pytest.mark.parametrize(
    "text",
    [
        FFDL,
        FFDL.replace("gpus: 2", "gpus: many"),
        FFDL.replace("password: ", "password: ["),
        FFDL.replace("password: ", "password: *"),
        FFDL.replace("password: ", "password: &"),
        FFDL.replace("password: ", "password: !"),
        FFDL.replace("password: ", "password: !e!"),
        FFDL.replace("password: ", "password: @"),
        FFDL.replace("password: ", "password: a: "),
        FFDL.replace("password: ", "password: '"),
        FFDL.replace(f"password: {SECRET}", f"password: x\n      password: {SECRET}"),
        FFDL.replace(f"password: {SECRET}", f"{SECRET}: x\n      {SECRET}: y"),
        FFDL.replace("data_stores:", "data_store:"),
        FFDL.replace("--epochs 10", f"--password {SECRET}"),
        FFDL.replace("Convolutional network model", SECRET),
        FFDL.replace("evaluation_metrics:", f"{SECRET}: 1\nevaluation_metrics:"),
        FFDL.replace("name: pytorch", f"name: {SECRET}"),
        FFDL.replace("memory: 1Gb", f"memory: {SECRET}"),
    ],
)
def test_the_password_of_a_data_store_is_never_told(text: str) -> None:
    assert SECRET in text
    assert SECRET not in everything_told(read_manifest(text))


def test_a_password_that_stands_elsewhere_too_is_refused() -> None:
    for manifest in (
        with_line("Convolutional network model", f"the password is {SECRET}"),
        with_line("--epochs 10", f"--password {SECRET}"),
    ):
        assert any("data_stores" in one.sentence for one in manifest.problems)


def test_what_is_kept_reads_as_a_manifest_again_without_its_stores() -> None:
    kept = read_manifest(FFDL).kept
    again = read_manifest(kept)
    assert again.problems == ()
    assert again.grid == read_manifest(FFDL).grid
    for gone in (SECRET, "test-user", "s3.default", "tf_training_data"):
        assert gone not in kept
