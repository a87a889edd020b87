"""`python -m trainer.launch --nproc-per-node N -m trainer ...`: torchrun, whose processes meet on the loopback alone.

torchrun's own meeting place listens on every address of the host, asks nobody who they are, and keeps there what it
reads back by unpickling: whoever reaches the port could run code as the account of the run.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
import sys

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # public all the same
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.run import main as torchrun

LOOPBACK = "127.0.0.1"
NAME = "loopback"
WAIT = dt.timedelta(seconds=600)  # for one another


class Loopback(RendezvousHandler):
    """A meeting place for the processes of one machine: a store at a free port of the loopback."""

    def __init__(self, run: str) -> None:
        self._run = run
        place = socket.create_server((LOOPBACK, 0))
        self._port: int = place.getsockname()[1]
        # The store listens where it is told to, and not at every address, if the socket is made for it.
        self._store = TCPStore(
            LOOPBACK, self._port, is_master=True, timeout=WAIT, wait_for_workers=False, master_listen_fd=place.detach()
        )

    @property
    def use_agent_store(self) -> bool:
        """The processes use this store, and open none of their own."""
        return True

    def get_backend(self) -> str:
        """Return its name."""
        return NAME

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet: there is one torchrun."""
        return RendezvousInfo(
            PrefixStore(self._run, self._store), rank=0, world_size=1, bootstrap_store_info=self._address()
        )

    def is_closed(self) -> bool:
        """Nobody else could close it."""
        return False

    def set_closed(self) -> None:
        """There is nobody to tell."""

    def num_nodes_waiting(self) -> int:
        """Nobody else comes."""
        return 0

    def get_run_id(self) -> str:
        """Return what torchrun calls the run."""
        return self._run

    def shutdown(self) -> bool:
        """It goes with this process."""
        return True

    def _address(self) -> RendezvousStoreInfo:
        return RendezvousStoreInfo(LOOPBACK, self._port)


def _meeting_place(given: RendezvousParameters) -> RendezvousHandler:
    return Loopback(given.run_id)


def main() -> None:
    """Run torchrun with the arguments of this program."""
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")
    rendezvous_handler_registry.register(NAME, _meeting_place)
    own = ["--nnodes", "1", "--rdzv-backend", NAME, "--rdzv-endpoint", LOOPBACK, "--local-addr", LOOPBACK]
    torchrun([*own, *sys.argv[1:]])


if __name__ == "__main__":
    main()
