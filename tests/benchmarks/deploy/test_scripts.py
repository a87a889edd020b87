"""Scripts run as they should, and nothing that somebody writes becomes more than a word in them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.deploy.quoting import UnsafeError, refuse_control_characters, shell_word
from hostwire.training import Spec
from tests.benchmarks.deploy.requests import MODAK, SHORT, changed, made, refused, text_of

pytestmark = pytest.mark.process

HOSTILE = (
    "$(touch hacked)", "`touch hacked`", "; touch hacked", "&& touch hacked", "| touch hacked", "> hacked",
    "'; touch hacked; '", '"; touch hacked; "', "$((1+1))", "${IFS}", "$HOME", "!!", "*", "~", "\\", "'", '"', "a b",
    "-", "--", "#", "%runscript", "#SBATCH --wrap=x", "{a,b}", "[ -f x ]", "\u00e9\u00a0",
)  # fmt: skip


def run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script of bash in a folder, with these variables alone."""
    path = folder / "job.sh"
    path.write_text(script)
    return subprocess.run(
        ["bash", str(path)], cwd=folder, env={"PATH": "/usr/bin:/bin", **variables}, capture_output=True, text=True,
        check=False, timeout=20,
    )  # fmt: skip


def bash(command: Any, **given: Any) -> str:
    """Return the script of a command for bash."""
    return text_of(made({"name": "job", "command": command, "scheduler": "bash", **given}), "bash")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_word_stays_a_word(hostile: str, tmp_path: Path) -> None:
    script = bash(["printf", "<%s>", hostile, "end"], environment={"GREETING": hostile})
    # A reference to a variable is filled in, and what is in it is one word as well.
    found = run(script, tmp_path, CONTAINER="", HOME=str(tmp_path))
    expected = hostile.replace("${IFS}", " \t\n")
    assert found.stdout == f"<{expected}><end>", (script, found.stderr)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["job.sh"]


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"]), max_size=30), max_size=5
    )
)
@settings(max_examples=25)
def test_any_words_come_through_bash(texts: list[str]) -> None:
    texts = [one.replace("${", "$ {") for one in texts]
    command = " ".join(["printf", "'%s\\n'", "x", *map(shell_word, texts)])
    found = subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=20)
    assert found.stdout.decode() == "".join(f"{one}\n" for one in ["x", *texts])


@pytest.mark.parametrize(
    "bad", ["a\nb", "a\rb", "a\x00b", "a\x1b[31mb", "a\u202eb", "a\u2028b", "a\u200bb", "x" * 5000]
)
def test_line_breaks_and_control_characters_go_nowhere(bad: str) -> None:
    with pytest.raises(UnsafeError):
        refuse_control_characters(bad)
    places: dict[str, dict[str, Any]] = {
        "/command": SHORT, "/data": SHORT, "/time": SHORT, "/queue": SHORT, "/image": SHORT, "/name": SHORT,
        "/environment/A": SHORT, "/job/application/executable": MODAK, "/job/application/arguments": MODAK,
        "/job/job_options/job_name": MODAK, "/job/job_options/email_address": MODAK, "/job/target/name": MODAK,
        "/job/job_options/standard_output_file": MODAK, "/job/application/container_runtime": MODAK,
        "/job/job_options/request_specific_nodes": MODAK, "/job/application/build/build_command": MODAK,
    }  # fmt: skip
    for pointer, request in places.items():
        value = f"x{bad}y"
        assert [one for one in refused(changed(request, pointer, value)) if one in {pointer, "/"}], pointer


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/job/job_options/queue", "batch --wrap=evil"), ("/job/job_options/account", "a b"),
        ("/job/job_options/email_address", "a@b.example --export=ALL"),
        ("/job/job_options/standard_output_file", "a b"),
        ("/job/job_options/request_specific_nodes", "n1 --x"), ("/job/application/container_runtime", "a b"),
        ("/job/application/container_runtime", "$(x)"), ("/job/job_options/memory_limit", "1G --x"),
        ("/job/job_options/wall_time_limit", "1:00 --x"), ("/job/application/build/src", "file:///etc/passwd"),
        ("/job/application/build/src", "--upload-pack=x"),
        ("/job/optimisation/app_type-ai_training/data/location", "/data:/etc"),
        ("/job/optimisation/app_type-ai_training/ai_framework-pytorch/version", "2.4 --index-url=x"),
    ],
)  # fmt: skip
def test_what_goes_into_a_line_of_a_queue_has_its_own_letters(pointer: str, value: str) -> None:
    assert pointer in refused(changed(MODAK, pointer, value))


