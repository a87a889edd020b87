"""The task service."""

from __future__ import annotations

from functools import partial

import msgspec

from simulator.odata import V1, Body, identity, link
from simulator.service import Falcon
from simulator.tasks import ENDED, MONITORS_URI, TASKS_URI, BmcTask
from simulator.tree import RawReply, Reply, ResourceNode

SERVICE = f"{V1}/TaskService"


def task_body(task: BmcTask) -> Body:
    """Render a task."""
    body: Body = {
        **identity(task.uri, "Task", task.name),
        "TaskState": task.state,
        "TaskStatus": task.status,
        "PercentComplete": task.percent,
        "StartTime": task.started,
        "TaskMonitor": task.monitor,
        "HidePayload": True,
        "Messages": task.messages,
    }
    if task.ended is not None:
        body["EndTime"] = task.ended
    return body


def task_accepted(task: BmcTask) -> Reply:
    """Return the response of a request that continues as a task: 202 with the monitor's address."""
    return Reply(202, task_body(task), {"Location": task.monitor, "Retry-After": "1"})


def register(falcon: Falcon) -> None:
    """Add the task service, the tasks and their monitors."""
    tree, tasks = falcon.tree, falcon.tasks

    def service() -> Body:
        return {
            **identity(SERVICE, "TaskService", "Task Service"),
            "ServiceEnabled": True,
            "CompletedTaskOverWritePolicy": "Oldest",
            "LifeCycleEventOnTaskStateChange": True,
            "DateTime": falcon.clock.date_time(),
            "Status": {"State": "Enabled", "Health": "OK"},
            "Tasks": link(TASKS_URI),
        }

    def monitor(last: str) -> ResourceNode | None:
        task = tasks.tasks.get(last)
        return ResourceNode(task.monitor, raw=partial(_monitor_reply, task)) if task is not None else None

    tree.resource(SERVICE, service)
    tree.objects(
        TASKS_URI, "Task", "Tasks", lambda: tasks.tasks, lambda uri, task: ResourceNode(uri, partial(task_body, task))
    )
    tree.members(MONITORS_URI, monitor)


def _monitor_reply(task: BmcTask) -> RawReply:
    if task.state not in ENDED:
        headers = {"Location": task.monitor, "Retry-After": "1"}
        return RawReply(msgspec.json.encode(task_body(task)), status=202, headers=headers)
    status, body = task.outcome
    return RawReply(b"" if body is None else msgspec.json.encode(body), status=status)
