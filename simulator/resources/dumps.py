"""Diagnostic data of the BMC: a log service that collects them, and their files."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from simulator.errors import parameter_missing, property_value
from simulator.odata import Body, collection, identity, link
from simulator.resources.network import BMC
from simulator.resources.services import task_accepted
from simulator.service import Falcon
from simulator.tasks import BmcTask
from simulator.tree import AuthenticatedRequest, RawReply, Reply, ResourceNode

DUMP = f"{BMC}/LogServices/Dump"
ENTRIES = f"{DUMP}/Entries"
FILES = f"{DUMP}/Attachments"
COLLECT = f"{DUMP}/Actions/LogService.CollectDiagnosticData"
TYPES = ["Manager", "OEM"]
SECONDS = 1.5
STEPS = 5


def register(falcon: Falcon) -> None:
    """Add the log service, unless the service has none."""
    if not falcon.options.dump:
        return
    tree = falcon.tree
    tree.resource(DUMP, partial(_service, falcon))
    tree.action(COLLECT, partial(_collect, falcon))
    tree.resource(ENTRIES, partial(_entries, falcon))
    tree.members(ENTRIES, partial(_entry, falcon))
    tree.members(FILES, partial(_file, falcon))


def _service(falcon: Falcon) -> Body:
    return {
        **identity(DUMP, "LogService", "Dumps"),
        "Description": "Diagnostic data of the BMC, collected when somebody asks for them",
        "ServiceEnabled": True,
        "LogEntryType": "Multiple",
        "OverWritePolicy": "WrapsWhenFull",
        "DateTime": falcon.clock.date_time(),
        "DateTimeLocalOffset": "+00:00",
        "Entries": link(ENTRIES),
        "Actions": {
            "#LogService.CollectDiagnosticData": {
                "target": COLLECT,
                "DiagnosticDataType@Redfish.AllowableValues": TYPES,
            }
        },
    }


def _entries(falcon: Falcon) -> Body:
    return {
        **collection(ENTRIES, "LogEntry", "Dumps", []),
        "Description": "The dumps, the oldest first",
        "Members": [_body(name, *made) for name, made in falcon.dumps.items()],
        "Members@odata.count": len(falcon.dumps),
    }


def _entry(falcon: Falcon, name: str) -> ResourceNode | None:
    made = falcon.dumps.get(name)
    return None if made is None else ResourceNode(f"{ENTRIES}/{name}", partial(_body, name, *made))


def _body(name: str, created: str, content: bytes) -> Body:
    return {
        **identity(f"{ENTRIES}/{name}", "LogEntry", f"Dump {name}"),
        "EntryType": "Event",
        "Created": created,
        "Severity": "OK",
        "Message": "Diagnostic data of the manager",
        "DiagnosticDataType": "Manager",
        "AdditionalDataURI": f"{FILES}/{name}",
        "AdditionalDataSizeBytes": len(content),
    }


def _file(falcon: Falcon, name: str) -> ResourceNode | None:
    made = falcon.dumps.get(name)
    if made is None:
        return None
    return ResourceNode(f"{FILES}/{name}", raw=lambda: RawReply(made[1], "application/octet-stream"))


async def _collect(falcon: Falcon, call: AuthenticatedRequest) -> Reply:
    kind = call.body.get("DiagnosticDataType")
    if kind is None:
        raise parameter_missing("CollectDiagnosticData", "DiagnosticDataType")
    if kind not in TYPES:
        raise property_value("DiagnosticDataType", kind)
    return task_accepted(falcon.tasks.start("Collect diagnostic data", partial(_work, falcon)))


async def _work(falcon: Falcon, task: BmcTask) -> tuple[int, Body | None]:
    for step in range(STEPS):
        await asyncio.sleep(SECONDS / STEPS / falcon.clock.speed)
        task.percent = 100 * (step + 1) // (STEPS + 1)
    name = str(len(falcon.dumps) + 1)
    content = b"\n".join(msgspec.json.encode(entry.log_entry()) for entry in falcon.events.entries.values())
    falcon.dumps[name] = (falcon.clock.timestamp(), b"DUMP of " + falcon.name.encode() + b"\n" + content)
    return 200, None
