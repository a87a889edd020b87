"""The event service: subscriptions and the address of the event stream."""

from __future__ import annotations

from functools import partial
from urllib.parse import urlsplit

from simulator.errors import RedfishError, property_missing, property_value
from simulator.events import DELIVERY_ATTEMPTS, MAX_SUBSCRIPTIONS, Subscription
from simulator.odata import V1, Body, identity, link
from simulator.service import Falcon
from simulator.tree import AuthenticatedRequest, Reply, ResourceNode, WriteMethod

SERVICE = f"{V1}/EventService"
SUBSCRIPTIONS = f"{SERVICE}/Subscriptions"
STREAM = f"{SERVICE}/SSE"
FILTERS = (
    "EventFormatType",
    "MessageId",
    "MetricReportDefinition",
    "OriginResource",
    "RegistryPrefix",
    "ResourceType",
    "SubordinateResources",
)


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


def register(falcon: Falcon) -> None:
    """Add the event service with its subscriptions."""
    events = falcon.events

    def service() -> Body:
        return {
            **identity(SERVICE, "EventService", "Event Service"),
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
        made = events.subscribe(destination=destination, context=str(context) if context else None, prefixes=prefixes)
        return Reply(201, subscription_body(made), {"Location": f"{SUBSCRIPTIONS}/{made.id}"})

    def node(uri: str, subscription: Subscription) -> ResourceNode:
        async def delete(call: AuthenticatedRequest) -> Reply:
            events.unsubscribe(subscription.id)
            return Reply(204)

        method = WriteMethod(delete, ("ConfigureManager", "ConfigureSelf"))
        return ResourceNode(uri, partial(subscription_body, subscription), {"DELETE": method})

    post = WriteMethod(create, ("ConfigureManager", "ConfigureComponents"))
    falcon.tree.resource(SERVICE, service)
    falcon.tree.objects(
        SUBSCRIPTIONS, "EventDestination", "Event Subscriptions", lambda: events.subscriptions, node, POST=post
    )
