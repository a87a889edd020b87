"""The constants of the simulation, each with its source. Rates are bytes or operations a second, times seconds.

Data sheets, published pair rates and the networks' layers are those of the model; nothing of its formula or of its
fitted parameters is used. What the published rates determine is fitted to them alone (`docs/simulation.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.model.reference_data import GB

# --- Arithmetic. Fitted to the published rates of one V100 (PUBLISHED_RATES), the geometric mean of a network's rows.
# Share of the peak rate that kernels reach once they are large: of matrix units (fp16), of fp32 units. The trainer
# leaves channels where they are, as the sources of ResNet-50 with 833 and 856 a second and of YOLOv5-L did.
HALF_REACHED: Final[Mapping[str, float]] = {"transformer": 0.51, "convolution": 0.255, "depthwise": 0.255}
# BERT-large in fp32; convolutions in fp32 by no rate at hand (assumed).
SINGLE_REACHED: Final[Mapping[str, float]] = {"transformer": 0.50, "convolution": 0.60, "depthwise": 0.60}
# In fp32, Winograd's F(2x2, 3x3) needs 16 products for 36, and some sums more (Lavin and Gray, arXiv 1509.09308).
WINOGRAD: Final = 2.0
# Share of the memory's rate: STREAM on a V100 reaches 700 to 790 of 900 GB/s; depthwise kernels by EfficientNet-B0
# (0.35), which has its channels last, over the 1180 / 856 that this gained ResNet-50.
MEMORY_REACHED: Final[Mapping[str, float]] = {"transformer": 0.78, "convolution": 0.78, "depthwise": 0.255}
MEMORY_PASSES: Final = (2.0, 3.0)  # a kept value is written and read forward, read and its gradient moved backward
RAMP_SECONDS: Final = 6e-6  # a kernel fills and drains the device: it reaches its rate only if it is long
# PyTorch starts an operation in 5 to 10 us; the process cannot run ahead for ever.
LAUNCH_SECONDS: Final = 8e-6
BACKWARD_OPERATIONS: Final = 2.0  # kernels backward for each forward
COMPILED_OPERATIONS, COMPILED_BYTES = 0.45, 0.75  # assumed: fused kernels are fewer and keep less
# Of a core's vector units and of the host's memory, by the steps measured on four cores.
CPU_REACHED: Final[Mapping[str, float]] = {"transformer": 0.37, "convolution": 0.38, "depthwise": 0.15}
CPU_MEMORY_REACHED: Final = 0.5
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
HOST_LANES: Final = 96  # of two Xeon sockets: 48 each (Intel Xeon Scalable data sheet), of the generation of its links
NETWORK_RATE: Final = 12.0 * GB  # between hosts: NCCL's figure for 100 Gb/s (assumed: nobody states the network's)
# NCCL's own latencies of its simple protocol: of a collective, and of each of its 2 (n - 1) hops (src/graph/tuning.cc).
COLLECTIVE_SECONDS: Final = 8.4e-6
HOP_SECONDS: Final[Mapping[str, float]] = {"nvlink": 3.4e-6, "pcie": 5.7e-6, "network": 6.6e-6, "loopback": 100e-6}
# Streaming multiprocessors that communication kernels hold, of a V100's 80: channels over PCIe and over NVLink.
CHANNEL_SHARE: Final[Mapping[str, float]] = {"nvlink": 12 / 80, "pcie": 4 / 80, "network": 4 / 80, "loopback": 0.0}
RING_TOUCHES: Final = 3.0  # accesses of memory for each byte that a ring moves: read both summands, write the sum
# Host memory to device: pinned memory reaches what packets leave; copies wait for nothing else.
# DP: in each step one interpreter copies the tree of modules for each device, and starts all forward passes, in threads
# that wait for its lock (assumed: of a module, of an operation with its module and autocast).
REPLICA_SECONDS, INTERPRETER_SECONDS = 40e-6, 25e-6

# --- Input. Pillow takes 1.6 ms of a current server's core for an image of ImageNet (0.9 to decode 103 kB, 0.7 to crop,
# resize and normalise), measured; a core of 2017 three times as long (assumed). 40 of them would feed 8300 images a
# second; the published host fed 3268 with unknown cores.
IMAGE_SECONDS: Final = 4.8e-3  # of 224 x 224
IMAGE_PIXELS: Final = 224.0**2
SCENE_SECONDS: Final = 27e-3  # of 640 x 640: four images of COCO are decoded into one, which is warped
SCENE_PIXELS: Final = 640.0**2
TOKEN_SECONDS: Final = 2e-4 / 384  # of a core for one token: look up and collate (assumed)
SAMPLE_SPREAD: Final = 0.5  # relative, of the cost of one sample (file sizes of ImageNet)
PREFETCHED: Final = 2  # batches that a loader's process prepares ahead (PyTorch's prefetch_factor)
READ_REACHED: Final = 0.7  # of a drive's sequential rate by reads of files
SAVE_RATE: Final = 1.0 * GB  # at which one process writes out weights and moments, on any drive (assumed)
# Files of a data set that the trainer generates, where a run names no number, and its part for validation.
USUAL_SAMPLES, VALIDATION_SHARE = 4096, 8

# --- Meters. Seven bytes a parameter and device of a ring of eight, and samples once (the project's design notes): the
# ports of a chassis are taken to count a byte of the exchange once, not where it leaves and where it arrives.
COUNTED_EXCHANGE: Final = 0.5
