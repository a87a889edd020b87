"""Samples and reads of storage come from the drive that was chosen, and nothing is written to its device file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks.workloads.catalogue import spec_of
from hostwire.training import DRIVE_VARIABLE
from tests.trainer.starting import RunOutcome
from trainer.reporting import RunRefused
from trainer.storage import MemorySamples, data_folder, sample_source

Ran = Callable[..., RunOutcome]
SHAPE = (3, 5, 7)
SIZE = 3 * 5 * 7


def stocked(place: Path, monkeypatch: pytest.MonkeyPatch, *, length: int = 50, rank: int = 0) -> list[bytes]:
    monkeypatch.setenv(DRIVE_VARIABLE, str(place))
    stock = sample_source(SHAPE, length=length, rank=rank, generator=torch.Generator())
    assert str(place) in stock.description
    return [bytes(stock.read(index).flatten().tolist()) for index in range(length)]


def test_each_sample_of_a_device_file_is_a_part_of_it_and_all_of_them_are_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A plain file stands for the drive: both are opened and read alike.
    content = os.urandom(200 * SIZE)
    drive = tmp_path / "nvme0n1"
    drive.write_bytes(content)
    drive.chmod(0o400)
    first, second = (stocked(drive, monkeypatch, rank=rank) for rank in (0, 1))
    parts = [content[place : place + SIZE] for place in range(0, len(content), SIZE)]
    assert sorted(first) == sorted(parts[:50])
    assert first != parts[:50], "they are read one after the other, as no loader of shuffled files does"
    assert sorted(second) == sorted(parts[50:100])
    assert drive.read_bytes() == content
    with pytest.raises(RunRefused, match="samples take"):
        stocked(drive, monkeypatch, length=201)


def test_samples_in_a_folder_leave_no_file_behind_and_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(set(stocked(tmp_path, monkeypatch))) == 50
    assert not list(tmp_path.iterdir())
    monkeypatch.delenv(DRIVE_VARIABLE)
    stock = sample_source(SHAPE, length=50, rank=0, generator=torch.Generator())
    assert isinstance(stock, MemorySamples)
    assert "no storage" in stock.description


def test_files_and_checkpoints_need_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drive = tmp_path / "nvme0n1"
    drive.touch()
    monkeypatch.setenv(DRIVE_VARIABLE, str(drive))
    with pytest.raises(RunRefused, match="mount the drive, or use random samples"):
        data_folder()


@pytest.mark.process
def test_training_and_reads_of_storage_take_what_was_chosen(ran: Ran, tmp_path: Path) -> None:
    drive = tmp_path / "nvme0n1"
    drive.write_bytes(os.urandom(2**22))
    drive.chmod(0o400)
    given = {"file_bytes": 2**20, "block_bytes": 2**16, "steps": 3, "devices": 2}
    outcome = ran(spec_of("storage_read", "tiny", given), **{DRIVE_VARIABLE: str(drive)})
    assert outcome.code == 0, outcome.log
    assert str(drive) in outcome.result.values["note"]
    assert outcome.result.values["bandwidth"] > 0
    outcome = ran(
        spec_of("resnet50", "tiny", {"steps": 2, "data": "random", "samples": 0}), **{DRIVE_VARIABLE: str(drive)}
    )
    assert outcome.code == 0, outcome.log
    assert f"Samples are read from {drive}" in outcome.log
