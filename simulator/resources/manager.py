"""The BMC itself: manager, certificate, log service."""

from __future__ import annotations

import ssl

from simulator.errors import parameter_missing, property_error, property_value
from simulator.events import LOG_URI
from simulator.faults import FaultRequest
from simulator.odata import V1, Body, collection, identity, link, references
from simulator.resources.controls import indicator, indicator_method, register_reset, reset_action
from simulator.resources.dumps import DUMP
from simulator.resources.network import BMC, CERTIFICATES, INTERFACES, PROTOCOL
from simulator.service import Falcon
from simulator.state import SWITCHES, drawer_uri
from simulator.tree import AuthenticatedRequest, Reply, ResourceNode

CERTIFICATE_SERVICE = f"{V1}/CertificateService"
RESET_SECONDS = 5.0
RESET_TYPES = ["GracefulRestart", "ForceRestart"]


def register(falcon: Falcon) -> None:
    """Add the manager with everything below it, and the certificate service."""
    _register_manager(falcon)
    _register_certificate(falcon)
    _register_log(falcon)


def _register_manager(falcon: Falcon) -> None:
    tree = falcon.tree

    def manager() -> Body:
        drawers = falcon.state.drawers
        return {
            **identity(BMC, "Manager", "Falcon BMC"),
            "Description": "Baseboard management controller of the chassis",
            "ManagerType": "BMC",
            "Manufacturer": falcon.state.rules.manufacturer,
            "Model": "Falcon BMC",
            "FirmwareVersion": falcon.state.version("bmc"),
            "UUID": falcon.state.uuid,
            "ServiceEntryPointUUID": falcon.state.uuid,
            "DateTime": falcon.clock.date_time(),
            "DateTimeLocalOffset": "+00:00",
            "LastResetTime": falcon.booted,
            "PowerState": "On",
            "Status": {"State": "Enabled", "Health": "OK"},
            "NetworkProtocol": link(PROTOCOL),
            "EthernetInterfaces": link(INTERFACES),
            "LogServices": link(f"{BMC}/LogServices"),
            "Links": {
                **references(
                    ManagerForChassis=[f"{V1}/Chassis/falcon", *map(drawer_uri, drawers)],
                    ManagerForSwitches=[f"{SWITCHES}/drawer{number}_switch" for number in drawers],
                ),
                "ManagerInChassis": link(f"{V1}/Chassis/falcon"),
            },
            **indicator(falcon, BMC),
            "Actions": reset_action(BMC, "Manager", RESET_TYPES),
        }

    def reset(_kind: str) -> None:
        falcon.faults.add(FaultRequest(kind="bmc_reboot", seconds=RESET_SECONDS))

    tree.collection(f"{V1}/Managers", "Manager", "Managers", lambda: [BMC])
    tree.resource(BMC, manager, PATCH=indicator_method(falcon, BMC, manager))
    register_reset(falcon, BMC, "Manager", RESET_TYPES, reset)


def _register_certificate(falcon: Falcon) -> None:
    """Add the certificate of HTTPS, and the service that replaces it until the next start."""
    tree = falcon.tree
    uri, replacement = f"{CERTIFICATES}/1", f"{CERTIFICATE_SERVICE}/Actions/CertificateService.ReplaceCertificate"

    def certificate() -> Body:
        return {
            **identity(uri, "Certificate", "HTTPS Certificate"),
            "CertificateType": "PEM",
            "CertificateString": falcon.certificate_pem,
            "CertificateUsageTypes": ["Web"],
        }

    def service() -> Body:
        return {
            **identity(CERTIFICATE_SERVICE, "CertificateService", "Certificate Service"),
            "Actions": {"#CertificateService.ReplaceCertificate": {"target": replacement}},
        }

    async def replace(call: AuthenticatedRequest) -> Reply:
        for name in ("CertificateString", "CertificateType", "CertificateUri"):
            if name not in call.body:
                raise parameter_missing("ReplaceCertificate", name)
        if call.body["CertificateType"] != "PEM":
            raise property_value("CertificateType", call.body["CertificateType"])
        if call.body["CertificateUri"] != link(uri):
            raise property_value("CertificateUri", call.body["CertificateUri"])
        try:
            falcon.certificate_pem = falcon.replace_certificate(str(call.body["CertificateString"]))
        except (ssl.SSLError, ValueError) as error:
            sentence = f"The PEM text holds no certificate with its private key: {error}"
            name = "CertificateString"
            raise property_error("PropertyValueFormatError", name, sentence, name) from error
        return Reply(204, None, {"Location": uri})

    tree.collection(CERTIFICATES, "Certificate", "Certificates", lambda: [uri])
    tree.resource(uri, certificate)
    tree.resource(CERTIFICATE_SERVICE, service)
    tree.action(replacement, replace)


def _register_log(falcon: Falcon) -> None:
    tree, events = falcon.tree, falcon.events
    entries, clearance = f"{LOG_URI}/Entries", f"{LOG_URI}/Actions/LogService.ClearLog"

    def service() -> Body:
        return {
            **identity(LOG_URI, "LogService", "Event Log"),
            "Description": "What happened to the chassis, also while nobody listened",
            "ServiceEnabled": True,
            "LogEntryType": "Event",
            "OverWritePolicy": "WrapsWhenFull",
            "MaxNumberOfRecords": events.limit,
            "DateTime": falcon.clock.date_time(),
            "DateTimeLocalOffset": "+00:00",
            "Entries": link(entries),
            "Actions": {"#LogService.ClearLog": {"target": clearance}},
        }

    async def clear(call: AuthenticatedRequest) -> Reply:
        events.clear()
        return Reply(204)

    def log() -> Body:
        # The one collection whose members the standard requires in full.
        members = [entry.log_entry() for entry in events.entries.values()]
        return {
            **collection(entries, "LogEntry", "Log Entries", []),
            "Description": "The entries, the oldest first",
            "Members": members,
            "Members@odata.count": len(members),
        }

    def node(last: str) -> ResourceNode | None:
        entry = events.entries.get(int(last)) if last.isdigit() else None
        return ResourceNode(f"{entries}/{last}", entry.log_entry) if entry is not None else None

    uris = [LOG_URI, *([DUMP] if falcon.options.dump else [])]
    logs = {**collection(f"{BMC}/LogServices", "LogService", "Logs", uris), "Description": "The logs of the BMC"}
    tree.resource(f"{BMC}/LogServices", lambda: logs)
    tree.resource(LOG_URI, service)
    tree.action(clearance, clear)
    tree.resource(entries, log)
    tree.members(entries, node)
