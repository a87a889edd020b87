"""A run over two hosts: two trainers, each with an address of the loopback as its host's."""

from __future__ import annotations

import os
import pickle
import signal
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from benchmarks.workloads.catalogue import spec_of
from falconweb.launch.broker import free_port
from hostwire.training import NodePart
from tests.trainer.conftest import LONGEST
from tests.trainer.starting import Running, RunOutcome
from tests.trainer.test_trouble import ENDLESS, listening
from tests.waiting import wait_for
from trainer.processes import network_interface

pytestmark = pytest.mark.process

Started = Callable[..., Running]
FIRST, SECOND = "127.0.0.2", "127.0.0.3"


def on_two_hosts(started: Started, **given: Any) -> tuple[Running, Running]:
    """Start the two parts of a run."""
    spec = spec_of("mnist_cnn", "tiny", {"hosts": 2, **given})
    places: dict[str, Any] = {"ranks": 1, "rendezvous": FIRST, "port": free_port(), "token": "of this run"}
    first = NodePart(first_rank=0, address=FIRST, **places)
    return started(spec, node=first), started(spec, node=NodePart(first_rank=1, address=SECOND, **places))


@pytest.mark.nightly
def test_two_hosts_learn_what_two_processes_of_one_host_learn(started: Started, ran: Callable[..., RunOutcome]) -> None:
    first, second = on_two_hosts(started)
    alone = ran(spec_of("mnist_cnn", "tiny", {}))
    assert (first.process.wait(LONGEST), second.process.wait(LONGEST)) == (0, 0)
    assert len(alone.losses()) == 10
    assert first.outcome().losses() == alone.losses()
    assert second.outcome().events == []


def test_they_listen_on_their_own_network_and_a_lost_host_ends_the_other(started: Started) -> None:
    first, second = on_two_hosts(started, **ENDLESS)
    wait_for(lambda: first.outcome().seconds("timed") or first.process.poll() is not None, seconds=LONGEST)
    addresses = {
        socket.inet_ntoa(bytes.fromhex(place.rpartition(":")[0])[::-1])
        for running in (first, second)
        for pid in running.members()
        for place in listening(pid)
    }
    assert FIRST in addresses
    assert all(address.startswith("127.") for address in addresses)
    # What a stranger sends to the rendezvous ends nothing.
    port = msgspec.json.decode((first.folder / "node.json").read_bytes(), type=NodePart).port
    with socket.create_connection((FIRST, port), timeout=10) as stranger:
        stranger.sendall(pickle.dumps(print) * 100)
        taken = len(first.outcome().seconds("timed"))
        wait_for(
            lambda: len(first.outcome().seconds("timed")) > taken or first.process.poll() is not None, seconds=LONGEST
        )
    assert first.process.poll() is None
    os.killpg(second.process.pid, signal.SIGKILL)
    assert first.process.wait(LONGEST) == 1
    outcome = first.outcome()
    assert outcome.trouble is not None
    assert outcome.trouble.what == "peer", outcome.log


def test_an_address_of_another_host_is_refused(ran: Callable[..., RunOutcome]) -> None:
    assert network_interface(SECOND) == "lo"
    with pytest.raises(OSError, match="no network interface has the address"):
        network_interface("0.0.0.0")
    with pytest.raises(ValueError, match="Address cannot be empty"):
        network_interface("")
    elsewhere = NodePart(first_rank=0, ranks=1, rendezvous="192.0.2.1", port=20000, address="192.0.2.1", token="-")
    outcome = ran(spec_of("mnist_cnn", "tiny", {"hosts": 2}), node=elsewhere)
    assert outcome.code == 2
    assert outcome.trouble is not None
    assert outcome.trouble.sentence.startswith("The address 192.0.2.1 of this host (AGENT_RENDEZVOUS) cannot be used")