def every_request() -> list[dict[str, Any]]:
    """Return requests of all kinds of launch."""
    mpi = changed(changed(MODAK, "/job/application/app_type", "mpi"), "/job/optimisation", None)
    two = changed(MODAK, "/job/job_options/node_count", 2)
    hostile = {"name": "x", "command": ["python", "t.py", *HOSTILE], "environment": {"A": "".join(HOSTILE)}, "gpus": 2}
    build = changed(
        MODAK, "/job/application/build", {"src": "https://a.example/x.git", "build_command": "make -j2 && echo '%post'"}
    )
    module = changed(SHORT, "/command", "python -m train.it --x")
    options = changed(SHORT, "/command", "python -u train.py")
    return [SHORT, MODAK, changed(mpi, "/job/application/mpi_ranks", 8), two, hostile, build, module, options]


@pytest.mark.parametrize("request_", every_request())
def test_each_script_is_bash(request_: dict[str, Any], tmp_path: Path) -> None:
    files = {one.kind: one for one in made(request_).files}
    for kind in {"slurm", "torque", "bash"} & set(files):
        path = tmp_path / files[kind].name
        path.write_text(files[kind].text)
        assert subprocess.run(["bash", "-n", str(path)], capture_output=True, check=False).returncode == 0
        if shutil.which("shellcheck"):
            # SC2154: variables of the queue, SC2016: a $ that stands for itself.
            judged = ["shellcheck", "--severity=warning", "--exclude=SC2154,SC2016", str(path)]
            checked = subprocess.run(judged, capture_output=True, check=False)
            assert checked.returncode == 0, checked.stdout.decode()
        # Whatever is in a request, no line but ours begins a directive, and no section of a definition.
        directives = [line for line in files[kind].text.splitlines() if line.startswith(("#SBATCH", "#PBS"))]
        assert all(line.split("=")[0].split()[1].startswith("-") for line in directives)
    sections = [line for line in files["apptainer"].text.splitlines() if line.startswith("%")]
    assert [one for one in sections if one not in {"%labels", "%files", "%environment", "%post", "%runscript"}] == []


def test_the_script_runs_its_command_with_its_variables(tmp_path: Path) -> None:
    script = bash("printf %s:%s ${GREETING} $(id)", threads=3, environment={"GREETING": "good day"})
    assert run(script, tmp_path, CONTAINER="").stdout == "good day:$(id)"
    counted = bash(["bash", "-c", "echo $OMP_NUM_THREADS"], threads=3)
    assert run(counted, tmp_path, CONTAINER="").stdout == "3\n"


