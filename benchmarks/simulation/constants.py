"""The constants of the simulation, each with its source. Rates are bytes or operations a second, times seconds.

Data sheets, published pair rates and the networks' layers are those of the model; nothing of its formula or of its
fitted parameters is used. What the published rates determine is fitted to them alone (`docs/simulation.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.model.reference_data import GB

# --- Arithmetic. Fitted to the published rates of one V100 (PUBLISHED_RATES), the geometric mean of a network's rows.
# Share of the peak rate that kernels reach once they are large: of matrix units (fp16), of fp32 units.
HALF_REACHED: Final[Mapping[str, float]] = {"transformer": 0.42, "convolution": 0.42, "depthwise": 0.42}
SINGLE_REACHED: Final[Mapping[str, float]] = {"transformer": 0.50, "convolution": 0.60, "depthwise": 0.60}
MEMORY_REACHED: Final = 0.78  # of the memory's rate: STREAM on a V100 reaches 750 to 790 of 900 GB/s
MEMORY_PASSES: Final = (2.0, 3.0)  # a kept value is written and read forward, read and its gradient moved backward
RAMP_SECONDS: Final = 6e-6  # a kernel fills and drains the device: it reaches its rate only if it is long
# PyTorch starts an operation in 5 to 10 us; the process cannot run ahead for ever.
LAUNCH_SECONDS: Final = 8e-6
BACKWARD_OPERATIONS: Final = 2.0  # kernels backward for each forward
COMPILED_OPERATIONS, COMPILED_BYTES = 0.45, 0.75  # assumed: fused kernels are fewer and keep less
CPU_REACHED, CPU_MEMORY_REACHED = 0.5, 0.5  # assumed: of a core's vector units, of the host's memory
CPU_OPERATION_SECONDS: Final = 20e-6
# Values of fp32 that an optimiser reads and writes for a parameter, and kernels for a tensor, one after the other.
OPTIMISER_BYTES: Final[Mapping[str, float]] = {"convolution": 20.0, "depthwise": 20.0, "transformer": 28.0}
SCALER_BYTES: Final = 8.0  # mixed precision unscales gradients in place
OPTIMISER_KERNELS: Final[Mapping[str, float]] = {"convolution": 3.0, "depthwise": 3.0, "transformer": 8.0}
BUCKET_PASSES: Final = 4.0  # gradients are copied into buckets and back: read and written twice
# Clocks of cards of one model differ for good; each step of each differs a little more.
DEVICE_SPREAD, STEP_SPREAD = 0.01, 0.015

# --- Links. A packet carries up to 256 bytes behind 24 to 28 of header and framing (PCI Express Base Specification).
PACKET_SHARE: Final = 0.87
# Below one switch and across a host, NCCL counts on 12 GB/s of x16 Gen3, and divides by 6/5 what an Intel processor
# forwards (NCCL, src/graph/topo.h); the published pairs are 12.2 and 9.8 GB/s.
HOST_LANES: Final = 96  # of two Xeon sockets, PCIe 3.0: 48 each (Intel Xeon Scalable data sheet)
# NCCL's own latencies of its simple protocol: of a collective, and of each of its 2 (n - 1) hops (src/graph/tuning.cc).
COLLECTIVE_SECONDS: Final = 8.4e-6
HOP_SECONDS: Final[Mapping[str, float]] = {"nvlink": 3.4e-6, "pcie": 5.7e-6, "loopback": 100e-6}
# Streaming multiprocessors that communication kernels hold, of a V100's 80: channels over PCIe and over NVLink.
CHANNEL_SHARE: Final[Mapping[str, float]] = {"nvlink": 12 / 80, "pcie": 4 / 80, "loopback": 0.0}
RING_TOUCHES: Final = 3.0  # accesses of memory for each byte that a ring moves: read both summands, write the sum
# Host memory to device: pinned memory reaches what packets leave; copies wait for nothing else.
# DP: one interpreter copies the module tree for each device each step (assumed: Python objects and tensors).
REPLICA_SECONDS: Final = 15e-6

# --- Input. The published MobileNetV2 is bound by its loaders: 3268 images a second from eight GPUs with four each.
IMAGE_SECONDS: Final = 32 / 3268  # a core, for one image of 224 x 224: decode, crop, resize, normalise
IMAGE_PIXELS: Final = 224.0**2
SCENE_FACTOR: Final = 0.35  # a larger image costs less a pixel: it is not cropped out of a larger file (assumed)
TOKEN_SECONDS: Final = 2e-4 / 384  # of a core for one token: look up and collate (assumed)
SAMPLE_SPREAD: Final = 0.5  # relative, of the cost of one sample (file sizes of ImageNet)
PREFETCHED: Final = 2  # batches that a loader's process prepares ahead (PyTorch's prefetch_factor)
READ_REACHED: Final = 0.7  # of a drive's sequential rate by reads of files
CHECKPOINT_WRITE: Final = 1.9 * GB  # Intel SSD DC P4500 4 TB data sheet; others half of their reading
