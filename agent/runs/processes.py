"""Processes of a run: their identity, account, limits, and termination.

A keeper is made the one that orphans of its run fall to, so that all of them stay its descendants.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import signal
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

PROC = Path("/proc")
RUN_VARIABLE = "FALCONWEB_RUN"
# How long processes that were killed may take to be gone.
KILL_SECONDS = 10.0
# How often it is looked whether processes that were halted have begun others just before.
MAX_SCANS = 20
POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process: its number, and when it began, in ticks since the boot, which no later one of its number shares."""

    pid: int
    start: int


def process_identity(pid: int) -> ProcessIdentity:
    """Return a process by its number; its start is 0 where there is none."""
    return ProcessIdentity(pid, _stat(pid)[1])


def is_alive(one: ProcessIdentity) -> bool:
    """Tell whether a process is there, and no other one by its number."""
    return one.start != 0 and _stat(one.pid)[1] == one.start


def descendants(*ancestors: int) -> list[ProcessIdentity]:
    """Return the processes that descend from these, those that have ended and wait for their parent left out."""
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in os.scandir(PROC):
        if entry.name.isdigit():
            parent, start = _stat(int(entry.name))
            children.setdefault(parent, []).append((int(entry.name), start))
    found: dict[int, ProcessIdentity] = {}
    waiting = list(ancestors)
    while waiting:
        for pid, start in children.get(waiting.pop(), ()):
            if pid not in found:
                waiting.append(pid)
                found[pid] = ProcessIdentity(pid, start)
    return [one for one in found.values() if one.start]


def processes_of_run(run: str) -> list[ProcessIdentity]:
    """Return the processes whose environment says that they are of a run."""
    mark = f"{RUN_VARIABLE}={run}".encode()
    found = []
    for entry in os.scandir(PROC):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (Path(entry.path) / "environ").read_bytes()
            except OSError:
                continue
            if mark in environment.split(b"\0") and (one := process_identity(int(entry.name))).start:
                found.append(one)
    return found


def terminate_processes(
    find: Callable[[], Iterable[ProcessIdentity]], grace: float, tend: Callable[[], None] = lambda: None
) -> list[ProcessIdentity]:
    """Ask processes to end, kill them after `grace` seconds, and return those that stay all the same.

    `find` tells which there are now; `tend` is called while they are waited for. Without grace nobody is asked: one
    that ends just after it begot another leaves nothing to find that by.
    """
    if grace > 0:
        _signal(find(), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while (left := list(find())) and time.monotonic() < deadline:
        tend()
        time.sleep(POLL_SECONDS)
    deadline = time.monotonic() + KILL_SECONDS
    while left and time.monotonic() < deadline:
        _signal(_stop_processes(find, left), signal.SIGKILL)
        tend()
        time.sleep(POLL_SECONDS)
        left = list(find())
    return left


def _stop_processes(
    find: Callable[[], Iterable[ProcessIdentity]], left: Iterable[ProcessIdentity]
) -> set[ProcessIdentity]:
    """Halt processes until there are no new ones, and return all: killed one by one, some beget others as quickly."""
    halted: set[ProcessIdentity] = set()
    new = set(left)
    for _ in range(MAX_SCANS):
        _signal(new, signal.SIGSTOP)
        halted |= new
        new = set(find()) - halted
        if not new:
            break
    return halted


def reap_orphans(except_for: int) -> None:
    """Take note of the ends of orphans that fell to this process, and of no other child's."""
    for entry in os.scandir(PROC):
        if entry.name.isdigit() and int(entry.name) != except_for and _parent(int(entry.name)) == os.getpid():
            try:
                os.waitpid(int(entry.name), os.WNOHANG)
            except ChildProcessError:
                continue


def has_no_children() -> bool:
    """Tell whether this process has no child any more, as the kernel says; it takes note of the ends of all.

    With `become_subreaper` that is sure, where a look at /proc misses those that beget another and end in between.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def kill_processes_of_user(uid: int, gid: int) -> None:
    """Kill every process of an account, all at the same moment: not even one that forks slips through."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def become_subreaper() -> None:
    """Let orphans among the descendants of this process fall to it, not to the first process of the system."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_with_parent() -> None:
    """Let this process be killed when the one that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def forbid_new_privileges() -> None:
    """Let no program that this process starts have more rights than it has."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


def _signal(members: Iterable[ProcessIdentity], number: int) -> None:
    for one in members:
        try:
            # The handle is of the process that is checked, and of no later one by its number.
            handle = os.pidfd_open(one.pid)
        except OSError:
            continue
        try:
            if is_alive(one):
                signal.pidfd_send_signal(handle, number)
        except OSError:
            pass
        finally:
            os.close(handle)


def _stat(pid: int) -> tuple[int, int]:
    """Return parent and start of a process; the start is 0 for one that has ended."""
    try:
        # The name, in brackets, may have blanks and brackets itself.
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0, 0
    if len(fields) < 20 or fields[0] in "ZX":
        return int(fields[1]) if len(fields) > 1 else 0, 0
    return int(fields[1]), int(fields[19])


def _parent(pid: int) -> int:
    return _stat(pid)[0]


MAX_PROCESSES = 2048
MAX_OPEN_FILES = 65_536
MAX_FILE_BYTES = 16 * 2**30


class AccountError(Exception):
    """Why an account cannot run commands, a sentence."""


@dataclass(frozen=True)
class UnixAccount:
    """An account of this host."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


def account_of(name: str) -> UnixAccount:
    """Return the account by its name; raises AccountError where it must not, or cannot, run commands of users."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise AccountError(f"AGENT_ACCOUNT names {name}, and this host has no such account.") from None
    groups = tuple(os.getgrouplist(name, found.pw_gid))
    if found.pw_uid == 0 or 0 in groups:
        raise AccountError(f"AGENT_ACCOUNT names {name}, which is root or of root's group: nobody's command runs so.")
    if os.geteuid() != 0:
        raise AccountError("The agent does not run as root, so it cannot run commands as another account.")
    return UnixAccount(name, found.pw_uid, found.pw_gid, groups)


def require_access(account: UnixAccount, place: Path) -> None:
    """Let an account reach a folder of the agent's; raises AccountError with the folder on the way that is closed."""
    for folder in [*reversed(place.resolve().parents), place]:
        found = folder.stat()
        if account.uid == found.st_uid:
            opens = stat.S_IXUSR
        elif found.st_gid in account.groups:
            opens = stat.S_IXGRP
        else:
            opens = stat.S_IXOTH
        if not found.st_mode & opens:
            raise AccountError(f"The account {account.name} cannot reach {place}: {folder} is closed to it.")


def limit_own_resources() -> None:
    """Limit this process before it becomes a user's command. It has its account already."""
    for which, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, MAX_PROCESSES),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
    ):
        hard = resource.getrlimit(which)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (least, least))
    forbid_new_privileges()
