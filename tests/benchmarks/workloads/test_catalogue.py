"""The catalogue of workloads, and what becomes of what people ask for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.workloads.catalogue import CATALOGUE, spec_of, workload_of
from benchmarks.workloads.definitions import COMMON_PARAMETERS
from benchmarks.workloads.validation import SpecError
from hostwire.training import Spec

HOME = Path(__file__).resolve().parents[3]
# A GPU, and over eight: the published table.
PUBLISHED = {
    "mobilenet_v2": (64, 512, 53),
    "resnet50": (128, 1024, 50),
    "yolov5l": (11, 88, 392),
    "bert_base": (12, 96, 12),
    "bert_large": (6, 48, 24),
}


def wrong(name: str, preset: str, given: Mapping[str, Any]) -> dict[str, str]:
    with pytest.raises(SpecError) as refused:
        spec_of(name, preset, given)
    return refused.value.errors


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_workload_says_what_it_is_and_has_sound_presets(name: str) -> None:
    workload = workload_of(name)
    assert workload.name == name
    assert all((workload.title, workload.about, workload.source, workload.samples))
    assert "tiny" in workload.presets
    assert "custom" in workload.presets
    for preset in workload.presets:
        if (name, preset) == ("command", "custom"):
            continue  # there is nothing to run before somebody says what
        spec = spec_of(name, preset, {})
        assert spec.workload == name
        assert set(spec.options) == {parameter.name for parameter in workload.parameters}
        assert msgspec.json.decode(msgspec.json.encode(spec), type=Spec) == spec
        assert spec.hash == spec_of(name, preset, {}).hash
    if name != "command":
        assert workload.costs is not None
        assert "paper" in workload.presets


@pytest.mark.parametrize("name", PUBLISHED)
def test_paper_presets_have_the_published_batches_and_depths(name: str) -> None:
    each, together, depth = PUBLISHED[name]
    spec = spec_of(name, "paper", {})
    assert (spec.batch, spec.global_batch, workload_of(name).depth) == (each, together, depth)
    assert (spec.devices, spec.precision, spec.strategy, spec.backend) == (8, "fp16", "ddp", "cuda")
    assert spec.steps >= 10


def test_tiny_presets_run_in_two_processes_on_the_cpu() -> None:
    for name in CATALOGUE:
        spec = spec_of(name, "tiny", {})
        assert spec.backend == "cpu"
        assert name == "command" or (spec.devices == 2 and spec.steps >= 10)


def test_common_parameters_are_the_fields_of_a_spec() -> None:
    named = {parameter.name for parameter in COMMON_PARAMETERS}
    assert named == set(Spec.__struct_fields__) - {"workload", "framework", "options", "command", "resume_from"}
    for parameter in COMMON_PARAMETERS:
        assert spec_default(parameter.name) == parameter.default


def spec_default(name: str) -> Any:
    return getattr(Spec(workload="x"), name)


def test_fields_come_as_numbers_or_as_the_text_of_a_form() -> None:
    typed = spec_of("yolov5l", "paper", {"batch": 4, "compile": True, "options": {"image": 320, "width": 0.5}})
    text = spec_of(
        "yolov5l", "paper", {"batch": "4", "compile": "true", "image": "320", "width": "0.5", "workload": "yolov5l"}
    )
    assert typed == text
    assert (typed.batch, typed.compile, typed.options["image"], typed.options["width"]) == (4, True, 320, 0.5)


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"batch": 0}, "batch", "from 1 to 8192"),
        ({"batch": "many"}, "batch", "a whole number"),
        ({"batch": 2.5}, "batch", "a whole number"),
        ({"batch": True}, "batch", "a whole number"),
        ({"batch": float("nan")}, "batch", "a whole number"),
        ({"batch": float("inf")}, "batch", "a whole number"),
        ({"batch": 10**400}, "batch", "from 1 to 8192"),
        ({"batch": None}, "batch", "a whole number"),
        ({"batch": [1]}, "batch", "a whole number"),
        ({"precision": "fp8"}, "precision", "one of: fp32, fp16, bf16"),
        ({"precision": ["fp16"]}, "precision", "one of"),
        ({"compile": 1}, "compile", "one of: false, true"),
        ({"width": 0}, "width", "above 0"),
        ({"options": {"width": 5}}, "options.width", "up to 4"),
        ({"options": {"colour": 1}}, "options.colour", "no option 'colour'"),
        ({"options": [1]}, "options", "names and values"),
        ({"image": 100}, "options.image", "multiple of 32"),
        ({"speed": 1}, "speed", "no parameter 'speed'"),
        ({"workload": "vgg16"}, "workload", "specification of yolov5l"),
        ({"framework": "tensorflow"}, "framework", "Only pytorch"),
        ({"command": "ls"}, "command", "takes no command"),
        ({"strategy": "single"}, "devices", "one device, not 8"),
        ({"strategy": "dp", "devices": 1}, "devices", "at least 2"),
        ({"strategy": "dp", "backend": "cpu", "precision": "fp32"}, "strategy", "does nothing on the CPU"),
        ({"strategy": "dp", "gradient": "fp16"}, "gradient", "Only ddp and sharded"),
        ({"backend": "cpu"}, "precision", "fp16 needs a GPU"),
        ({"image": 32, "batch": 1}, "options.image", "above 32"),
    ],
)
def test_a_wrong_field_is_refused_with_its_name(given: dict[str, Any], field: str, words: str) -> None:
    errors = wrong("yolov5l", "paper", given)
    assert words in errors[field]


def test_every_wrong_field_is_named_at_once() -> None:
    assert set(wrong("bert_base", "tiny", {"batch": 0, "steps": -1, "options": {"heads": 0}})) == {
        "batch",
        "steps",
        "options.heads",
    }


def test_sizes_that_do_not_go_together_are_refused() -> None:
    assert "no multiple" in wrong("bert_base", "tiny", {"heads": 3})["options.hidden"]
    assert "smaller" in wrong("all_reduce", "tiny", {"least_bytes": 2**20})["options.most_bytes"]
    assert "multiple of 4" in wrong("host_copy", "tiny", {"least_bytes": 4098})["options.least_bytes"]
    assert "larger than the file" in wrong("storage_read", "tiny", {"block_bytes": 2**24})["options.block_bytes"]


def test_links_have_no_models_and_need_two_ends() -> None:
    assert "at least 2" in wrong("gpu_bandwidth", "tiny", {"devices": 1})["devices"]
    assert "no model" in wrong("all_reduce", "tiny", {"compile": True})["compile"]
    assert "no gradients" in wrong("all_reduce", "tiny", {"accumulation": 2})["accumulation"]
    assert "runs in fp32" in wrong("host_copy", "tiny", {"precision": "bf16"})["precision"]
    assert "runs with ddp" in wrong("all_reduce", "tiny", {"strategy": "sharded"})["strategy"]
    assert spec_of("storage_read", "tiny", {"devices": 1, "strategy": "single"}).devices == 1


def test_an_own_command_is_a_line_or_words() -> None:
    line = spec_of("command", "custom", {"command": "python train.py --name 'two words'"})
    assert line.command == ("python", "train.py", "--name", "two words")
    assert spec_of("command", "custom", {"command": list(line.command)}) == line
    assert wrong("command", "custom", {})["command"] == "Enter a command."
    assert wrong("command", "custom", {"command": "  "})["command"] == "Enter a command."
    assert "cannot be split" in wrong("command", "custom", {"command": "echo 'open"})["command"]
    assert "a list of words" in wrong("command", "custom", {"command": {"run": "ls"}})["command"]
    assert "4096" in wrong("command", "custom", {"command": "x" * 5000})["command"]
    assert "NUL" in wrong("command", "custom", {"command": ["a\0b"]})["command"]


def test_unknown_workloads_and_presets_are_named_with_those_that_are() -> None:
    assert "resnet50" in wrong("resnet51", "tiny", {})["workload"]
    assert "tiny, paper, custom" in wrong("resnet50", "huge", {})["preset"]
    assert "no preset 'paper'" in wrong("command", "paper", {})["preset"]
    with pytest.raises(KeyError, match="There is no workload 'resnet51'"):
        workload_of("resnet51")


def test_the_documentation_names_every_workload_with_its_sizes_and_depth() -> None:
    text = (HOME / "docs" / "workloads.md").read_text()
    for workload in CATALOGUE.values():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{workload.name}` |"))
        for parameter in workload.parameters:
            assert f"`{parameter.name}`" in row
        if workload.depth:
            assert f"| {workload.depth} |" in row


@pytest.mark.process
def test_a_specification_is_printed_for_a_machine_without_the_site() -> None:
    def printed(*words: str) -> subprocess.CompletedProcess[str]:
        # As on a host that has no Django: its import would fail.
        start = "import sys, runpy; sys.modules['django'] = None; sys.argv = ['x', *sys.argv[1:]]; "
        start += "runpy.run_module('benchmarks.workloads', run_name='__main__')"
        command = [sys.executable, "-c", start, *words]
        return subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=60, check=False)

    said = printed("resnet50", "paper", "devices=1", "image=64")
    assert msgspec.json.decode(said.stdout, type=Spec) == spec_of("resnet50", "paper", {"devices": 1, "image": 64})
    refused = printed("resnet50", "paper", "batch=0")
    assert (refused.returncode, refused.stderr) == (2, "batch: Batch a device is a whole number from 1 to 8192.\n")
    assert printed("resnet50").returncode == printed("resnet50", "paper", "batch").returncode == 2


@pytest.mark.parametrize("name", [name for name, workload in CATALOGUE.items() if workload.is_training])
@pytest.mark.parametrize("preset", ["tiny", "paper"])
def test_the_layers_of_a_workload_add_up_to_its_costs(name: str, preset: str) -> None:
    costs = CATALOGUE[name].costs(spec_of(name, preset, {}))  # type: ignore[misc]
    for figure in ("parameters", "flops", "activation_bytes", "operations"):
        total = sum(getattr(layer, figure) for layer in costs.layers)
        assert total == pytest.approx(getattr(costs, figure)), figure
