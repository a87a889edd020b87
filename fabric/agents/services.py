"""Hosts' agents: enrolled by an administrator, authenticated by signatures, commanded through queues of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final

import msgspec
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from accounts.audit.actions import Action
from accounts.audit.services import audited, target_of
from accounts.models import User
from core import credentials
from core.database import lock_rows
from core.enqueue import enqueue
from core.errors import Forbidden, NotFound, Unavailable
from core.failpoints import failpoint
from core.language import _
from core.threads import run_in_thread
from fabric.agents.models import HostAgent, HostAnswer
from fabric.inventory.models import Host
from fabric.signals import inventory_changed
from hostwire.protocol import CommandAnswer, Request
from hostwire.signing import (
    WireError,
    claimed_digest,
    digest,
    new_command,
    new_key,
    open_answer,
    open_report,
    queue_name,
    seal_command,
)

logger = logging.getLogger(__name__)
ANSWER_POLL_SECONDS: Final = 0.1
# A broker that dies loses its queues. An agent knows a command by its nonce: it runs it once, and answers every copy.
RESEND_SECONDS: Final = 8.0
# Beyond the command's own time limit: the agent abandons a step that does not end after 30 s, and reports that.
ANSWER_SECONDS: Final = 45.0
BROKER_ERRORS: Final = (OperationalError, OSError)  # the broker
ANSWER_RETENTION: Final = timedelta(days=1)
MAX_TEXT_LENGTH: Final = 500
MAX_ITEMS: Final = 1000


def agent_enrol(*, person: User, host: Host) -> str:
    """Enrol the agent of a host and return its key, which is shown once; a previous key becomes void.

    Raises Forbidden for all but administrators, NotFound.
    """
    with audited(Action.AGENT_ENROL, actor=person, target=target_of(host)):
        _require_administrator(person, host)
        key = new_key()
        agent_register(host=host, key=key)
    return key


def agent_register(*, host: Host, key: str) -> None:
    """Register the agent of a host with this key; earlier messages become void."""
    HostAgent.objects.update_or_create(
        host=host,
        defaults={
            "digest": digest(host.identity),
            "key_encrypted": credentials.encrypt(key),
            "reported_at": None,
            "report": {},
            "started": 0.0,
            "number": 0,
        },
    )


def agent_remove(*, person: User, host: Host) -> None:
    """Remove a host's agent: its messages are rejected. Raises Forbidden, NotFound."""
    with audited(Action.AGENT_FORGET, actor=person, target=target_of(host)):
        _require_administrator(person, host)
        HostAgent.objects.filter(host=host).delete()


def report_store(text: object) -> None:
    """Store the report of an agent, if it is authentic and newer than the last; others are logged."""
    try:
        row = _claimed_agent(text)
        report = open_report(text, row.key, identity=row.host.identity)
    except WireError as error:
        logger.warning("a host's report was rejected: %s", error)
        return
    with transaction.atomic():
        locked: HostAgent | None = lock_rows(HostAgent.objects.filter(pk=row.pk)).first()
        # The host may have got another key, or lost its agent, since the report was verified.
        if locked is None or locked.key != row.key:
            logger.warning("a host's report was rejected: its key is void by now")
            return
        if (report.started, report.number) <= (locked.started, locked.number):
            return
        plain = _sanitized(msgspec.to_builtins(report), _report_text, MAX_ITEMS)
        changed = any(locked.report.get(name) != plain.get(name) for name in ("devices", "holders"))
        locked.report, locked.started, locked.number = plain, report.started, report.number
        locked.reported_at, locked.version = timezone.now(), plain["version"][:50]
        locked.save()
        if changed:
            for chassis in set(row.host.host_ports.values_list("chassis", flat=True)):
                transaction.on_commit(partial(inventory_changed.send, HostAgent, chassis_id=chassis), robust=True)


