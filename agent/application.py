"""The agent as a Celery worker: a task for each command on the host's own queue, no results, no remote control."""

from __future__ import annotations

import logging
import sys
from socket import gethostname
from typing import Any

from celery import Celery
from celery.signals import worker_ready, worker_shutting_down

from agent.commands import CommandHandler
from agent.journal import Journal
from agent.machine import Machine
from agent.outbox import AgentOutbox
from agent.runs.manager import RunManager
from agent.settings import Settings
from hostwire.protocol import prepare_structs
from hostwire.signing import digest, queue_name

TASKS = (
    "agent.report", "agent.holders", "agent.drain", "agent.rescan", "agent.restore",
    "agent.train", "agent.train_look", "agent.train_stop", "agent.train_forget",
)  # fmt: skip
# Commands wait for devices, so several may be under way.
CONCURRENCY = 8
OUTBOX_SECONDS = 5.0


def application(settings: Settings) -> Celery:
    """Return the Celery application of an agent: what it keeps in the broker is below the name of its queue."""
    queue = queue_name(settings.host)
    # No fixups: whatever the environment says of Django is not about an agent.
    made = Celery("agent", set_as_current=False, fixups=[])
    made.conf.update(
        broker_url=settings.broker,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_timeout": 3.0,
            "socket_connect_timeout": 3.0,
            "socket_keepalive": True,
            # What a command has become of is in the journal. To keep it here too takes Lua, with which whoever is root
            # on a host could stop the broker for everybody.
            "ack_emulation": False,
        },
        task_default_queue=queue,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
    )
    return made


def run(settings: Settings) -> None:
    """Work until the process is asked to end; raises JournalError where the journal cannot be kept."""
    journal = Journal(settings.state)
    # What several threads read is looked at before them.
    prepare_structs()
    machine = Machine(settings.root, read_seconds=settings.read_seconds, step_seconds=settings.step_seconds)
    made = application(settings)
    post = AgentOutbox(made, settings.site_queue, journal)
    desk = CommandHandler(settings, machine, journal, post, RunManager(settings, machine))
    for name in TASKS:
        _register(made, name, desk)

    def ready(**_: Any) -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    def ending(**_: Any) -> None:
        desk.ending.set()

    for noisy in ("celery.worker.strategy", "celery.app.trace"):
        # Two lines for each command say less than ours.
        logging.getLogger(noisy).setLevel(logging.WARNING)
    worker_ready.connect(ready, weak=False)
    worker_shutting_down.connect(ending, weak=False)
    post.start()
    desk.begin()
    try:
        # As `worker_main` does, without Celery's command line, whose libraries are half as much to import as the rest.
        made.Worker(
            hostname=f"agent-{digest(settings.host)[:8]}@{gethostname()}",
            pool="threads",
            concurrency=CONCURRENCY,
            queues=[queue_name(settings.host)],
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            loglevel=logging.INFO,
        ).start()
    finally:
        desk.ending.set()
        post.end(OUTBOX_SECONDS)
        machine.close()
        journal.close()


def _register(made: Celery, name: str, desk: CommandHandler) -> None:
    def take(text: object = None, *_: object, **__: object) -> None:
        desk.take(name, text)

    made.task(name=name)(take)
