"""Outputs of tools, in their formats, of machines that there are not."""

from __future__ import annotations

import json
from typing import Any

P2P = """\
[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, Tesla V100-SXM2-16GB, pciBusID: 1b, pciDeviceID: 0, pciDomainID:0
Device: 1, Tesla V100-PCIE-16GB, pciBusID: 41, pciDeviceID: 0, pciDomainID:0
Device=0 CAN Access Peer Device=1

P2P Connectivity Matrix
     D\\D     0     1
     0\t     1     1
     1\t     1     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 700.00   9.50
     1   9.60 701.00
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 702.00  19.10
     1  19.20 703.00
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1
     0   1.60   2.60
     1   2.70   1.60

   CPU     0      1
     0   2.00   1.70
     1   1.80   2.10

NOTE: nothing
"""

NCCL = """\
# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid     77 on     node-1 device  0 [0000:1b:00] Tesla V100-SXM2-16GB
#  Rank  1 Group  0 Pid     77 on     node-1 device  1 [0000:41:00] Tesla V100-PCIE-16GB
node-1:77:91 [0] NCCL INFO something
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    11.20    0.09    0.09       0    11.00    0.09    0.09       0
        2048           512     float     sum      -1    12.40    0.17    0.17       0    12.10    0.17    0.17     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.13
#
# Collective test concluded: all_reduce_perf
"""

NCCL_JSON: dict[str, Any] = {
    "version": 2, "start_time": "2026-11-20 08:30:00", "args": ["./build/all_gather_perf", "-g", "2"],
    "env": ["HOME=/root", "API_TOKEN=hunter2"], "nccl_version": 22703,
    "config": {
        "nthreads": 1, "ngpus": 2,
        "devices": [{"rank": 0, "hostname": "node-1", "device_info": "Tesla V100-SXM2-16GB"}],
    },
    "results": [
        {
            "size": 1024, "count": 256, "type": "float", "redop": "none", "root": "    -1",
            "out_of_place": {"time": 11.2, "alg_bw": 0.09, "bus_bw": 0.05, "nwrong": 0.0},
            "in_place": {"time": "nan", "alg_bw": 0.09, "bus_bw": 0.05, "nwrong": None},
        },
    ],
    "out_of_bounds": {"count": 0, "okay": "true"}, "average_bus_bandwidth": {"bandwidth": 0.05, "okay": "unchecked"},
    "errors": [],
}  # fmt: skip

NVBANDWIDTH: dict[str, Any] = {
    "nvbandwidth": {
        "CUDA Runtime Version": 12040, "Driver Version": "550.54.15", "version": "v0.8", "git_version": "v0.8",
        "Hostname": "node-1", "GPU Device list": ["0: Tesla V100-SXM2-16GB (00000000:1B:00): (node-1)",
                                                  "1: Tesla V100-SXM2-16GB (00000000:1C:00): (node-1)"],
        "testcases": [
            {
                "name": "host_to_device_memcpy_ce", "status": "Passed", "sum": 24.5,
                "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
                "bandwidth_matrix": [["12.25", "12.25"]],
            },
            {
                "name": "device_to_device_memcpy_read_ce", "status": "Passed", "sum": 96.5,
                "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
                "bandwidth_matrix": [["N/A", "48.25"], ["48.25", "N/A"]],
            },
            {"name": "multinode_bisect_write_device_to_device_ce", "status": "Waived"},
            {"name": "device_to_device_latency_sm", "status": "Error"},
        ],
    }
}  # fmt: skip


def event(key: str, seconds: float, value: Any = None, **metadata: Any) -> str:
    """Return a line of an MLPerf log, so many seconds after a moment."""
    kind = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}.get(key.rpartition("_")[2], "POINT_IN_TIME")
    body = {
        "namespace": "", "time_ms": 1_700_000_000_000 + int(seconds * 1000), "event_type": kind, "key": key,
        "value": value, "metadata": {"file": "train.py", "lineno": 1, **metadata},
    }  # fmt: skip
    return f"0: :::MLLOG {json.dumps(body)}"


MLPERF = "\n".join(
    [
        "some words of a launcher",
        event("submission_benchmark", 0, "resnet"),
        event("submission_platform", 0, "8xV100"),
        event("global_batch_size", 0, 1024),
        event("seed", 0, 7),
        event("init_start", 0),
        event("init_stop", 2),
        event("run_start", 2),
        event("epoch_start", 2, epoch_num=1),
        event("tracked_stats", 5, {"throughput": 5000.0, "other": "x"}),
        event("train_loss", 5, 6.9),
        event("tracked_stats", 9, {"throughput": 5200.0}),
        event("train_loss", 9, 5.1),
        event("epoch_stop", 12, epoch_num=1),
        event("eval_start", 12),
        event("eval_accuracy", 13, 0.61),
        event("eval_stop", 13),
        event("run_stop", 14, status="success"),
    ]
)
