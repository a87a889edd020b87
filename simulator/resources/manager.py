"""The BMC itself: manager, network protocol, certificate, log service."""

from __future__ import annotations

from simulator.errors import Body, RedfishError, not_found
from simulator.events import LOG_URI, EventLogEntry
from simulator.faults import FaultRequest
from simulator.resources.certificates import CERTIFICATES
from simulator.service import Falcon
from simulator.tree import AuthenticatedRequest, Reply, ResourceNode, WriteMethod, add_references, collection, link

V1 = "/redfish/v1"
BMC = f"{V1}/Managers/bmc"
FIRMWARE = "2.14.0-falcon"
RESET_SECONDS = 5.0


def register(falcon: Falcon) -> None:
    """Add the manager with everything below it."""
    tree = falcon.tree

    def manager() -> Body:
        chassis = [f"{V1}/Chassis/falcon"] + [f"{V1}/Chassis/drawer{number}" for number in falcon.state.drawers]
        links = add_references(
            {},
            ManagerForChassis=chassis,
            ManagerForSwitches=[f"{V1}/Fabrics/PCIe/Switches/drawer{number}_switch" for number in falcon.state.drawers],
        )
        links["ManagerInChassis"] = link(f"{V1}/Chassis/falcon")
        return {
            "@odata.id": BMC,
            "@odata.type": "#Manager.v1_24_0.Manager",
            "Id": "bmc",
            "Name": "Falcon BMC",
            "Description": "Baseboard management controller of the chassis",
            "ManagerType": "BMC",
            "Manufacturer": "H3 Platform",
            "Model": "Falcon BMC",
            "FirmwareVersion": FIRMWARE,
            "UUID": falcon.state.uuid,
            "ServiceEntryPointUUID": falcon.state.uuid,
            "DateTime": falcon.clock.timestamp().partition(".")[0] + "Z",
            "DateTimeLocalOffset": "+00:00",
            "LastResetTime": falcon.booted,
            "PowerState": "On",
            "Status": {"State": "Enabled", "Health": "OK"},
            "NetworkProtocol": link(f"{BMC}/NetworkProtocol"),
            "LogServices": link(f"{BMC}/LogServices"),
            "Links": links,
            "Actions": {
                "#Manager.Reset": {
                    "target": f"{BMC}/Actions/Manager.Reset",
                    "ResetType@Redfish.AllowableValues": ["GracefulRestart", "ForceRestart"],
                }
            },
        }

    async def reset(call: AuthenticatedRequest) -> Reply:
        kind = call.body.get("ResetType", "GracefulRestart")
        if kind not in ("GracefulRestart", "ForceRestart"):
            raise RedfishError(
                400,
                "ActionParameterNotSupported",
                f"The BMC has no reset of the type {kind!r}.",
                arguments=("ResetType", "Manager.Reset"),
            )
        falcon.faults.add(FaultRequest(kind="bmc_reboot", seconds=RESET_SECONDS))
        return Reply(204)

    def protocol() -> Body:
        return {
            "@odata.id": f"{BMC}/NetworkProtocol",
            "@odata.type": "#ManagerNetworkProtocol.v1_12_0.ManagerNetworkProtocol",
            "Id": "NetworkProtocol",
            "Name": "Manager Network Protocol",
            "HostName": falcon.name,
            "Status": {"State": "Enabled", "Health": "OK"},
            "HTTP": {"ProtocolEnabled": False, "Port": None},
            "HTTPS": {"ProtocolEnabled": True, "Port": 443, "Certificates": link(CERTIFICATES)},
        }

    tree.resource(f"{V1}/Managers", lambda: collection(f"{V1}/Managers", "Manager", "Managers", [BMC]))
    tree.resource(BMC, manager)
    tree.add(ResourceNode(f"{BMC}/Actions/Manager.Reset", None, {"POST": WriteMethod(reset)}))
    tree.resource(f"{BMC}/NetworkProtocol", protocol)
    _register_log(falcon)


def _register_log(falcon: Falcon) -> None:
    tree, events = falcon.tree, falcon.events
    entries = f"{LOG_URI}/Entries"

    def service() -> Body:
        return {
            "@odata.id": LOG_URI,
            "@odata.type": "#LogService.v1_9_0.LogService",
            "Id": "Events",
            "Name": "Event Log",
            "ServiceEnabled": True,
            "LogEntryType": "Event",
            "OverWritePolicy": "WrapsWhenFull",
            "MaxNumberOfRecords": events.limit,
            "DateTime": falcon.clock.timestamp().partition(".")[0] + "Z",
            "DateTimeLocalOffset": "+00:00",
            "Entries": link(entries),
            "Actions": {"#LogService.ClearLog": {"target": f"{LOG_URI}/Actions/LogService.ClearLog"}},
        }

    def entry_of(last: str) -> EventLogEntry:
        found = events.entries.get(int(last)) if last.isdigit() else None
        if found is None:
            raise not_found(f"{entries}/{last}")
        return found

    async def clear(call: AuthenticatedRequest) -> Reply:
        events.clear()
        return Reply(204)

    tree.resource(f"{BMC}/LogServices", lambda: collection(f"{BMC}/LogServices", "LogService", "Logs", [LOG_URI]))
    tree.resource(LOG_URI, service)
    tree.add(ResourceNode(f"{LOG_URI}/Actions/LogService.ClearLog", None, {"POST": WriteMethod(clear)}))

    def log() -> Body:
        # The one collection whose members the standard requires in full.
        body = collection(entries, "LogEntry", "Log Entries", [])
        body["Members"] = [entry.log_entry() for entry in events.entries.values()]
        body["Members@odata.count"] = len(body["Members"])
        return body

    tree.resource(entries, log)
    tree.members(
        entries,
        lambda last: (
            ResourceNode(f"{entries}/{last}", lambda: entry_of(last).log_entry())
            if last.isdigit() and int(last) in events.entries
            else None
        ),
    )
