"""The service root and the documents beside it."""

from __future__ import annotations

from simulator.odata import V1, Body, link, odata_type
from simulator.query import MAX_LEVELS
from simulator.service import Falcon
from simulator.tree import ResourceNode

SERVICES = {
    "Systems": "Systems",
    "Chassis": "Chassis",
    "Managers": "Managers",
    "Fabrics": "Fabrics",
    "ResourceBlocks": "ResourceBlocks",
    "CompositionService": "CompositionService",
    "SessionService": "SessionService",
    "AccountService": "AccountService",
    "EventService": "EventService",
    "Tasks": "TaskService",
    "Registries": "Registries",
    "CertificateService": "CertificateService",
    "TelemetryService": "TelemetryService",
}


def register(falcon: Falcon) -> None:
    """Add /redfish, the service root and the OData service document."""
    absent = {"ResourceBlocks"} if falcon.blocks else {"CompositionService"}
    if not falcon.options.report:
        absent.add("TelemetryService")
    services = {name: f"{V1}/{path}" for name, path in SERVICES.items() if name not in absent}
    expand = falcon.options.expand

    def render() -> Body:
        return {
            "@odata.id": f"{V1}/",
            "@odata.type": odata_type("ServiceRoot"),
            "Id": "RootService",
            "Name": "Root Service",
            "RedfishVersion": "1.23.0",
            "UUID": falcon.state.uuid,
            "Product": "Falcon 4016 (simulated)",
            "Vendor": "H3 Platform",
            "ServiceIdentification": falcon.name,
            "ProtocolFeaturesSupported": {
                "ExpandQuery": {
                    **dict.fromkeys(("ExpandAll", "Levels", "Links", "NoLinks"), expand),
                    **({"MaxLevels": MAX_LEVELS} if expand else {}),
                },
                "SelectQuery": True,
                "TopSkipQuery": True,
                "OnlyMemberQuery": True,
                "FilterQuery": False,
                "ExcerptQuery": False,
                "IncludeOriginOfConditionQuery": False,
                "DeepOperations": {"DeepPATCH": False, "DeepPOST": False},
            },
            "Links": {
                "Sessions": link(f"{V1}/SessionService/Sessions"),
                "ManagerProvidingService": link(f"{V1}/Managers/bmc"),
            },
            **{name: link(uri) for name, uri in services.items()},
        }

    def document() -> Body:
        values = [
            {"name": name, "kind": "Singleton", "url": uri} for name, uri in {"Service": f"{V1}/", **services}.items()
        ]
        return {"@odata.context": f"{V1}/$metadata", "value": values}

    falcon.tree.add(ResourceNode("/redfish", lambda: {"v1": f"{V1}/"}, public=True))
    falcon.tree.add(ResourceNode(V1, render, public=True))
    falcon.tree.add(ResourceNode(f"{V1}/odata", document, public=True))
