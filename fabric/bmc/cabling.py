"""Which host a cable leads to, as the BMC sees it now."""

from __future__ import annotations

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import BmcError
from fabric.bmc.types import System
from fabric.bmc.values import inner, plain_uri, text


async def read_cabled_host(bmc: BmcClient, endpoint_uri: str) -> System | None:
    """Return the host behind an initiator's endpoint, None where no cable leads to one.

    Of the system only what tells it from others is read: URI, name, manufacturer, serial number and UUID. Raises
    BmcError where it cannot be read.
    """
    body = (await bmc.get(endpoint_uri)).body
    entities = inner(body, "ConnectedEntities")
    for entity in entities if isinstance(entities, list) else []:
        uri = text(entity, "EntityLink", "@odata.id") if isinstance(entity, dict) else ""
        if not uri or text(entity, "EntityRole") == "Target":
            continue
        try:
            system = (await bmc.get(uri)).body
        except BmcError as error:
            if error.answered in {404, 410}:
                continue
            raise
        return System(
            uri=plain_uri(uri),
            name=text(system, "Name"),
            host_name=text(system, "HostName"),
            manufacturer=text(system, "Manufacturer"),
            serial_number=text(system, "SerialNumber"),
            uuid=text(system, "UUID"),
        )
    return None
