"""The origin of an action: the current request, else the running worker or command.

It is in a context variable: threads that asgiref starts for a request share the request's, others have none.
"""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from celery.signals import task_postrun, task_prerun

if TYPE_CHECKING:
    from accounts.models import Token


@dataclass
class Origin:
    """The recorded facts of a request; completed on the way: the user, a refusal, the stored entry."""

    request_id: str
    via: str  # page, api, worker or command
    address: str = ""
    method: str = ""
    path: str = ""
    credential: str = ""
    token: Token | None = None
    person_id: int | None = None  # for the log; the entry looks the user up again
    sentence: str = ""
    # How the request was recorded: as an entry, or, over the limit of refusals, as a count.
    appended: bool = False
    counted: bool = False


ORIGIN = "falconweb.origin"  # in a request's META
_origin: ContextVar[Origin | None] = ContextVar("audit_origin", default=None)
# The worker and the running task, also for threads that the task starts: Celery's own is per thread.
_running_task: ContextVar[tuple[str, str] | None] = ContextVar("audit_running", default=None)
bind_origin, unbind_origin, bound_origin = _origin.set, _origin.reset, _origin.get
running_task = _running_task.get
# The administrator who approved what is carried out now in somebody else's name.
second_person: ContextVar[str] = ContextVar("audit_second_person", default="")
# Extra fields of each log line: the current chassis and operation.
_log_context: ContextVar[Mapping[str, int | str]] = ContextVar("log_about", default=MappingProxyType({}))
current_log_context = _log_context.get


@task_prerun.connect
def _set_running_task(task: Any, **_: Any) -> None:
    _running_task.set((str(getattr(task.request, "hostname", None) or socket.gethostname()), str(task.name)))


@task_postrun.connect
def _clear_running_task(**_: Any) -> None:
    _running_task.set(None)


def new_request_id() -> str:
    """Return an id of 16 hexadecimal digits: short enough to read out, long enough to be unique."""
    return secrets.token_hex(8)


def request_id() -> str:
    """Return the id of the current request, '' outside of one: for work that is carried out later."""
    origin = _origin.get()
    return origin.request_id if origin else ""


def add_log_context(**named: int | str) -> None:
    """Add `chassis_id` or `operation_id` to all further log lines of this task or thread."""
    _log_context.set({**_log_context.get(), **named})


@contextmanager
def log_context(**named: int | str) -> Iterator[None]:
    """Add fields to the log lines within the context: for threads that do other work afterwards."""
    token = _log_context.set({**_log_context.get(), **named})
    try:
        yield
    finally:
        _log_context.reset(token)


def complete_origin(**facts: Any) -> None:
    """Set facts of the current request (fields of `Origin`); without a request, nothing happens."""
    origin = _origin.get()
    if origin is not None:
        for name, value in facts.items():
            setattr(origin, name, value)


def current_origin() -> Origin:
    """Return the origin of the current action."""
    origin = _origin.get()
    if origin is not None:
        return origin
    running = _running_task.get()
    if running is not None:
        worker, task = running
        return Origin(request_id="", via="worker", address=worker, path=task)
    # The name of a command, without its arguments, which may contain anything.
    words = [Path(sys.argv[0]).name if sys.argv else "", *sys.argv[1:2]]
    return Origin(request_id="", via="command", address=socket.gethostname(), path=" ".join(words).strip())
