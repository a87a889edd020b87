"""The account that runs the commands of users: unprivileged, named by whoever runs the host, never root."""

from __future__ import annotations

import os
import pwd
import resource
import stat
from dataclasses import dataclass
from pathlib import Path

from agent.runs import family

MOST_PROCESSES = 2048
MOST_FILES = 65_536
LONGEST_FILE = 16 * 2**30


class AccountError(Exception):
    """Why an account cannot run commands, a sentence."""


@dataclass(frozen=True)
class Account:
    """An account of this host."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


def account_of(name: str) -> Account:
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
    return Account(name, found.pw_uid, found.pw_gid, groups)


def way_for(account: Account, place: Path) -> None:
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


def limit_yourself() -> None:
    """Limit this process before it becomes a user's command. It has its account already."""
    for which, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, MOST_PROCESSES),
        (resource.RLIMIT_NOFILE, MOST_FILES),
        (resource.RLIMIT_FSIZE, LONGEST_FILE),
    ):
        hard = resource.getrlimit(which)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (least, least))
    family.gain_nothing()
