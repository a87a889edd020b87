"""The host servers in the BMC: a system per cabled host, or per host port to which blocks are added."""

from __future__ import annotations

from functools import partial

from simulator.errors import Body, RedfishError
from simulator.lab import HostLab, stable_serial, stable_uuid
from simulator.resources.zones import COMPOSERS, ENDPOINTS, bind_slots, check_etag, member_id, parameter_missing
from simulator.service import Falcon
from simulator.state import COMPOSITION_BLOCKS, SimulatedHostPort, SimulatedSlot
from simulator.tree import (
    AuthenticatedRequest,
    Handler,
    Reply,
    ResourceNode,
    WriteMethod,
    add_references,
    collection,
    link,
)

V1 = "/redfish/v1"
SYSTEMS = f"{V1}/Systems"
ACTIONS = ("AddResourceBlock", "RemoveResourceBlock")


def system_uri(falcon: Falcon, port: SimulatedHostPort) -> str:
    """Return the system behind a host port, or that of the port's resource blocks."""
    return f"{SYSTEMS}/{port.endpoint if falcon.blocks else port.host}"


def register(falcon: Falcon) -> None:
    """Add the systems with their processors; they follow the cables."""
    tree, state = falcon.tree, falcon.state
    ports = state.host_ports() if falcon.blocks else []
    names = [port.endpoint for port in ports] or list(state.hosts)

    def uris() -> list[str]:
        return [f"{SYSTEMS}/{name}" for name in (names if falcon.blocks else state.cabled_hosts())]

    tree.resource(SYSTEMS, lambda: collection(SYSTEMS, "ComputerSystem", "Systems", uris()))
    if not falcon.blocks:
        tree.members(SYSTEMS, lambda last: _host_node(falcon, last))
    for port in ports:
        _register_composed(falcon, port)
    for name in names:
        uri = f"{SYSTEMS}/{name}"
        tree.members(uri, partial(_processors_node, falcon, name))
        tree.members(f"{uri}/Processors", partial(_processor_node, falcon, name))


def _host_of(falcon: Falcon, name: str) -> tuple[str, HostLab] | None:
    """Return the host of a system, with its name; None without a cable."""
    port = falcon.state.zone(name) if falcon.blocks else None
    host = port.host if port is not None else name
    if host is None or (not falcon.blocks and host not in falcon.state.cabled_hosts()):
        return None
    return host, falcon.state.hosts[host]


def _host_node(falcon: Falcon, last: str) -> ResourceNode | None:
    if last not in falcon.state.cabled_hosts():
        return None

    def render() -> Body:
        ports = [port.endpoint for port in falcon.state.host_ports() if port.host == last]
        return {
            "@odata.id": f"{SYSTEMS}/{last}",
            "@odata.type": "#ComputerSystem.v1_27_0.ComputerSystem",
            "Id": last,
            "Name": last,
            "SystemType": "Physical",
            **_hardware(f"{SYSTEMS}/{last}", last, falcon.state.hosts[last]),
            "Status": {"State": "Enabled", "Health": "OK"},
            "Links": add_references({}, Endpoints=[f"{ENDPOINTS}/{port}" for port in ports]),
        }

    return ResourceNode(f"{SYSTEMS}/{last}", render)


def _hardware(uri: str, name: str, host: HostLab) -> Body:
    return {
        "HostName": name,
        "Manufacturer": host.manufacturer,
        "Model": host.model,
        "SerialNumber": host.serial or stable_serial("S", name),
        "UUID": host.uuid or stable_uuid(name),
        "PowerState": "On",
        "ProcessorSummary": {
            "Count": host.cpus,
            "CoreCount": host.cpus * host.cores_per_cpu,
            "Model": host.cpu_model,
        },
        "MemorySummary": {"TotalSystemMemoryGiB": host.memory_gib},
        "Processors": link(f"{uri}/Processors"),
    }


