"""Runs that go wrong: they end with an exit code and a sentence, and leave no process."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks.workloads.catalogue import spec_of
from hostwire.training import Spec
from tests.trainer.starting import Running, RunOutcome
from tests.waiting import wait_for
from trainer.links import measure_link
from trainer.parallelism import join_group
from trainer.reporting import EventWriter, RunRefused
from trainer.storage import data_path
from trainer.workloads import training_task

pytestmark = pytest.mark.process

Ran = Callable[..., RunOutcome]
Started = Callable[..., Running]
ENDLESS = {"steps": 1_000_000}


def listening(pid: int) -> list[str]:
    """Return where a process listens, as the kernel writes it: address and port, hexadecimal."""
    own = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(str(file.readlink()))
    lines = [
        line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()
    ]
    return [words[1] for words in lines if words[3] == "0A" and f"socket:[{words[9]}]" in own]


def with_steps(started: Started, **given: object) -> Running:
    """Start a run that would never end, and wait until it takes steps."""
    running = started(spec_of("mnist_cnn", "tiny", ENDLESS | given))
    wait_for(lambda: running.outcome().seconds("timed") or running.process.poll() is not None, seconds=60)
    assert running.process.poll() is None, running.outcome().log
    return running


def test_a_run_that_is_too_large_tells_of_memory_with_a_number(ran: Ran) -> None:
    spec = spec_of("vgg16", "tiny", {"classes": 100_000, "width": 4})
    outcome = ran(spec, memory=5 * 10**9)
    assert outcome.code != 0
    assert outcome.trouble is not None
    assert outcome.trouble.what == "out_of_memory", outcome.log
    assert "6.1 GiB more did not fit" in outcome.trouble.sentence
    assert "batch of 2" in outcome.trouble.sentence


def test_an_exception_ends_the_run_with_its_words(ran: Ran) -> None:
    # What the site refuses, a host may be sent all the same: a hidden size that the heads do not divide.
    fine = spec_of("bert_base", "tiny", {})
    outcome = ran(msgspec.structs.replace(fine, options={**fine.options, "hidden": 63}))
    assert outcome.code != 0
    assert outcome.trouble is not None
    assert outcome.trouble.what == "crash"
    assert "ValueError" in outcome.trouble.sentence
    assert "Traceback" in outcome.log


def test_a_gpu_that_is_not_there_is_refused(ran: Ran) -> None:
    outcome = ran(spec_of("mnist_cnn", "custom", {}), CUDA_VISIBLE_DEVICES="")
    assert outcome.code != 0
    assert outcome.trouble is not None
    assert outcome.trouble.what == "refused"
    assert "no GPU" in outcome.trouble.sentence


@pytest.mark.nightly
def test_a_specification_with_unknown_fields_is_refused(ran: Ran) -> None:
    outcome = ran(b'{"workload": "mnist_cnn", "speed": "fast"}')
    assert outcome.code != 0
    assert outcome.trouble is not None
    assert outcome.trouble.what == "refused"
    assert "speed" in outcome.trouble.sentence


def test_what_cannot_be_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(RunRefused, match="DP spreads one process over GPUs"):
        join_group(Spec(workload="mnist_cnn", strategy="dp", devices=2, backend="cpu"))
    with pytest.raises(RunRefused, match="no workload 'command'"):
        training_task(Spec(workload="command", strategy="single", backend="cpu", command=("true",)))
    alone = Spec(workload="all_reduce", strategy="single", backend="cpu")
    with pytest.raises(RunRefused, match="'ddp', also on one device"):
        measure_link(alone, join_group(alone), EventWriter(tmp_path / "events", leads=True))
    large = Spec(workload="storage_read", options={"file_bytes": 2**60})
    with pytest.raises(RunRefused, match="the run reads"):
        data_path(large)


def test_a_killed_process_ends_the_run_and_the_others(started: Started) -> None:
    running = with_steps(started)
    one, _ = set(running.members()) - {running.process.pid}
    os.kill(one, signal.SIGKILL)
    assert running.process.wait(60) == -signal.SIGKILL  # as who reads it is outcome that memory may have been full
    wait_for(lambda: not running.members(), seconds=60)
    outcome = running.outcome()
    assert outcome.trouble is None or outcome.trouble.what == "crash"
    assert outcome.seconds("timed")


def test_processes_listen_on_the_loopback_alone_and_none_outlives_the_first(started: Started) -> None:
    running = with_steps(started, loader_workers=1)
    members = running.members()
    assert len(members) == 5  # the first, two ranks, their loaders
    found = [place for pid in members for place in listening(pid)]
    assert len(found) >= 3  # where they meet, and one each
    assert {place.rpartition(":")[0] for place in found} == {"0100007F"}
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait(60)
    wait_for(lambda: not running.members(), seconds=60)
