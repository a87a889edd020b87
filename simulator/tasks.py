"""Long operations of the BMC: tasks with a monitor, as in the specification."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from simulator.errors import RedfishError, internal_error
from simulator.events import MESSAGES
from simulator.odata import V1, Body, odata_type

TASKS_URI = f"{V1}/TaskService/Tasks"
MONITORS_URI = f"{V1}/TaskService/TaskMonitors"
COMPLETED, ABORTED = "TaskEvent.1.0.TaskCompletedOK", "TaskEvent.1.0.TaskAborted"
ENDED = ("Completed", "Exception", "Cancelled", "Killed")


@dataclass
class BmcTask:
    """One task; `outcome` is the response of its monitor after its end: status and body."""

    id: str
    name: str
    started: str
    state: str = "Running"
    status: str = "OK"
    percent: int = 0
    ended: str | None = None
    cancelling: bool = False
    messages: list[Body] = field(default_factory=list)
    outcome: tuple[int, Body | None] = (204, None)

    @property
    def uri(self) -> str:
        """The task's resource."""
        return f"{TASKS_URI}/{self.id}"

    @property
    def monitor(self) -> str:
        """The task's monitor."""
        return f"{MONITORS_URI}/{self.id}"

    def add_message(self, message_id: str, message: str, *args: str, severity: str = "OK") -> None:
        """Add a message to the task."""
        self.messages.append(
            {
                "@odata.type": odata_type("Message"),
                "MessageId": message_id,
                "Message": message,
                "MessageArgs": list(args),
                "MessageSeverity": severity,
            }
        )


TaskWork = Callable[[BmcTask], Awaitable[tuple[int, Body | None]]]


class Tasks:
    """The tasks of one BMC; a reboot ends the running ones."""

    def __init__(self, timestamp: Callable[[], str], ended: Callable[[BmcTask], None]) -> None:
        self._timestamp = timestamp
        self._announce = ended
        self._running: dict[str, asyncio.Task[None]] = {}
        self.tasks: dict[str, BmcTask] = {}
        self._number = 0

    def start(self, name: str, work: TaskWork) -> BmcTask:
        """Start work in the background and return its task."""
        self._number += 1
        task = BmcTask(str(self._number), name, self._timestamp())
        self.tasks[task.id] = task
        self._running[task.id] = asyncio.create_task(self._run(task, work))
        return task

    async def _run(self, task: BmcTask, work: TaskWork) -> None:
        try:
            task.outcome = await work(task)
        except RedfishError as error:
            task.outcome = (error.status, error.body())
            task.state, task.status = "Exception", "Critical"
            task.add_message(error.message_id, error.sentence, *error.arguments, severity="Critical")
        except asyncio.CancelledError:
            task.state, task.status = "Cancelled" if task.cancelling else "Killed", "Critical"
            task.outcome = (500, internal_error("The BMC restarted during the task.").body())
            task.add_message(ABORTED, MESSAGES[ABORTED].text(task.id), task.id)
        else:
            task.state, task.percent = "Completed", 100
            task.add_message(COMPLETED, MESSAGES[COMPLETED].text(task.id), task.id)
        task.ended = self._timestamp()
        self._running.pop(task.id, None)
        self._announce(task)

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do something after so many seconds of wall time, of which no task tells."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            self._running.pop(key, None)
            with contextlib.suppress(RedfishError):
                work()

        key = f"later {time.monotonic()}"
        self._running[key] = asyncio.create_task(wait())

    def cancel(self, task: BmcTask) -> None:
        """End a task that a client cancels; one that has ended stays as it is."""
        if (running := self._running.get(task.id)) is not None:
            task.cancelling = True
            running.cancel()

    def kill_all(self) -> None:
        """End all running tasks, as a reboot does."""
        for running in list(self._running.values()):
            running.cancel()
