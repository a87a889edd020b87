"""A topology is exported as InfraGraph, judged by InfraGraph's own service, and loses no device and no link."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.model.calibration import PAPER_TOPOLOGIES
from benchmarks.model.infragraph import infragraph
from benchmarks.model.topology import LOCAL, Accelerator, PcieLink, Storage, Topology

TWO_HOSTS = Topology(
    name="node-1, node-2", host="node-1", other_hosts=("node-2",), local_fabric="pcie",
    accelerators=(
        Accelerator(name="local 1", model="A100-PCIE-40GB"),
        Accelerator(name="f/slot 1", model="T4", place="f/drawer 1/H1", link=PcieLink(lanes=8, generation=3)),
        Accelerator(name="node-2/local 1", model="A100-PCIE-40GB", host="node-2"),
        Accelerator(name="f/slot 9", model="V.100 [x]", place="f/drawer 2/H1", host="node-2"),
    ),
    storage=Storage(model="P4500", place="f/drawer 1/H1"),
    uplinks={"f/drawer 1/H1": PcieLink(), "f/drawer 2/H1": PcieLink(lanes=8, generation=4)},
)  # fmt: skip
TOPOLOGIES = {**PAPER_TOPOLOGIES, "two hosts": TWO_HOSTS, "a CPU": Topology()}


def graph_of(topology: Topology) -> Any:
    """Return the graph that InfraGraph makes of an export, which it has validated."""
    package = pytest.importorskip("infragraph", reason="InfraGraph is not installed: nobody judges its files.")
    service = __import__("infragraph.infragraph_service", fromlist=["InfraGraphService"]).InfraGraphService()
    text = json.dumps(infragraph(topology))
    package.Infrastructure().deserialize(text).validate()
    service.set_graph(text)
    return service.get_networkx_graph()


@pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES)
@pytest.mark.filterwarnings("error:Infrastructure has nodes")
def test_infragraph_takes_every_topology_whole(topology: Topology) -> None:
    if topology == Topology():
        topology = replace(topology, storage=Storage())
    graph = graph_of(topology)
    kinds = [data["type"] for _node, data in graph.nodes(data=True)]
    assert kinds.count("xpu") == len(topology.accelerators)
    assert kinds.count("cpu") == 1 + len(topology.other_hosts)
    assert kinds.count("switch") == len({one.place for one in topology.accelerators} | {*topology.uplinks}) - (
        LOCAL in {one.place for one in topology.accelerators}
    )
    assert kinds.count("storage") == 1
    networkx = pytest.importorskip("networkx")
    # Hosts meet in no chassis: each is a part of the graph by itself.
    assert networkx.number_connected_components(graph) == 1 + len(topology.other_hosts)


def test_links_have_the_bandwidth_that_they_were_trained_to() -> None:
    graph = graph_of(TWO_HOSTS)
    bandwidths = {
        (one.partition(".")[0], other.partition(".")[0]): data.get("bandwidth")
        for one, other, data in graph.edges(data=True)
    }
    assert bandwidths["host-0", "switch-0"] == "15.76 GBps"
    assert bandwidths["host-1", "switch-1"] == "15.752 GBps"
    assert bandwidths["switch-0", "switch-0-t4-pcie3-x8"] == "7.88 GBps"


def test_names_that_mean_something_to_infragraph_are_made_harmless() -> None:
    plain = infragraph(TWO_HOSTS)
    names = [one["name"] for part in ("devices", "instances", "links") for one in plain[part]]
    assert not [one for one in names if set(one) & set(".[]: ")]
    assert any(one["description"] == "V.100 [x]" for one in plain["devices"])
