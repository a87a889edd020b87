"""Hosts' agents: enrolled by an administrator, believed by their signature, asked by commands of their own queue."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
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
# A broker that dies takes what lies in it along. An agent knows a command by its nonce: it carries it out once, and
# answers it as often as it comes.
RESEND_SECONDS: Final = 8.0
# Beyond the time that the command itself may wait: a step that does not end is given up after 30 s, and then told.
ANSWER_SECONDS: Final = 45.0
BROKER_ERRORS: Final = (OperationalError, OSError)  # the broker
ANSWER_RETENTION: Final = timedelta(days=1)
MAX_TEXT_LENGTH: Final = 500
MAX_ITEMS: Final = 1000


def agent_enrol(*, person: User, host: Host) -> str:
    """Let a host have an agent and return its key, which is shown once; a key that it had before is void.

    Raises Forbidden for all but administrators, NotFound.
    """
    with audited(Action.AGENT_ENROL, actor=person, target=target_of(host)):
        _require_administrator(person, host)
        key = new_key()
        agent_register(host=host, key=key)
    return key


def agent_register(*, host: Host, key: str) -> None:
    """Let a host have an agent with this key; nothing that it said before is believed any more."""
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
    """Believe nothing more of a host's agent. Raises Forbidden, NotFound."""
    with audited(Action.AGENT_FORGET, actor=person, target=target_of(host)):
        _require_administrator(person, host)
        HostAgent.objects.filter(host=host).delete()


def report_store(text: object) -> None:
    """Keep the report of an agent, if it is genuine and newer than the one before; others are noted in the log."""
    try:
        row = _claimed_agent(text)
        report = open_report(text, row.key, identity=row.host.identity)
    except WireError as error:
        logger.warning("a host's report was not believed: %s", error)
        return
    with transaction.atomic():
        locked: HostAgent | None = lock_rows(HostAgent.objects.filter(pk=row.pk)).first()
        # It may have been given another key, or been forgotten, since the report was verified.
        if locked is None or locked.key != row.key:
            logger.warning("a host's report was not believed: its key is void by now")
            return
        if (report.started, report.number) <= (locked.started, locked.number):
            return
        changed = _relevant_parts(locked.report) != _relevant_parts(plain := _sanitized(msgspec.to_builtins(report)))
        locked.report, locked.started, locked.number = plain, report.started, report.number
        locked.reported_at, locked.version = timezone.now(), plain["version"][:50]
        locked.save()
        if changed:
            for chassis in set(row.host.host_ports.values_list("chassis", flat=True)):
                transaction.on_commit(partial(inventory_changed.send, HostAgent, chassis_id=chassis), robust=True)


def answer_store(text: object) -> None:
    """Keep the answer of an agent for whoever waits for it, if it is genuine."""
    try:
        row = _claimed_agent(text)
        answer = open_answer(text, row.key, identity=row.host.identity)
    except WireError as error:
        logger.warning("a host's answer was not believed: %s", error)
        return
    # Only what was asked for, and once: a host fills no table.
    asked = HostAnswer.objects.filter(nonce=answer.nonce, host=row.host, body={})
    body = _sanitized(msgspec.to_builtins(msgspec.structs.replace(answer, news=None)))
    # What a run tells is long and has lines; a message of it is bounded, as every other.
    body["news"] = _sanitized_news(msgspec.to_builtins(answer.news))
    asked.update(body=body, received_at=timezone.now())


def answers_delete_expired() -> None:
    """Delete answers that nobody waits for any more."""
    HostAnswer.objects.filter(received_at__lt=timezone.now() - ANSWER_RETENTION).delete()


async def agent_request(host: Host, request: Request, *, wait: float = 0.0) -> CommandAnswer | None:
    """Send a command to a host's agent, again until it is answered, and return the answer; None: none came in time.

    `wait` is the time in s that the command itself may take. Raises Unavailable where the broker is away at first.
    """
    agent: HostAgent = await run_in_thread(HostAgent.objects.get, host=host)
    life = wait + ANSWER_SECONDS
    command = new_command(host.identity, request, life=life)
    text = seal_command(command, agent.key)
    await run_in_thread(HostAnswer.objects.create, nonce=command.nonce, host=host)
    send = partial(enqueue, command.task, text, queue=queue_name(host.identity))
    try:
        await asyncio.to_thread(send)
    except BROKER_ERRORS as error:
        raise Unavailable("The agent of the host could not be asked: the broker does not answer.") from error
    sent = time.monotonic()
    end = sent + life
    while (now := time.monotonic()) < end:
        await asyncio.sleep(ANSWER_POLL_SECONDS)
        row = await run_in_thread(HostAnswer.objects.filter(nonce=command.nonce).exclude(body={}).first)
        if row is not None:
            return msgspec.convert(row.body, CommandAnswer)
        if now - sent >= RESEND_SECONDS:
            sent = now
            with contextlib.suppress(*BROKER_ERRORS):  # it comes back, or the time runs out
                await asyncio.to_thread(send)
    return None


def _claimed_agent(text: object) -> HostAgent:
    """Return the agent that a message says it is from, unverified; raises WireError for none of ours."""
    row: HostAgent | None = HostAgent.objects.select_related("host").filter(digest=claimed_digest(text)).first()
    if row is None:
        raise WireError("It is of a host that has no agent here.")
    return row


def _sanitized(told: Any) -> Any:
    """Return what a host tells as it is kept: texts are short and can be shown, whatever its root wrote."""
    if isinstance(told, str):
        return "".join(one if one.isprintable() else " " for one in told[:MAX_TEXT_LENGTH])
    if isinstance(told, (list, tuple)):
        return [_sanitized(one) for one in told[:MAX_ITEMS]]
    if isinstance(told, dict):
        return {_sanitized(name): _sanitized(one) for name, one in list(told.items())[:MAX_ITEMS]}
    return told


def _sanitized_news(told: Any) -> Any:
    """Return what a run tells as it is kept: lines stay lines, what cannot be shown becomes a blank."""
    if isinstance(told, str):
        return "".join(one if one.isprintable() or one in "\n\t" else " " for one in told)
    if isinstance(told, (list, tuple)):
        return [_sanitized_news(one) for one in told]
    if isinstance(told, dict):
        return {_sanitized_news(name): _sanitized_news(one) for name, one in told.items()}
    return told


def _relevant_parts(report: dict[str, Any]) -> tuple[Any, Any]:
    return report.get("devices"), report.get("holders")


def _require_administrator(person: User, host: Host) -> None:
    if not Host.objects.visible_to(person).filter(pk=host.pk).exists():
        raise NotFound("There is no such host.")
    if not person.is_administrator:
        raise Forbidden("Only an administrator may enrol the agent of a host.")
