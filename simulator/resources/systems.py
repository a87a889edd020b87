"""The host servers, as the BMC knows them from the cables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from simulator.errors import Body
from simulator.lab import Host, stable_serial, stable_uuid
from simulator.tree import collection, counted, link

if TYPE_CHECKING:
    from simulator.service import Falcon

V1 = "/redfish/v1"
SYSTEMS = f"{V1}/Systems"


def register(falcon: Falcon) -> None:
    """Add the cabled hosts with their processors."""
    tree, hosts = falcon.tree, falcon.state.hosts
    uris = [f"{SYSTEMS}/{name}" for name in sorted(hosts)]
    tree.resource(SYSTEMS, lambda: collection(SYSTEMS, "ComputerSystem", "Systems", uris))
    for name, host in hosts.items():
        uri = f"{SYSTEMS}/{name}"
        tree.resource(uri, partial(_system, falcon, name, host))
        cpus = [f"cpu{number}" for number in range(1, host.cpus + 1)]
        gpus = [f"gpu{number}" for number in range(1, host.gpus + 1)]
        members = [f"{uri}/Processors/{one}" for one in cpus + gpus]
        tree.resource(
            f"{uri}/Processors",
            partial(collection, f"{uri}/Processors", "Processor", "Processors", members),
        )
        for one in cpus + gpus:
            tree.resource(
                f"{uri}/Processors/{one}",
                partial(_processor, name, host, one),
            )


def _system(falcon: Falcon, name: str, host: Host) -> Body:
    ports = [port.endpoint for port in falcon.state.host_ports() if port.host == name]
    return {
        "@odata.id": f"{SYSTEMS}/{name}",
        "@odata.type": "#ComputerSystem.v1_27_0.ComputerSystem",
        "Id": name,
        "Name": name,
        "SystemType": "Physical",
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
        "Processors": link(f"{SYSTEMS}/{name}/Processors"),
        "Status": {"State": "Enabled", "Health": "OK"},
        "Links": counted({}, Endpoints=[f"{V1}/Fabrics/PCIe/Endpoints/{port}" for port in ports]),
    }


def _processor(name: str, host: Host, one: str) -> Body:
    cpu = one.startswith("cpu")
    body: Body = {
        "@odata.id": f"{SYSTEMS}/{name}/Processors/{one}",
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
