"""The event service: subscriptions and the address of the event stream."""

from __future__ import annotations

from urllib.parse import urlsplit

from simulator.errors import Body, RedfishError, property_missing, property_value
from simulator.events import DELIVERY_ATTEMPTS, MAX_SUBSCRIPTIONS, Subscription
from simulator.service import Falcon
from simulator.tree import AuthenticatedRequest, Reply, ResourceNode, WriteMethod, collection, link

V1 = "/redfish/v1"
SERVICE = f"{V1}/EventService"
SUBSCRIPTIONS = f"{SERVICE}/Subscriptions"
STREAM = f"{SERVICE}/SSE"


def subscription_body(one: Subscription) -> Body:
    """Render a subscription."""
    return {
        "@odata.id": f"{SUBSCRIPTIONS}/{one.id}",
        "@odata.type": "#EventDestination.v1_16_0.EventDestination",
        "Id": one.id,
        "Name": "Event Subscription",
        "Destination": one.destination,
        "Context": one.context,
        "Protocol": "Redfish",
        "SubscriptionType": "SSE" if one.destination is None else "RedfishEvent",
        "EventFormatType": "Event",
        "RegistryPrefixes": list(one.prefixes),
        "DeliveryRetryPolicy": "RetryForever" if one.destination is None else "SuspendRetries",
        "Status": {"State": "Enabled", "Health": "OK"},
    }


def _wanted(body: Body) -> tuple[str, tuple[str, ...]]:
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


def register(falcon: Falcon) -> None:
    """Add the event service with its subscriptions."""
    tree, events = falcon.tree, falcon.events

    def service() -> Body:
        return {
            "@odata.id": SERVICE,
            "@odata.type": "#EventService.v1_12_0.EventService",
            "Id": "EventService",
            "Name": "Event Service",
            "ServiceEnabled": True,
            "DeliveryRetryAttempts": DELIVERY_ATTEMPTS,
            "DeliveryRetryIntervalSeconds": 1,
            "EventFormatTypes": ["Event"],
            "RegistryPrefixes": ["Fabric", "ResourceEvent", "SensorEvent", "TaskEvent", "Environmental", "H3Falcon"],
            "ResourceTypes": ["Chassis", "Port", "Zone", "Sensor", "Task", "Manager"],
            **({} if falcon.faults.is_active("event_stream_missing") else {"ServerSentEventUri": STREAM}),
            "SSEFilterPropertiesSupported": {
                "EventFormatType": False,
                "MessageId": False,
                "MetricReportDefinition": False,
                "OriginResource": False,
                "RegistryPrefix": False,
                "ResourceType": False,
                "SubordinateResources": False,
            },
            "Status": {"State": "Enabled", "Health": "OK"},
            "Subscriptions": link(SUBSCRIPTIONS),
        }

    async def create(call: AuthenticatedRequest) -> Reply:
        destination, prefixes = _wanted(call.body)
        if len(events.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise RedfishError(
                503, "EventSubscriptionLimitExceeded", "The event subscription failed: there are too many."
            )
        context = call.body.get("Context")
        one = events.subscribe(destination=destination, context=str(context) if context else None, prefixes=prefixes)
        return Reply(201, subscription_body(one), {"Location": f"{SUBSCRIPTIONS}/{one.id}"})

    def node(last: str) -> ResourceNode | None:
        one = events.subscriptions.get(last)
        if one is None:
            return None

        async def delete(call: AuthenticatedRequest) -> Reply:
            events.unsubscribe(one.id)
            return Reply(204)

        return ResourceNode(
            f"{SUBSCRIPTIONS}/{last}",
            lambda: subscription_body(one),
            {"DELETE": WriteMethod(delete, ("ConfigureManager", "ConfigureSelf"))},
        )

    post = WriteMethod(create, ("ConfigureManager", "ConfigureComponents"))
    tree.resource(SERVICE, service)
    tree.add(
        ResourceNode(
            SUBSCRIPTIONS,
            lambda: collection(
                SUBSCRIPTIONS,
                "EventDestination",
                "Event Subscriptions",
                [f"{SUBSCRIPTIONS}/{key}" for key in events.subscriptions],
            ),
            {"POST": post},
        )
    )
    tree.members(SUBSCRIPTIONS, lambda last: ResourceNode(f"{SUBSCRIPTIONS}/Members", None, {"POST": post})
                 if last == "Members" else node(last))  # fmt: skip
