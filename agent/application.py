"""The agent as a Celery worker: a task per command on the host's own queue, no results, no remote control."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from socket import gethostname
from typing import Any, get_args

from celery import Celery, bootsteps
from celery.signals import worker_ready, worker_shutting_down

from agent.commands import CommandHandler
from agent.journal import Journal
from agent.machine import Machine
from agent.outbox import AgentOutbox
from agent.runs.manager import RunManager
from agent.settings import Settings
from agent.step_execution import StepProcessPool
from hostwire.heartbeat import BEAT_SECONDS, beat
from hostwire.protocol import Request, prepare_structs, task_name
from hostwire.signing import digest, queue_name

# Commands wait for devices, so several may run concurrently.
CONCURRENCY = 8
OUTBOX_SECONDS = 5.0


class CommandLoopHeartbeat(bootsteps.StartStopStep):
    """Beats with the loop that takes commands, while the broker is there. Commands run in other threads."""

    requires = ("celery.worker.consumer.tasks:Tasks",)
    _timer: Any = None

    def start(self, consumer: Any) -> None:
        self._timer = consumer.timer.call_repeatedly(BEAT_SECONDS, beat, ("commands",))

    def stop(self, consumer: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()


def application(settings: Settings) -> Celery:
    """Return the Celery application of an agent: all its keys in the broker begin with the name of its queue."""
    queue = queue_name(settings.host)
    # No fixups: Django settings in the environment do not apply to an agent.
    app = Celery("agent", set_as_current=False, fixups=[])
    app.conf.update(
        broker_url=settings.broker,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_timeout": 3.0,
            "socket_connect_timeout": 3.0,
            "socket_keepalive": True,
            # The journal records the results of commands. Storing them in the broker too would need Lua, with which
            # root on any host could block the broker for all.
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
    app.steps["consumer"].add(CommandLoopHeartbeat)
    return app


def run(hosts: Sequence[Settings]) -> None:
    """Work until the process is terminated; raises JournalError where a journal cannot be written.

    Of several hosts each has its own journal, key and queue; the broker is that of the first.
    """
    # msgspec inspects the structs before several threads use them.
    prepare_structs()
    app = application(hosts[0])
    with ExitStack() as started:
        steps = StepProcessPool()
        handlers = {queue_name(settings.host): _start_handler(settings, app, steps, started) for settings in hosts}
        for request in get_args(Request):
            _register(app, task_name(request), handlers)

        def ready(**_: Any) -> None:
            sys.stdout.write("ready\n")
            sys.stdout.flush()

        def ending(**_: Any) -> None:
            for handler in handlers.values():
                handler.ending.set()

        for noisy in ("celery.worker.strategy", "celery.app.trace"):
            # Celery's two lines per command say less than ours.
            logging.getLogger(noisy).setLevel(logging.WARNING)
        worker_ready.connect(ready, weak=False)
        worker_shutting_down.connect(ending, weak=False)
        # As `worker_main` does, but without Celery's command line, whose imports take half as long as all others.
        app.Worker(
            hostname=f"agent-{digest(hosts[0].host)[:8]}@{gethostname()}",
            pool="threads",
            concurrency=CONCURRENCY * len(hosts),
            queues=list(handlers),
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            loglevel=logging.INFO,
        ).start()


def _start_handler(settings: Settings, app: Celery, steps: StepProcessPool, started: ExitStack) -> CommandHandler:
    """Start what carries out the commands of one host; it ends with `started`."""
    journal = Journal(settings.state)
    started.callback(journal.close)
    machine = Machine(
        settings.root, read_seconds=settings.read_seconds, step_seconds=settings.step_seconds, steps=steps
    )
    started.callback(machine.close)
    outbox = AgentOutbox(app, settings.site_queue, journal)
    handler = CommandHandler(settings, machine, journal, outbox, RunManager(settings, machine))
    outbox.start()
    started.callback(outbox.end, OUTBOX_SECONDS)
    handler.start()
    started.callback(handler.ending.set)
    return handler


def _register(app: Celery, name: str, handlers: Mapping[str, CommandHandler]) -> None:
    first = next(iter(handlers.values()))

    def handle(task: Any, /, text: object = None, *_: object, **__: object) -> None:
        # What says that it is another host's is refused by its signature.
        queue = str((task.request.delivery_info or {}).get("routing_key"))
        handlers.get(queue, first).handle(name, text)

    app.task(name=name, bind=True)(handle)