def answer_store(text: object) -> None:
    """Store the answer of an agent for the requester, if it is authentic."""
    try:
        row = _claimed_agent(text)
        answer = open_answer(text, row.key, identity=row.host.identity)
    except WireError as error:
        logger.warning("a host's answer was rejected: %s", error)
        return
    # Only for open requests, and once: a host cannot fill the table.
    pending = HostAnswer.objects.filter(nonce=answer.nonce, host=row.host, body={})
    body = _sanitized(msgspec.to_builtins(msgspec.structs.replace(answer, news=None)), _report_text, MAX_ITEMS)
    # The output of a run is long and has lines; a message of it is bounded, as every other.
    body["news"] = _sanitized(msgspec.to_builtins(answer.news), _output_text)
    pending.update(body=body, received_at=timezone.now())


def answers_delete_expired() -> None:
    """Delete answers that no requester waits for any more."""
    HostAnswer.objects.filter(received_at__lt=timezone.now() - ANSWER_RETENTION).delete()


async def agent_request(host: Host, request: Request, *, wait: float = 0.0) -> CommandAnswer | None:
    """Send a command to a host's agent, repeated until it answers, and return the answer; None: none came in time.

    `wait` is the time in s that the command itself may take. Raises Unavailable if the broker is unreachable at first.
    """
    agent: HostAgent = await run_in_thread(HostAgent.objects.get, host=host)
    life = wait + ANSWER_SECONDS
    command = new_command(host.identity, request, life=life)
    text = seal_command(command, agent.key)
    await run_in_thread(HostAnswer.objects.create, nonce=command.nonce, host=host)
    failpoint("agent.command.stored")
    send = partial(enqueue, command.task, text, queue=queue_name(host.identity))
    try:
        await asyncio.to_thread(send)
    except BROKER_ERRORS as error:
        raise Unavailable(_("The agent of the host cannot be reached: the broker does not answer.")) from error
    failpoint("agent.command.sent")
    sent = time.monotonic()
    end = sent + life
    while (now := time.monotonic()) < end:
        await asyncio.sleep(ANSWER_POLL_SECONDS)
        row = await run_in_thread(HostAnswer.objects.filter(nonce=command.nonce).exclude(body={}).first)
        if row is not None:
            failpoint("agent.command.answered")
            return msgspec.convert(row.body, CommandAnswer)
        if now - sent >= RESEND_SECONDS:
            sent = now
            with contextlib.suppress(*BROKER_ERRORS):  # the broker returns, or the time runs out
                await asyncio.to_thread(send)
    return None


def _claimed_agent(text: object) -> HostAgent:
    """Return the agent that a message names as its sender, unverified; raises WireError if it is unknown."""
    row: HostAgent | None = HostAgent.objects.select_related("host").filter(digest=claimed_digest(text)).first()
    if row is None:
        raise WireError("It is of a host that has no agent here.")
    return row


def _sanitized(value: Any, clean: Callable[[str], str], most: int | None = None) -> Any:
    """Return JSON of a host for storage: every text cleaned, and at most so many items of each list and object."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, (list, tuple)):
        return [_sanitized(one, clean, most) for one in value[:most]]
    if isinstance(value, dict):
        return {clean(name): _sanitized(one, clean, most) for name, one in list(value.items())[:most]}
    return value


def _report_text(text: str) -> str:
    """Return a text of a report, shortened and made printable, whatever the host's root wrote."""
    return "".join(one if one.isprintable() else " " for one in text[:MAX_TEXT_LENGTH])


def _output_text(text: str) -> str:
    """Return the output of a run with its line breaks; other unprintable characters become blanks."""
    return "".join(one if one.isprintable() or one in "\n\t" else " " for one in text)


def _require_administrator(person: User, host: Host) -> None:
    if not Host.objects.visible_to(person).filter(pk=host.pk).exists():
        raise NotFound(_("There is no such host."))
    if not person.is_administrator:
        raise Forbidden(_("Only an administrator may enrol the agent of a host."))
