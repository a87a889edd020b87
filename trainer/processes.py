"""The processes of a run: forked, connected over the loopback, ended with their parent. Does not import torch.

torchrun imports PyTorch for itself and again in each of them, listens on every address of the host without
authentication, and unpickles received data. Here the processes of a run over several hosts meet at one address of the
first host, and nothing that comes there is unpickled.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import ipaddress
import os
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]  # public all the same
import ctypes

from hostwire.training import NodePart

LOOPBACK = "127.0.0.1"
RENDEZVOUS_TIMEOUT = dt.timedelta(seconds=600)  # to connect to each other
PEER_LOST = 3  # exit code of a process that ended only because another one had
CAUSE_SECONDS = 5.0
_RANK_VARIABLE, _LOCAL_RANK_VARIABLE, _WORLD_SIZE_VARIABLE = "RANK", "LOCAL_RANK", "WORLD_SIZE"
_ADDRESS_VARIABLE, _PORT_VARIABLE, _TOKEN_VARIABLE = "MASTER_ADDR", "MASTER_PORT", "FALCONWEB_RENDEZVOUS_TOKEN"
_NETWORK_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")  # the network interface that a library uses
_LOOPBACK_INTERFACE = "lo"


def current_rank() -> int:
    """Return the rank of this process in the run; 0 where it is the only one."""
    return int(os.environ.get(_RANK_VARIABLE, "0"))


def local_rank() -> int:
    """Return the number of this process among those of its host, which is that of its GPU."""
    return int(os.environ.get(_LOCAL_RANK_VARIABLE, "0"))


def world_size() -> int:
    return int(os.environ.get(_WORLD_SIZE_VARIABLE, "1"))


def rendezvous_store() -> Store:
    """Return the rendezvous store of the run's processes, on the loopback unless they are on several hosts.

    A single process has a private one.
    """
    from torch.distributed import HashStore, PrefixStore, TCPStore  # type: ignore[attr-defined]  # public all the same

    for variable in _NETWORK_VARIABLES:
        os.environ.setdefault(variable, _LOOPBACK_INTERFACE)  # a single process listens, too
    if not (port := os.environ.get(_PORT_VARIABLE)):
        return HashStore()
    store = TCPStore(os.environ[_ADDRESS_VARIABLE], int(port), timeout=RENDEZVOUS_TIMEOUT)
    return PrefixStore(os.environ[_TOKEN_VARIABLE], store)


def run_ranks(count: int, work: Callable[[], int], node: NodePart | None = None) -> tuple[int, int]:
    """Run `work` in `count` processes, of which `node` says how many are on this host.

    Returns 0 when all succeed, and the last rank. Raises OSError where the rendezvous cannot be opened.

    At a failure the others are ended, and the exit code of the first failed one is returned, minus the signal that
    ended it, with its rank: a process that only lost another one gives it some time to end.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public all the same

    node = node or NodePart(first_rank=0, ranks=count, rendezvous=LOOPBACK, port=0, address=LOOPBACK, token="")
    network = network_interface(node.address)
    # Bound here to one address, so that no other program can take the port; the store takes the socket over.
    meeting = socket.create_server((node.address, node.port)) if node.leads else None
    port = node.port if meeting is None else meeting.getsockname()[1]
    os.environ.update(dict.fromkeys(_NETWORK_VARIABLES, network))
    places = {
        _WORLD_SIZE_VARIABLE: str(count),
        _ADDRESS_VARIABLE: node.rendezvous,
        _PORT_VARIABLE: str(port),
        _TOKEN_VARIABLE: node.token,
    }
    ranks = {_fork_rank(number, node, places, meeting, work): number for number in range(node.ranks)}
    # It starts a thread, which a fork would lose.
    store = meeting and TCPStore(
        node.rendezvous,
        port,
        is_master=True,
        timeout=RENDEZVOUS_TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=meeting.detach(),
    )
    code, rank = 0, 0
    while ranks and code == 0:
        ended, status = os.wait()
        code, rank = os.waitstatus_to_exitcode(status), ranks.pop(ended)
        if code == PEER_LOST:
            code, rank = _cause(ranks) or (code, rank)
    for left in ranks:
        os.kill(left, signal.SIGKILL)
        os.waitpid(left, 0)
    del store
    return code, rank


def _cause(ranks: dict[int, int]) -> tuple[int, int] | None:
    """Return exit code and rank of a process that ends by itself within CAUSE_SECONDS; None for none."""
    until = time.monotonic() + CAUSE_SECONDS
    while ranks and time.monotonic() < until:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if not ended:
            time.sleep(0.02)
            continue
        rank, code = ranks.pop(ended), os.waitstatus_to_exitcode(status)
        if code not in (0, PEER_LOST):
            return code, rank
    return None


def network_interface(address: str) -> str:
    """Return the network interface of this host whose network has its IPv4 address.

    Raises OSError for another host's address, and for 0.0.0.0, which is all addresses; ValueError for none.
    """
    wanted = ipaddress.IPv4Address(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind((address, 0))  # refused unless it is this host's
        for _number, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                own, mask = (
                    socket.inet_ntoa(fcntl.ioctl(one.fileno(), which, request)[20:24])
                    for which in (_GET_ADDRESS, _GET_NETMASK)
                )
            except OSError:
                continue  # it has no IPv4 address
            if wanted in ipaddress.ip_interface(f"{own}/{mask}").network:
                return name
    raise OSError(f"no network interface has the address {address}")


def exit_process(code: int) -> NoReturn:
    """Exit immediately: threads of libraries can block a failed process, and sometimes abort a successful one."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _fork_rank(
    number: int, node: NodePart, places: dict[str, str], meeting: socket.socket | None, work: Callable[[], int]
) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    if process := os.fork():
        return process
    code = 1
    try:
        die_with_parent()
        if meeting is not None:
            meeting.close()
        os.environ.update({**places, _RANK_VARIABLE: str(node.first_rank + number), _LOCAL_RANK_VARIABLE: str(number)})
        code = work()
    except BaseException:  # noqa: BLE001  # a forked process must not continue in its parent's code
        traceback.print_exc()
    finally:
        exit_process(code)


_SET_PARENT_DEATH_SIGNAL = 1  # of prctl(2)
_GET_ADDRESS, _GET_NETMASK = 0x8915, 0x891B  # of netdevice(7)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, for any reason."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
