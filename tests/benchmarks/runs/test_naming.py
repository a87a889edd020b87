"""GPUs of a run are called by where they are, not by what the host counts them by."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.model.topology import Accelerator, Topology
from benchmarks.runs.models import Run
from benchmarks.runs.topology import accelerator_label, gpu_labels

FALCON = Accelerator(name="falcon-1/Drawer 1 slot 3", model="V100-PCIE-16GB", place="falcon-1/drawer 1/H1")
OTHER = Accelerator(name="falcon-1/Drawer 2 slot 1", model="A100", place="falcon-1/drawer 2/H2")
OWN = tuple(Accelerator(name=f"local {number}", model="V100-SXM2-16GB") for number in (1, 2))
KEYS = [f"gpu/0000:{bus}:00.0/utilisation" for bus in ("10", "11", "41")] + ["steps/timed/seconds", "cpu"]


def run(*accelerators: Accelerator, addresses: object = None) -> Run:
    kept = msgspec.to_builtins(Topology(accelerators=accelerators)) if accelerators else {}
    return Run(topology=kept, source={} if addresses is None else {"addresses": addresses})


def test_words() -> None:
    assert accelerator_label(FALCON) == "falcon-1 drawer 1 slot 3"
    assert accelerator_label(OWN[1]) == "own GPU 2"
    assert accelerator_label(Accelerator(name="GPU 1", model="V100", place="elsewhere")) == "GPU 1"


def test_devices_are_known_by_what_was_noted_and_own_gpus_by_their_order() -> None:
    noted = {"0000:11:00.0": FALCON.name}
    assert gpu_labels(run(*OWN, FALCON, addresses=noted), KEYS) == {
        "0000:10:00.0": "own GPU 1",
        "0000:11:00.0": "falcon-1 drawer 1 slot 3 · V100",
        "0000:41:00.0": "own GPU 2",
    }


@pytest.mark.parametrize("addresses", [None, [], {"0000:11:00.0": 7}, {"0000:11:00.0": "gone"}])
def test_what_nobody_can_tell_apart_has_no_name(addresses: object) -> None:
    assert gpu_labels(run(*OWN, FALCON, addresses=addresses), KEYS) == {}
    assert gpu_labels(run(addresses=addresses), KEYS) == {}


def test_some_are_named_where_others_cannot_be() -> None:
    noted = {"0000:41:00.0": OTHER.name}
    assert gpu_labels(run(*OWN, FALCON, OTHER, addresses=noted), KEYS) == {
        "0000:41:00.0": "falcon-1 drawer 2 slot 1 · A100"
    }
