"""Events: stored in the log, sent to event streams and to subscribers."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import msgspec

from simulator.odata import SCHEMA_FOLDER, V1, Body, identity, link, odata_type

logger = logging.getLogger(__name__)
LOG_URI = f"{V1}/Managers/bmc/LogServices/Events"
MAX_ENTRIES = 5000
MAX_REMEMBERED = 50_000
MAX_STREAMS = 10
MAX_SUBSCRIPTIONS = 20
DELIVERY_ATTEMPTS = 3
REPEAT_SHIFT = 2  # of the EventIds of a log that is sent again


class MessageTemplate(msgspec.Struct, frozen=True, rename="pascal"):
    """A message with `%1` and so on for its arguments, as in a message registry."""

    message: str
    message_severity: str

    def text(self, *args: str) -> str:
        """Return the message with its arguments."""
        return re.sub(r"%(\d)", lambda place: args[int(place[1]) - 1], self.message)


# The events of the chassis, by message ID.
MESSAGES = msgspec.json.decode((SCHEMA_FOLDER / "messages.json").read_bytes(), type=dict[str, MessageTemplate])


@dataclass(frozen=True)
class Actor:
    """The origin of a change: the account and the client address of the request."""

    account: str
    address: str

    @property
    def origin_address(self) -> str:
        """The address with its scheme, as in OriginAddress."""
        return f"https://[{self.address}]" if ":" in self.address else f"https://{self.address}"


@dataclass(frozen=True)
class EventLogEntry:
    """One event; its number is the Id of its log entry and its EventId."""

    number: int
    created: str
    message_id: str
    message: str
    arguments: tuple[str, ...]
    severity: str
    origin: str | None
    by: Actor | None = None
    is_repeated: bool = False  # with a number of its own, which is that of no log entry

    def event_record(self) -> Body:
        """Return the record of the event as a member of an Event's Events."""
        record: Body = {
            "MemberId": "0",
            "EventId": str(self.number),
            "EventTimestamp": self.created,
            "MessageId": self.message_id,
            "Message": self.message,
            "MessageArgs": list(self.arguments),
            "MessageSeverity": self.severity,
            "LogEntry": link(f"{LOG_URI}/Entries/{self.number}"),
        }
        if self.is_repeated:
            del record["LogEntry"]
        if self.origin is not None:
            record["OriginOfCondition"] = link(self.origin)
        if self.by is not None:
            record["Username"] = self.by.account
            record["OriginAddress"] = self.by.origin_address
        return record

    def log_entry(self) -> Body:
        """Return the log entry; one caused by a client's request names the account and its address."""
        body: Body = {
            **identity(f"{LOG_URI}/Entries/{self.number}", "LogEntry", "Event Log Entry"),
            "EntryType": "Event",
            "Created": self.created,
            "EventTimestamp": self.created,
            "EventId": str(self.number),
            "MessageId": self.message_id,
            "Message": self.message,
            "MessageArgs": list(self.arguments),
            "Severity": self.severity,
        }
        if self.origin is not None:
            body["Links"] = {"OriginOfCondition": link(self.origin)}
        if self.by is not None:
            body["Originator"] = self.by.account
            body["OriginatorType"] = "Client"
            body["Username"] = self.by.account
            body["OriginAddress"] = self.by.origin_address
        return body

    def payload(self, context: str, *, named: bool = True) -> bytes:
        """Return the Event resource as JSON; without `named` it has no id, as with some services."""
        if not named:
            record = {name: value for name, value in self.event_record().items() if name not in {"EventId", "LogEntry"}}
            return msgspec.json.encode({"@odata.type": odata_type("Event"), "Name": "Event", "Events": [record]})
        body: Body = {
            "@odata.type": odata_type("Event"),
            "Id": str(self.number),
            "Name": "Event of the Falcon",
            "Context": context,
            "Events": [self.event_record()],
            "Events@odata.count": 1,
        }
        return msgspec.json.encode(body)


@dataclass
class Subscription:
    """One subscriber: an open event stream (no destination) or a URL that events are posted to.

    `prefixes` are the message registries that it requested; without any, it gets all events.
    """

    id: str
    context: str
    destination: str | None
    prefixes: tuple[str, ...] = ()
    queue: asyncio.Queue[EventLogEntry | None] = field(default_factory=lambda: asyncio.Queue(maxsize=1000))
    sender: asyncio.Task[None] | None = None
    is_connected: Callable[[], bool] = lambda: True


