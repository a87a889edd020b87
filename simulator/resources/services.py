"""The task service, and the event service with its subscriptions and the address of the event stream."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlsplit

import msgspec

from simulator.errors import RedfishError, property_missing, property_value
from simulator.events import DELIVERY_ATTEMPTS, MAX_SUBSCRIPTIONS, Subscription
from simulator.odata import V1, Body, identity, link
from simulator.service import Falcon
from simulator.tasks import ENDED, MONITORS_URI, TASKS_URI, BmcTask
from simulator.tree import AuthenticatedRequest, RawReply, Reply, ResourceNode, WriteMethod

TASK_SERVICE = f"{V1}/TaskService"
EVENT_SERVICE = f"{V1}/EventService"
SUBSCRIPTIONS = f"{EVENT_SERVICE}/Subscriptions"
STREAM = f"{EVENT_SERVICE}/SSE"
FILTERS = (
    "EventFormatType",
    "MessageId",
    "MetricReportDefinition",
    "OriginResource",
    "RegistryPrefix",
    "ResourceType",
    "SubordinateResources",
)


def register(falcon: Falcon) -> None:
    """Add both services with the tasks, their monitors, and the subscriptions."""
    _register_tasks(falcon)
    _register_events(falcon)


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


def _register_tasks(falcon: Falcon) -> None:
    tree, tasks = falcon.tree, falcon.tasks

    def service() -> Body:
        return {
            **identity(TASK_SERVICE, "TaskService", "Task Service"),
            "ServiceEnabled": True,
            "CompletedTaskOverWritePolicy": "Oldest",
            "LifeCycleEventOnTaskStateChange": True,
            "DateTime": falcon.clock.date_time(),
            "Status": {"State": "Enabled", "Health": "OK"},
            "Tasks": link(TASKS_URI),
        }

    def monitor(last: str) -> ResourceNode | None:
        task = tasks.tasks.get(last)
        if task is None:
            return None

        async def cancel(call: AuthenticatedRequest) -> Reply:
            tasks.cancel(task)
            return Reply(204)

        return ResourceNode(task.monitor, writes={"DELETE": WriteMethod(cancel)}, raw=partial(_monitor_reply, task))

    tree.resource(TASK_SERVICE, service)
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


def subscription_body(subscription: Subscription) -> Body:
    """Render a subscription."""
    streamed = subscription.destination is None
    return {
        **identity(f"{SUBSCRIPTIONS}/{subscription.id}", "EventDestination", "Event Subscription"),
        "Destination": subscription.destination,
        "Context": subscription.context,
        "Protocol": "Redfish",
        "SubscriptionType": "SSE" if streamed else "RedfishEvent",
        "EventFormatType": "Event",
        "RegistryPrefixes": list(subscription.prefixes),
        "DeliveryRetryPolicy": "RetryForever" if streamed else "SuspendRetries",
        "Status": {"State": "Enabled", "Health": "OK"},
    }


def _requested_delivery(body: Body) -> tuple[str, tuple[str, ...]]:
    """Return destination and registry prefixes of a new subscription; refuses invalid values with 400."""
    destination = body.get("Destination")
    if not isinstance(destination, str):
        raise property_missing("Destination")
    if urlsplit(destination).scheme not in ("http", "https"):
        raise property_value("Destination", destination)
    if "Protocol" not in body:
        raise property_missing("Protocol")
    if body["Protocol"] != "Redfish":
        raise property_value("Protocol", body["Protocol"])
    prefixes = body.get("RegistryPrefixes", [])
    if not isinstance(prefixes, list) or not all(isinstance(one, str) for one in prefixes):
        raise property_value("RegistryPrefixes", prefixes)
    return destination, tuple(prefixes)


def _register_events(falcon: Falcon) -> None:
    events = falcon.events

    def service() -> Body:
        return {
            **identity(EVENT_SERVICE, "EventService", "Event Service"),
            "ServiceEnabled": True,
            "DeliveryRetryAttempts": DELIVERY_ATTEMPTS,
            "DeliveryRetryIntervalSeconds": 1,
            "EventFormatTypes": ["Event"],
            "RegistryPrefixes": ["Fabric", "ResourceEvent", "SensorEvent", "TaskEvent", "Environmental", "H3Falcon"],
            "ResourceTypes": ["Chassis", "Port", "Zone", "Sensor", "Task", "Manager"],
            **({} if falcon.faults.is_active("event_stream_missing") else {"ServerSentEventUri": STREAM}),
            "SSEFilterPropertiesSupported": dict.fromkeys(FILTERS, False),
            "Status": {"State": "Enabled", "Health": "OK"},
            "Subscriptions": link(SUBSCRIPTIONS),
        }

    async def create(call: AuthenticatedRequest) -> Reply:
        destination, prefixes = _requested_delivery(call.body)
        if len(events.subscriptions) >= MAX_SUBSCRIPTIONS:
            sentence = "The event subscription failed: there are too many."
            raise RedfishError(503, "EventSubscriptionLimitExceeded", sentence)
        context = call.body.get("Context")
        context = str(context) if context else None
        subscription = events.subscribe(destination=destination, context=context, prefixes=prefixes)
        return Reply(201, subscription_body(subscription), {"Location": f"{SUBSCRIPTIONS}/{subscription.id}"})

    def node(uri: str, subscription: Subscription) -> ResourceNode:
        async def delete(call: AuthenticatedRequest) -> Reply:
            events.unsubscribe(subscription.id)
            return Reply(204)

        method = WriteMethod(delete, ("ConfigureManager", "ConfigureSelf"))
        return ResourceNode(uri, partial(subscription_body, subscription), {"DELETE": method})

    post = WriteMethod(create, ("ConfigureManager", "ConfigureComponents"))
    falcon.tree.resource(EVENT_SERVICE, service)
    falcon.tree.objects(
        SUBSCRIPTIONS, "EventDestination", "Event Subscriptions", lambda: events.subscriptions, node, POST=post
    )
