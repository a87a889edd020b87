"""The host servers in the BMC: a system per cabled host, or per host port to which blocks are added."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simulator.composition import ENDPOINTS, SYSTEMS
from simulator.lab import HostLab, stable_serial, stable_uuid
from simulator.odata import Body, identity, link, references
from simulator.power import SYSTEM_RESETS
from simulator.resources.controls import indicator, indicator_method, register_reset, reset_action
from simulator.resources.zones import bind_slots, listed_members, register_actions
from simulator.service import Falcon
from simulator.state import COMPOSITION_BLOCKS, SimulatedHostPort
from simulator.tree import COMPOSE, AuthenticatedRequest, Reply, ResourceNode, WriteMethod

ACTIONS = ("ComputerSystem.AddResourceBlock", "ComputerSystem.RemoveResourceBlock")


def system_uri(falcon: Falcon, port: SimulatedHostPort) -> str:
    """Return the system behind a host port: in its resource block, of its resource blocks, or the host at its cable."""
    if falcon.pooled:
        return f"{port.block_uri}/Systems/{port.name}"
    return f"{SYSTEMS}/{port.endpoint if falcon.blocks else port.host}"


def register(falcon: Falcon) -> None:
    """Add the systems with their processors; they follow the cables."""
    state = falcon.state
    if falcon.pooled:
        for port in state.host_ports():
            uri = system_uri(falcon, port)
            falcon.tree.resource(uri, partial(_system_in_block, falcon, port))
            _register_processors(falcon, uri, partial(_host_of, port))
        return

    def uris() -> list[str]:
        names = [port.endpoint for port in state.host_ports()] if falcon.blocks else state.cabled_hosts()
        return [f"{SYSTEMS}/{name}" for name in names]

    falcon.tree.collection(SYSTEMS, "ComputerSystem", "Systems", uris)
    if falcon.blocks:
        for port in state.host_ports():
            _register_composed(falcon, port)
    else:
        for name in state.hosts:
            _register_host(falcon, name)


def _host_of(port: SimulatedHostPort) -> str | None:
    return port.host


def _register_host(falcon: Falcon, name: str) -> None:
    uri, state = f"{SYSTEMS}/{name}", falcon.state

    def exists() -> bool:
        return name in state.cabled_hosts()

    def render() -> Body:
        ports = [f"{ENDPOINTS}/{port.endpoint}" for port in state.host_ports() if port.host == name]
        return {
            **identity(uri, "ComputerSystem", name),
            "SystemType": "Physical",
            **_hardware(falcon, uri, name),
            **indicator(falcon, uri),
            "Actions": reset_action(uri, "ComputerSystem", SYSTEM_RESETS),
            "Status": {"State": "Enabled", "Health": "OK"},
            "Links": references(Endpoints=ports),
        }

    falcon.tree.resource(uri, render, exists=exists, PATCH=indicator_method(falcon, uri, render))
    register_reset(falcon, uri, "ComputerSystem", SYSTEM_RESETS, partial(falcon.power.host, name))
    _register_processors(falcon, uri, lambda: name if exists() else None)


def _hardware(falcon: Falcon, uri: str, name: str) -> Body:
    host = falcon.state.hosts[name]
    return {
        "HostName": name,
        "Manufacturer": host.manufacturer,
        "Model": host.model,
        "SerialNumber": host.serial or stable_serial("S", name),
        "UUID": host.uuid or stable_uuid(name),
        "PowerState": falcon.power.state_of(name),
        "LastResetTime": falcon.power.reset_at.get(name, falcon.built),
        "BiosVersion": "2.3.5",
        "ProcessorSummary": {
            "Count": host.cpus,
            "CoreCount": host.cpus * host.cores_per_cpu,
            "Model": host.cpu_model,
        },
        "MemorySummary": {"TotalSystemMemoryGiB": host.memory_gib},
        "Processors": link(f"{uri}/Processors"),
    }


def _system_at(falcon: Falcon, port: SimulatedHostPort, uri: str, kind: str) -> Body:
    """Render a system with the host at the end of a cable, which is absent without one."""
    host = port.host
    body: Body = {
        **identity(uri, "ComputerSystem", f"{host} over {port.name}" if host else f"No host at {port.name}"),
        "SystemType": kind,
        "Status": {"State": "Enabled", "Health": "OK"} if host is not None else {"State": "Absent"},
        "Links": references(Endpoints=[f"{ENDPOINTS}/{port.endpoint}"]),
    }
    if host is not None:
        body |= _hardware(falcon, system_uri(falcon, port), host)
    return body


def _system_in_block(falcon: Falcon, port: SimulatedHostPort) -> Body:
    return _system_at(falcon, port, system_uri(falcon, port), "Physical")


def composed_system(falcon: Falcon, port: SimulatedHostPort) -> Body:
    """Render the system of a host port: the host at the end of the cable, and its resource blocks."""
    uri = f"{SYSTEMS}/{port.system}"
    body = _system_at(falcon, port, uri, "Composed")
    blocks = [f"{COMPOSITION_BLOCKS}/{endpoint}" for endpoint in port.attached]
    if falcon.pooled:
        blocks.insert(0, port.block_uri)
    body["Links"] |= references(ResourceBlocks=blocks)
    if falcon.options.dialect == "blocks":
        body["Actions"] = {f"#{name}": {"target": f"{uri}/Actions/{name}"} for name in ACTIONS}
    return body


def _register_composed(falcon: Falcon, port: SimulatedHostPort) -> None:
    """Add the lasting system of a host port, which blocks are added to."""
    uri = f"{SYSTEMS}/{port.system}"
    render = partial(composed_system, falcon, port)

    async def change(call: AuthenticatedRequest) -> Reply:
        listed = listed_members(call.body, render(), "ResourceBlocks", COMPOSITION_BLOCKS)
        slots = falcon.composer.slots_of_list(port, [port.endpoint, *listed])
        falcon.composer.check(port, slots)
        return await bind_slots(falcon, port, lambda: slots, by=call.actor, answer=lambda: Reply(200, render()))

    writes = {"PATCH": WriteMethod(change, COMPOSE)} if falcon.options.dialect == "block-patch" else {}
    node = ResourceNode(uri, render, writes, revision=lambda: port.revision)
    falcon.tree.add(node)
    if not writes:
        register_actions(falcon, port, node, ACTIONS, COMPOSITION_BLOCKS)
    _register_processors(falcon, uri, partial(_host_of, port))


def _register_processors(falcon: Falcon, system: str, host: Callable[[], str | None]) -> None:
    """Add the processors of a system: those of its present host, None without a cable."""
    hosts = falcon.state.hosts

    def processors() -> dict[str, str]:
        name = host()
        if name is None:
            return {}
        cpus = [f"cpu{number}" for number in range(1, hosts[name].cpus + 1)]
        gpus = [f"gpu{number}" for number in range(1, hosts[name].gpus + 1)]
        return dict.fromkeys(cpus + gpus, name)

    falcon.tree.objects(
        f"{system}/Processors",
        "Processor",
        "Processors",
        processors,
        lambda uri, name: ResourceNode(uri, partial(_processor, uri, name, hosts[name])),
        exists=lambda: host() is not None,
    )


def _processor(uri: str, host_name: str, host: HostLab) -> Body:
    name = uri.rpartition("/")[2]
    cpu = name.startswith("cpu")
    body: Body = {
        **identity(uri, "Processor", f"{'CPU' if cpu else 'Local GPU'} {name[3:]} of {host_name}"),
        "ProcessorType": "CPU" if cpu else "GPU",
        "Manufacturer": "Intel" if cpu else "NVIDIA",
        "Model": host.cpu_model if cpu else host.gpu_model,
        "Status": {"State": "Enabled", "Health": "OK"},
    }
    if cpu:
        body["TotalCores"] = host.cores_per_cpu
        body["TotalThreads"] = 2 * host.cores_per_cpu
    else:
        body["SerialNumber"] = stable_serial("", host_name, name)
    return body