def test_the_command_runs_within_the_container(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "apptainer"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nprintf "[%s]" "$@"\n')
    tool.chmod(0o755)
    script = bash("./train.sh 'a b'", gpus=1, data="/data")
    found = run(script, tmp_path, PATH=f"{tool.parent}:/usr/bin:/bin")
    assert found.stdout == "[exec][--nv][--bind][/data:/data][job.sif][./train.sh][a b]"


def test_a_script_fails_as_its_command_does(tmp_path: Path) -> None:
    assert run(bash("false"), tmp_path, CONTAINER="").returncode == 1
    missing = run(bash("printf %s ${NOT_SET}"), tmp_path, CONTAINER="")
    assert missing.returncode != 0
    assert "NOT_SET" in missing.stderr


def test_torchrun_begins_a_process_for_each_gpu() -> None:
    slurm = text_of(made(SHORT), "slurm")
    meeting = '--master_addr=127.0.0.1 --master_port="$port"'
    assert f"torchrun --nnodes=1 --nproc_per_node=4 {meeting} train.py" in slurm
    assert "#SBATCH --gres=gpu:4" in slurm
    assert "#SBATCH --cpus-per-task=40" in slurm
    two = text_of(made(changed(changed(SHORT, "/nodes", 2), "/command", "python -m train.it")), "slurm")
    assert "srun --ntasks=2 --ntasks-per-node=1" in two
    assert 'PET_NODE_RANK="$SLURM_PROCID"' in two
    assert '--master_addr="$head" --master_port="$port" -m train.it' in two
    assert "torchrun" not in text_of(made(changed(SHORT, "/gpus", 1)), "slurm")
    assert "--no-python python -u train.py" in text_of(made(changed(SHORT, "/command", "python -u train.py")), "slurm")


@pytest.mark.parametrize("request_", every_request())
def test_no_script_opens_a_meeting_place_that_unpickles(request_: dict[str, Any]) -> None:
    for one in made(request_).files:
        commands = "\n".join(line for line in one.text.splitlines() if not line.startswith("#"))
        assert "--standalone" not in commands
        assert "c10d" not in commands


def test_two_jobs_on_a_node_have_ports_of_their_own(tmp_path: Path) -> None:
    script = bash("python train.py", gpus=2).replace("torchrun", "echo")
    ports = {run(script, tmp_path, CONTAINER="").stdout.split("--master_port=")[1].split()[0] for _ in range(2)}
    assert len(ports) == 2
    assert all(20000 <= int(port) < 30000 for port in ports)


def test_without_a_command_the_trainer_of_this_site_runs_the_specification(tmp_path: Path) -> None:
    asked = {"name": "job", "workload": "mnist_cnn", "preset": "tiny", "gpus": 2, "batch": 8}
    script = text_of(made(asked), "bash")
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nprintf "[%s]" "$@"\n')
    python.chmod(0o755)
    found = run(script, tmp_path, CONTAINER="", PATH=f"{python.parent}:/usr/bin:/bin")
    assert found.stdout == "[-m][trainer][job.spec.json][--events][job.events.jsonl]"
    spec = msgspec.json.decode((tmp_path / "job.spec.json").read_bytes(), type=Spec)
    assert (spec.workload, spec.devices, spec.batch) == ("mnist_cnn", 2, 8)
    assert 'COPY ["trainer", "/opt/falconweb/trainer"]' in text_of(made(asked), "docker")
    assert "/nodes" in refused(asked | {"nodes": 2, "scheduler": "slurm"})


def test_a_shell_alone_begins_on_one_node() -> None:
    assert "/nodes" in refused({"command": "true", "nodes": 2})
    assert {one.kind for one in made(changed(SHORT, "/nodes", 2)).files} == {"slurm", "torque", "apptainer", "docker"}


def test_containers_have_what_is_asked_for() -> None:
    ours = made(SHORT)
    assert "torch==2.4.0" in text_of(ours, "apptainer")
    assert 'RUN ["python3", "-m", "pip", "install", "--no-cache-dir", "torch==2.4.0"]' in text_of(ours, "docker")
    theirs = made(changed(SHORT, "/image", "lab/torch:2.4@sha256:" + "0" * 64))
    assert "FROM lab/torch:2.4@sha256:" in text_of(theirs, "docker")
    assert "pip" not in text_of(theirs, "docker")
    # An image of Apptainer is the base of no Dockerfile.
    assert {one.kind for one in made(changed(SHORT, "/image", "/images/lab.sif")).files} >= {"apptainer"}
    assert "docker" not in {one.kind for one in made(changed(SHORT, "/image", "/images/lab.sif")).files}
