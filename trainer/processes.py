"""The processes of a run: forked, meeting on the loopback, ended with their parent. Imports no torch.

torchrun imports PyTorch for itself and again in each of them, listens on every address of the host, asks nobody who
they are, and unpickles what it is sent.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]  # public all the same
import ctypes

LOOPBACK = "127.0.0.1"
RENDEZVOUS_TIMEOUT = dt.timedelta(seconds=600)  # for one another
_RANK_VARIABLE, _WORLD_SIZE_VARIABLE, _PORT_VARIABLE = "RANK", "WORLD_SIZE", "MASTER_PORT"


def current_rank() -> int:
    """Return the number of this process among those of the run; 0 where it is the only one."""
    return int(os.environ.get(_RANK_VARIABLE, "0"))


def world_size() -> int:
    """Return how many processes the run has."""
    return int(os.environ.get(_WORLD_SIZE_VARIABLE, "1"))


def rendezvous_store() -> Store:
    """Return the store by which the processes of the run meet, on the loopback; its own where there is one alone."""
    from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]  # public all the same

    # One that is alone listens, too.
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")
    port = os.environ.get(_PORT_VARIABLE)
    return TCPStore(LOOPBACK, int(port), timeout=RENDEZVOUS_TIMEOUT) if port else HashStore()


def run_ranks(count: int, work: Callable[[], int]) -> int:
    """Do the work in so many processes; return 0 when it has gone well in all of them.

    Else the others are ended, and the exit code of the first that failed is returned; if a signal ended that one, it
    ends this process, too.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public all the same

    # Open before anybody calls, so that nobody else can have the port, and at this address: the store takes it over.
    meeting = socket.create_server((LOOPBACK, 0))
    port = meeting.getsockname()[1]
    ranks = {_fork_rank(number, count, port, meeting, work) for number in range(count)}
    # It has a thread, which a fork would lose.
    store = TCPStore(
        LOOPBACK,
        port,
        is_master=True,
        timeout=RENDEZVOUS_TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=meeting.detach(),
    )
    code = 0
    while ranks and code == 0:
        ended, status = os.wait()
        ranks.discard(ended)
        code = os.waitstatus_to_exitcode(status)
    for left in ranks:
        os.kill(left, signal.SIGKILL)
        os.waitpid(left, 0)
    del store
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


def exit_process(code: int) -> NoReturn:
    """End this process. Threads of libraries would hold up one that failed, and sometimes abort one that went well."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _fork_rank(number: int, count: int, port: int, meeting: socket.socket, work: Callable[[], int]) -> int:
    """Fork the process of that number; return its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    if process := os.fork():
        return process
    code = 1
    try:
        die_with_parent()
        meeting.close()
        os.environ.update({_RANK_VARIABLE: str(number), _WORLD_SIZE_VARIABLE: str(count), _PORT_VARIABLE: str(port)})
        code = work()
    except BaseException:  # noqa: BLE001  # this process must not go on as the one that forked it
        traceback.print_exc()
    finally:
        exit_process(code)


_SET_PARENT_DEATH_SIGNAL = 1  # of prctl(2)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it ends, however it does."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
