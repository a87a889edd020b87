"""How events come to be: each once, whoever tells of it and how often."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.models import Tenant
from fabric.models import Chassis
from telemetry.events.cursor import announce
from telemetry.events.messages import message_of
from telemetry.events.models import Event, Severity, Source, key_of
from telemetry.events.past import Holder
from telemetry.events.signals import events_recorded
from telemetry.events.subjects import holders_of, subject_of

logger = logging.getLogger(__name__)

LONGEST_TEXT = 4000


def event_record(
    *,
    source: str,
    message_id: str,
    severity: str,
    text: str,
    at: datetime,
    arguments: Sequence[str] = (),
    chassis_id: int | None = None,
    chassis_name: str = "",
    key: str = "",
    device_id: int | None = None,
    port_id: int | None = None,
    drawer_id: int | None = None,
    host_id: int | None = None,
    tenant_id: int | None = None,
    subject_name: str = "",
    link: str = "",
    person_id: int | None = None,
    person_name: str = "",
) -> Event | None:
    """Keep an event and return it; None where one of this chassis, source and `key` (not '') is there already.

    Part of the caller's transaction, if there is one: undone with it. Tells no secret: everything that is kept is shown
    to whoever may see the event. What is not said of a device or port (drawer, page, the tenant that held it then) is
    looked up.
    """
    whole_key = key_of(source, chassis_id, key)
    if whole_key and Event.objects.filter(key=whole_key).exists():
        return None
    about = subject_of(at=at, device_id=device_id, port_id=port_id, drawer_id=drawer_id, host_id=host_id)
    holder = Holder(tenant_id, _name(Tenant, tenant_id)) if tenant_id is not None else holders_of([(about, at)])[0]
    event = Event(
        at=at,
        received_at=timezone.now(),
        source=Source(source),
        severity=Severity(severity),
        message_id=message_id[:200],
        message=message_of(message_id)[:200],
        text=text.replace("\0", " ")[:LONGEST_TEXT],
        arguments=list(arguments),
        chassis_id=chassis_id,
        chassis_name=chassis_name or _name(Chassis, chassis_id),
        key=whole_key,
        device_id=about.device_id,
        port_id=about.port_id,
        drawer_id=about.drawer_id,
        host_id=about.host_id,
        tenant_id=holder.id,
        tenant_name=holder.name,
        subject_name=(subject_name or about.name)[:300],
        link=(link or about.link)[:400],
        person_id=person_id,
        person_name=person_name[:150],
    )
    try:
        with transaction.atomic():
            announce()
            event.save(force_insert=True)
    except IntegrityError:
        if event.key is None:
            raise
        return None  # somebody else told of it in this moment
    told([event])
    return event


def told(events: Sequence[Event]) -> None:
    """Tell whoever listens of new events, once they are committed."""
    if events:
        transaction.on_commit(partial(_send, list(events)), robust=True)


def _send(events: list[Event]) -> None:
    for receiver, answer in events_recorded.send_robust(Event, events=events):
        if isinstance(answer, Exception):
            logger.error("%r could not take events", receiver, exc_info=answer)


def _name(model: type[Chassis | Tenant], pk: int | None) -> str:
    if pk is None:
        return ""
    return model.objects.filter(pk=pk).values_list("name", flat=True).first() or ""