def _register_composed(falcon: Falcon, port: SimulatedHostPort) -> None:
    """Add the system of a host port: the host at the end of the cable, and its resource blocks."""
    uri = f"{SYSTEMS}/{port.endpoint}"

    def render() -> Body:
        host = port.host
        blocks = [f"{COMPOSITION_BLOCKS}/drawer{port.drawer}slot{number}" for number in port.slots]
        body: Body = {
            "@odata.id": uri,
            "@odata.type": "#ComputerSystem.v1_27_0.ComputerSystem",
            "Id": port.endpoint,
            "Name": f"{host} over {port.name}" if host is not None else f"No host at {port.name}",
            "SystemType": "Composed",
            "Status": {"State": "Enabled", "Health": "OK"} if host is not None else {"State": "Absent"},
            "Links": add_references({}, Endpoints=[f"{ENDPOINTS}/{port.endpoint}"], ResourceBlocks=blocks),
            "Actions": {
                f"#ComputerSystem.{name}": {"target": f"{uri}/Actions/ComputerSystem.{name}"} for name in ACTIONS
            },
        }
        if host is not None:
            body.update(_hardware(uri, host, falcon.state.hosts[host]))
        return body

    node = ResourceNode(uri, render, revision=lambda: port.revision)
    falcon.tree.add(node)
    for name in ACTIONS:
        handler = _action(falcon, port, node, add=name == "AddResourceBlock")
        falcon.tree.add(
            ResourceNode(f"{uri}/Actions/ComputerSystem.{name}", None, {"POST": WriteMethod(handler, COMPOSERS)})
        )


def _action(falcon: Falcon, port: SimulatedHostPort, node: ResourceNode, *, add: bool) -> Handler:
    name = f"ComputerSystem.{ACTIONS[0] if add else ACTIONS[1]}"

    async def act(call: AuthenticatedRequest) -> Reply:
        if "ResourceBlock" not in call.body:
            raise parameter_missing(name, "ResourceBlock")
        wanted = member_id(call.body["ResourceBlock"], COMPOSITION_BLOCKS, "ResourceBlock")
        block = falcon.tree.find(f"{COMPOSITION_BLOCKS}/{wanted}")
        if block is None:
            raise RedfishError(
                400,
                "ResourceNotFound",
                f"The requested resource of type ResourceBlock named '{wanted}' was not found.",
                arguments=("ResourceBlock", wanted),
            )
        check_etag(call.body.get("ComputerSystemETag"), node, "ComputerSystemETag")
        check_etag(call.body.get("ResourceBlockETag"), block, "ResourceBlockETag")

        def blocks() -> list[SimulatedSlot]:
            return falcon.composer.slots_with(port, wanted, add=add)

        falcon.composer.check(port, blocks())
        return await bind_slots(falcon, port, blocks, by=call.actor)

    return act


def _processors(host: HostLab) -> list[str]:
    cpus = [f"cpu{number}" for number in range(1, host.cpus + 1)]
    return cpus + [f"gpu{number}" for number in range(1, host.gpus + 1)]


def _processors_node(falcon: Falcon, name: str, last: str) -> ResourceNode | None:
    found = _host_of(falcon, name)
    if last != "Processors" or found is None:
        return None
    uri = f"{SYSTEMS}/{name}/Processors"
    members = [f"{uri}/{one}" for one in _processors(found[1])]
    return ResourceNode(uri, partial(collection, uri, "Processor", "Processors", members))


def _processor_node(falcon: Falcon, name: str, last: str) -> ResourceNode | None:
    found = _host_of(falcon, name)
    if found is None or last not in _processors(found[1]):
        return None
    uri = f"{SYSTEMS}/{name}/Processors/{last}"
    return ResourceNode(uri, partial(_processor, uri, *found, last))


def _processor(uri: str, name: str, host: HostLab, one: str) -> Body:
    cpu = one.startswith("cpu")
    body: Body = {
        "@odata.id": uri,
        "@odata.type": "#Processor.v1_22_0.Processor",
        "Id": one,
        "Name": f"{'CPU' if cpu else 'Local GPU'} {one[3:]} of {name}",
        "ProcessorType": "CPU" if cpu else "GPU",
        "Manufacturer": "Intel" if cpu else "NVIDIA",
        "Model": host.cpu_model if cpu else host.gpu_model,
        "Status": {"State": "Enabled", "Health": "OK"},
    }
    if cpu:
        body["TotalCores"] = host.cores_per_cpu
        body["TotalThreads"] = 2 * host.cores_per_cpu
    else:
        body["SerialNumber"] = stable_serial("", name, one)
    return body
