"""Where an action comes from: the request that is being answered, else the worker or command that runs.

A context variable holds it: threads that asgiref starts for a request see the request's own, others see none.
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
    """A request, as far as an entry tells of it; what is learnt on the way is added: who, why not, what was kept."""

    request_id: str
    via: str  # page, api, worker or command
    address: str = ""
    method: str = ""
    path: str = ""
    credential: str = ""
    token: Token | None = None
    person_id: int | None = None  # for the log; the entry finds the person anew
    sentence: str = ""
    # What is kept of the request: an entry, or, over the limit of refusals, a count.
    appended: bool = False
    counted: bool = False


ORIGIN = "falconweb.origin"  # in a request's META
_origin: ContextVar[Origin | None] = ContextVar("audit_origin", default=None)
# The worker and the task that runs, also for the threads that the task starts: Celery's own word is of one thread.
_running_task: ContextVar[tuple[str, str] | None] = ContextVar("audit_running", default=None)
bind_origin, unbind_origin, bound_origin = _origin.set, _origin.reset, _origin.get
running_task = _running_task.get
# What the log says beside each line: the chassis and the operation at hand.
_log_context: ContextVar[Mapping[str, int | str]] = ContextVar("log_about", default=MappingProxyType({}))
current_log_context = _log_context.get


@task_prerun.connect
def _set_running_task(task: Any, **_: Any) -> None:
    _running_task.set((str(getattr(task.request, "hostname", None) or socket.gethostname()), str(task.name)))


@task_postrun.connect
def _clear_running_task(**_: Any) -> None:
    _running_task.set(None)


def new_request_id() -> str:
    """Return an id of 16 hexadecimal digits: short enough to be read out, long enough to be met once."""
    return secrets.token_hex(8)


def request_id() -> str:
    """Return the id of the request that is being answered, '' outside of one: for what is carried out later."""
    origin = _origin.get()
    return origin.request_id if origin else ""


def add_log_context(**named: int | str) -> None:
    """Have each further log line of this task or thread tell what it is about: `chassis_id`, `operation_id`."""
    _log_context.set({**_log_context.get(), **named})


@contextmanager
def log_context(**named: int | str) -> Iterator[None]:
    """Have each log line inside tell what it is about: for threads that do something else afterwards."""
    token = _log_context.set({**_log_context.get(), **named})
    try:
        yield
    finally:
        _log_context.reset(token)


def note_person(person_id: int) -> None:
    """Keep who asks, for the log."""
    origin = _origin.get()
    if origin is not None:
        origin.person_id = person_id


def note_sentence(sentence: str) -> None:
    """Keep what a face answered, for the entry of a request whose service said nothing."""
    origin = _origin.get()
    if origin is not None:
        origin.sentence = sentence


def note_credential(words: str) -> None:
    """Keep with what somebody shows who they are, where it is neither session nor token."""
    origin = _origin.get()
    if origin is not None:
        origin.credential = words


def note_token(token: Token) -> None:
    """Keep which token was presented, also where it is not enough."""
    origin = _origin.get()
    if origin is not None:
        origin.token, origin.credential = token, f"token {token.pk}, {token.name}"
        origin.person_id = token.person_id


def current_origin() -> Origin:
    """Return the origin of what happens now."""
    origin = _origin.get()
    if origin is not None:
        return origin
    running = _running_task.get()
    if running is not None:
        worker, task = running
        return Origin(request_id="", via="worker", address=worker, path=task)
    # The name of a command, without its arguments: these may hold anything.
    words = [Path(sys.argv[0]).name if sys.argv else "", *sys.argv[1:2]]
    return Origin(request_id="", via="command", address=socket.gethostname(), path=" ".join(words).strip())
