"""The network of the BMC: its protocols and its Ethernet interface."""

from __future__ import annotations

from functools import partial
from zlib import crc32

from simulator.errors import no_operation, property_refused, property_value
from simulator.odata import V1, Body, identity, link
from simulator.service import Falcon
from simulator.tree import MANAGE, AuthenticatedRequest, Reply, WriteMethod

BMC = f"{V1}/Managers/bmc"
PROTOCOL = f"{BMC}/NetworkProtocol"
CERTIFICATES = f"{PROTOCOL}/HTTPS/Certificates"
INTERFACES = f"{BMC}/EthernetInterfaces"
MAX_NAME = 253  # letters of a name in DNS: RFC 1035, 2.3.4


def register(falcon: Falcon) -> None:
    """Add the network protocols, and the interface with the names that may be changed."""
    uri = f"{INTERFACES}/eth0"
    names: Body = {"HostName": falcon.name, "FQDN": f"{falcon.name}.example.net", "StaticNameServers": ["192.0.2.53"]}

    def protocol() -> Body:
        return {
            **identity(PROTOCOL, "ManagerNetworkProtocol", "Manager Network Protocol"),
            "HostName": names["HostName"],
            "FQDN": names["FQDN"],
            "Status": {"State": "Enabled", "Health": "OK"},
            "HTTP": {"ProtocolEnabled": False, "Port": None},
            "HTTPS": {"ProtocolEnabled": True, "Port": 443, "Certificates": link(CERTIFICATES)},
        }

    render = partial(_interface, falcon, names, uri)
    tree = falcon.tree
    tree.resource(PROTOCOL, protocol)
    tree.collection(INTERFACES, "EthernetInterface", "Ethernet Interfaces", lambda: [uri])
    tree.resource(uri, render, PATCH=WriteMethod(partial(_change, falcon, names, uri), MANAGE))


def _interface(falcon: Falcon, names: Body, uri: str) -> Body:
    # Administered locally, from the serial number.
    address = bytes((2, 0)) + crc32(falcon.state.serial.encode()).to_bytes(4, "big")
    return {
        **identity(uri, "EthernetInterface", "Management Interface"),
        "InterfaceEnabled": True,
        "LinkStatus": "LinkUp",
        "MACAddress": address.hex(":").upper(),
        "SpeedMbps": 1000,
        "FullDuplex": True,
        **names,
        "NameServers": names["StaticNameServers"],
        # Of the block for documentation (RFC 5737): the service itself is on 127.0.0.1.
        "IPv4Addresses": [
            {
                "Address": "192.0.2.10",
                "SubnetMask": "255.255.255.0",
                "AddressOrigin": "Static",
                "Gateway": "192.0.2.1",
            }
        ],
        "Status": {"State": "Enabled", "Health": "OK"},
    }


async def _change(falcon: Falcon, names: Body, uri: str, call: AuthenticatedRequest) -> Reply:
    if not call.body:
        raise no_operation()
    known = _interface(falcon, names, uri)
    for key, value in call.body.items():
        if key not in names:
            raise property_refused(key, known)
        listed = value if isinstance(names[key], list) else [value]
        if not isinstance(listed, list) or not all(isinstance(one, str) and 0 < len(one) <= MAX_NAME for one in listed):
            raise property_value(key, value)
    names.update(call.body)
    return Reply(200, _interface(falcon, names, uri))
