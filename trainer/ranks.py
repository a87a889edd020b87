"""The processes of a run, its ranks: forked from one that has imported PyTorch, they meet on the loopback alone.

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

from trainer.parent import die_with_parent

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]  # public all the same

LOOPBACK = "127.0.0.1"
WAIT = dt.timedelta(seconds=600)  # for one another
_NUMBER, _COUNT, _PORT = "RANK", "WORLD_SIZE", "MASTER_PORT"


def rank_here() -> int:
    """Return the number of this process among those of the run; 0 where it is the only one."""
    return int(os.environ.get(_NUMBER, "0"))


def world_here() -> int:
    """Return how many processes the run has."""
    return int(os.environ.get(_COUNT, "1"))


def store_here() -> Store:
    """Return the store by which the processes of the run meet, on the loopback; its own where there is one alone."""
    from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]  # public all the same

    # One that is alone listens, too.
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")
    port = os.environ.get(_PORT)
    return TCPStore(LOOPBACK, int(port), timeout=WAIT) if port else HashStore()


def run_ranks(count: int, work: Callable[[], int]) -> int:
    """Do the work in so many processes; return 0 when it has gone well in all of them.

    Else the others are ended, and the exit code of the first that failed is returned; if a signal ended that one, it
    ends this process, too.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public all the same

    # Open before anybody calls, so that nobody else can have the port, and at this address: the store takes it over.
    meeting = socket.create_server((LOOPBACK, 0))
    port = meeting.getsockname()[1]
    ranks = {_begin(number, count, port, meeting, work) for number in range(count)}
    # It has a thread, which a fork would lose.
    store = TCPStore(
        LOOPBACK, port, is_master=True, timeout=WAIT, wait_for_workers=False, master_listen_fd=meeting.detach()
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


def end(code: int) -> NoReturn:
    """End this process. Threads of libraries would hold up one that failed, and sometimes abort one that went well."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _begin(number: int, count: int, port: int, meeting: socket.socket, work: Callable[[], int]) -> int:
    """Fork the process of that number; return its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    if process := os.fork():
        return process
    code = 1
    try:
        die_with_parent()
        meeting.close()
        os.environ.update({_NUMBER: str(number), _COUNT: str(count), _PORT: str(port)})
        code = work()
    except BaseException:  # noqa: BLE001  # this process must not go on as the one that forked it
        traceback.print_exc()
    finally:
        end(code)