class EventLog:
    """The event log and its subscribers; the log survives a reboot of the BMC, subscriptions do not."""

    def __init__(self, timestamp: Callable[[], str]) -> None:
        self._timestamp = timestamp
        self.entries: dict[int, EventLogEntry] = {}
        # All events, also those no longer in the log, to compare clients' records with.
        self.history: deque[EventLogEntry] = deque(maxlen=MAX_REMEMBERED)
        self.limit = MAX_ENTRIES
        self.subscriptions: dict[str, Subscription] = {}
        self.last_number = 0
        self._subscribed = 0
        # The next event is preceded by the whole log, with other EventIds, as bmcweb does after it was restarted.
        self.repeats = False

    def emit(
        self,
        message_id: str,
        message: str,
        *args: str,
        severity: str = "OK",
        origin: str | None = None,
        by: Actor | None = None,
    ) -> EventLogEntry:
        """Write a log entry and send it to its subscribers; `by` is the origin of the causing request."""
        if self.repeats and self.streams:
            self.repeats = False
            for known in list(self.entries.values()):
                self._send(replace(known, number=known.number + REPEAT_SHIFT, is_repeated=True))
        self.last_number += 1
        entry = EventLogEntry(self.last_number, self._timestamp(), message_id, message, args, severity, origin, by)
        self.history.append(entry)
        self.entries[entry.number] = entry
        self._overwrite()
        self._send(entry)
        return entry

    def _send(self, entry: EventLogEntry) -> None:
        for subscription in self.subscriptions.values():
            if not subscription.prefixes or entry.message_id.partition(".")[0] in subscription.prefixes:
                try:
                    subscription.queue.put_nowait(entry)
                except asyncio.QueueFull:
                    # A stalled reader loses events here, but they are in the log.
                    logger.warning("subscriber %s is too slow, event %s dropped", subscription.id, entry.number)

    def report(self, message_id: str, *args: str, origin: str, by: Actor | None = None) -> None:
        """Emit an event of the chassis, with the text and the severity of its message."""
        message = MESSAGES[message_id]
        self.emit(message_id, message.text(*args), *args, severity=message.message_severity, origin=origin, by=by)

    def report_change(self, origin: str, *, by: Actor | None = None) -> None:
        """Report a changed resource, with the generic message."""
        self.report("ResourceEvent.1.3.ResourceChanged", origin=origin, by=by)

    def clear(self) -> None:
        """Clear the log; numbering continues."""
        self.entries.clear()

    def resize(self, limit: int) -> None:
        """Limit the number of log entries; raises ValueError for less than one."""
        if limit < 1:
            raise ValueError("the limit must be at least one entry")
        self.limit = limit
        self._overwrite()

    def _overwrite(self) -> None:
        while len(self.entries) > self.limit:
            del self.entries[next(iter(self.entries))]

    def restart_numbering(self) -> None:
        """Lose the log, and restart numbering at 1, as a BMC that has both only in memory."""
        self.entries.clear()
        self.last_number = 0

    @property
    def streams(self) -> int:
        """The number of open event streams, without those that end with the next event because their reader is gone."""
        return sum(1 for one in self.subscriptions.values() if one.destination is None and one.is_connected())

    def subscribe(
        self, *, destination: str | None, context: str | None = None, prefixes: tuple[str, ...] = ()
    ) -> Subscription:
        """Add a subscriber; one with a destination has its own delivery task."""
        self._subscribed += 1
        subscription = Subscription(
            str(self._subscribed), context or f"stream-{secrets.token_hex(4)}", destination, prefixes
        )
        self.subscriptions[subscription.id] = subscription
        if destination is not None:
            subscription.sender = asyncio.create_task(_deliver(subscription, destination))
        return subscription

    def unsubscribe(self, subscription_id: str) -> None:
        """Remove a subscriber and end its stream or its deliveries."""
        subscription = self.subscriptions.pop(subscription_id, None)
        if subscription is None:
            return
        if subscription.sender is not None:
            subscription.sender.cancel()
        while subscription.queue.full():
            subscription.queue.get_nowait()
        subscription.queue.put_nowait(None)

    def unsubscribe_all(self) -> None:
        """Delete all subscribers, as a reboot does."""
        for subscription_id in list(self.subscriptions):
            self.unsubscribe(subscription_id)


async def _deliver(subscription: Subscription, destination: str) -> None:
    """Post a subscriber's events sequentially; an event is dropped after three failures."""
    timeout = aiohttp.ClientTimeout(total=5)
    # Event receivers have self-signed certificates; the simulator sends nothing secret.
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=False)) as client:
        while (entry := await subscription.queue.get()) is not None:
            headers: dict[str, Any] = {"Content-Type": "application/json", "OData-Version": "4.0"}
            for attempt in range(DELIVERY_ATTEMPTS):
                try:
                    async with client.post(
                        destination, data=entry.payload(subscription.context), headers=headers
                    ) as reply:
                        if reply.status < 500:
                            break
                except (aiohttp.ClientError, TimeoutError) as error:
                    logger.info("event %s not delivered to %s: %s", entry.number, destination, error)
                await asyncio.sleep(0.2 * 2**attempt)
