"""The processes of a run: forked, connected over the loopback, ended with their parent. Does not import torch.

torchrun imports PyTorch for itself and again in each of them, listens on every address of the host without
authentication, and unpickles received data.
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
RENDEZVOUS_TIMEOUT = dt.timedelta(seconds=600)  # to connect to each other
_RANK_VARIABLE, _WORLD_SIZE_VARIABLE, _PORT_VARIABLE = "RANK", "WORLD_SIZE", "MASTER_PORT"


def current_rank() -> int:
    """Return the rank of this process in the run; 0 where it is the only one."""
    return int(os.environ.get(_RANK_VARIABLE, "0"))


def world_size() -> int:
    return int(os.environ.get(_WORLD_SIZE_VARIABLE, "1"))


def rendezvous_store() -> Store:
    """Return the rendezvous store of the run's processes, on the loopback; a private one for a single process."""
    from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]  # public all the same

    # A single process listens, too.
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")
    port = os.environ.get(_PORT_VARIABLE)
    return TCPStore(LOOPBACK, int(port), timeout=RENDEZVOUS_TIMEOUT) if port else HashStore()


def run_ranks(count: int, work: Callable[[], int]) -> int:
    """Run `work` in `count` processes; returns 0 when all succeed.

    At a failure the others are ended, and the exit code of the first failed one is returned; if a signal ended it, the
    same signal ends this process, too.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public all the same

    # Bound here to the loopback, so that no other program can take the port; the store takes the socket over.
    meeting = socket.create_server((LOOPBACK, 0))
    port = meeting.getsockname()[1]
    ranks = {_fork_rank(number, count, port, meeting, work) for number in range(count)}
    # It starts a thread, which a fork would lose.
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
    """Exit immediately: threads of libraries can block a failed process, and sometimes abort a successful one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _fork_rank(number: int, count: int, port: int, meeting: socket.socket, work: Callable[[], int]) -> int:
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
    except BaseException:  # noqa: BLE001  # a forked process must not continue in its parent's code
        traceback.print_exc()
    finally:
        exit_process(code)


_SET_PARENT_DEATH_SIGNAL = 1  # of prctl(2)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, for any reason."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
