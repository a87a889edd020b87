"""Processes of a run: their identity, account, limits, and termination.

A supervisor becomes the subreaper of its run, so that all orphans stay its descendants.
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

from hostwire.training import RUN_VARIABLE

PROC = Path("/proc")
# The time that killed processes have to end.
KILL_SECONDS = 10.0
# The number of scans for processes that others started just before they were halted.
MAX_SCANS = 20
POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process: its PID, and its start in ticks since the boot, which no later process with this PID shares."""

    pid: int
    start: int


def process_identity(pid: int) -> ProcessIdentity:
    """Return a process by its PID; its start is 0 where there is none."""
    return ProcessIdentity(pid, _stat(pid)[1])


def is_alive(one: ProcessIdentity) -> bool:
    """Return whether this process is running, not another one with its PID."""
    return one.start != 0 and _stat(one.pid)[1] == one.start


def descendants(*ancestors: int) -> list[ProcessIdentity]:
    """Return the descendants of these processes, without zombies."""
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
    """Return the processes whose environment names the run."""
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
    find: Callable[[], Iterable[ProcessIdentity]], grace: float, while_waiting: Callable[[], None] = lambda: None
) -> list[ProcessIdentity]:
    """Send SIGTERM to processes, SIGKILL after `grace` seconds, and return those that remain.

    `find` returns the present processes. Without grace there is no SIGTERM: a process that ends just after it forked
    leaves no trace of its child.
    """
    if grace > 0:
        _signal(find(), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while (left := list(find())) and time.monotonic() < deadline:
        while_waiting()
        time.sleep(POLL_SECONDS)
    deadline = time.monotonic() + KILL_SECONDS
    while left and time.monotonic() < deadline:
        _signal(_stop_processes(find, left), signal.SIGKILL)
        while_waiting()
        time.sleep(POLL_SECONDS)
        left = list(find())
    return left


def _stop_processes(
    find: Callable[[], Iterable[ProcessIdentity]], left: Iterable[ProcessIdentity]
) -> set[ProcessIdentity]:
    """Stop (SIGSTOP) processes until there are no new ones, and return all: some fork as fast as they are killed."""
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
    """Reap the orphans that this process inherited, and no other children."""
    for entry in os.scandir(PROC):
        if entry.name.isdigit() and int(entry.name) != except_for and _stat(int(entry.name))[0] == os.getpid():
            try:
                os.waitpid(int(entry.name), os.WNOHANG)
            except ChildProcessError:
                continue


def has_no_children() -> bool:
    """Reap all ended children, and return whether the kernel reports none left.

    With `become_subreaper` that is reliable, whereas a scan of /proc misses processes that fork and end in between.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def kill_processes_of_user(uid: int, gid: int) -> None:
    """Kill all processes of an account in one call, so that none escapes by forking."""
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
    """Make this process the parent of orphans among its descendants, instead of init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def forbid_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")


def _signal(members: Iterable[ProcessIdentity], number: int) -> None:
    for one in members:
        try:
            # The handle refers to the process that is checked below, not to a later one with its PID.
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
    """Return the parent and the start of a process; the start is 0 for one that has ended."""
    try:
        # The name, in brackets, may contain blanks and brackets.
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0, 0
    if len(fields) < 20 or fields[0] in "ZX":
        return int(fields[1]) if len(fields) > 1 else 0, 0
    return int(fields[1]), int(fields[19])


MAX_PROCESSES = 2048
MAX_OPEN_FILES = 65_536
MAX_FILE_BYTES = 16 * 2**30


class AccountError(Exception):
    """The account cannot run commands; the text says why."""


@dataclass(frozen=True)
class UnixAccount:
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
        raise AccountError(
            f"AGENT_ACCOUNT names {name}, which is root or in root's group: users' commands must not run as it."
        )
    if os.geteuid() != 0:
        raise AccountError("The agent does not run as root, so it cannot run commands as another account.")
    return UnixAccount(name, found.pw_uid, found.pw_gid, groups)


def require_access(account: UnixAccount, place: Path) -> None:
    """Raise AccountError, naming the closed folder, where an account cannot reach a folder of the agent's."""
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
    """Limit this process before it executes a user's command. It runs as its account already."""
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
