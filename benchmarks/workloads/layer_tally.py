"""Sums over the layers of a network: parameters, products, values that are kept, kernels. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.workloads.definitions import Costs, LayerCosts

FLOAT_BYTES = 4.0  # bytes of a value in fp32
# A training step computes each layer three times: forward, the gradient by its input, the gradient by its weights.
COMPUTE_PASSES = 3.0


@dataclass
class LayerTally:
    """A running sum over the layers of one network: `side` is that of the square maps where the next layer begins.

    `kept` counts values that the backward pass needs, `operations` the kernels of a forward pass, `casts` those that
    autocast adds: it converts each weight and bias of convolutions and dense layers, and the input of the latter.
    """

    side: int
    channels: int
    parameters: float = 0.0
    products: float = 0.0
    winograd: float = 0.0  # of these products, those of 3x3 convolutions with stride 1
    kept: float = 0.0
    operations: int = 0
    casts: int = 0
    tensors: int = 0  # of parameters
    ends: list[tuple[float, float, float, float, int]] = field(default_factory=lambda: [(0.0, 0.0, 0.0, 0.0, 0)])

    def _end_layer(self) -> None:
        """Note the sums at the end of a layer."""
        self.ends.append((self.parameters, self.products, self.winograd, self.kept, self.operations))

    def convolution(
        self, channels: int, kernel: int, stride: int = 1, *, groups: int = 1, normed: bool = True, kept: int = 2
    ) -> None:
        """Add a convolution with padding: with normalisation it has no bias.

        `kept` tensors of its output's size are needed backwards: the inputs of the normalisation and of the next layer,
        and the input of a smooth activation such as SiLU.
        """
        self.side = math.ceil(self.side / stride)
        weights = kernel * kernel * self.channels / groups * channels
        self.parameters += weights + (2 * channels if normed else channels)
        self.products += weights * self.side**2
        if kernel == 3 and stride == 1 and groups == 1:
            self.winograd += weights * self.side**2
        self.kept += kept * channels * self.side**2
        self.operations += 3 if normed else 2
        self.casts += 1 if normed else 2
        self.tensors += 3 if normed else 2
        self.channels = channels
        self._end_layer()

    def pool(self, kernel: int = 2, *, padded: bool = False) -> None:
        """Add a pooling layer that halves the side, with padding or without, and keeps the positions of its maxima.

        A maximum's place is an index of 8 bytes.
        """
        self.side = math.ceil(self.side / 2) if padded else max(1, (self.side - kernel) // 2 + 1)
        self.kept += 3 * self.channels * self.side**2
        self.operations += 1

    def dense(self, inputs: float, outputs: float, *, kept: float = 1.0) -> None:
        """Add a fully connected layer with bias."""
        self.parameters += inputs * outputs + outputs
        self.products += inputs * outputs
        self.kept += kept * outputs
        self.operations += 2
        self.casts += 3
        self.tensors += 2
        self._end_layer()

    def costs(self, *, input_bytes: float, device_bytes: float) -> Costs:
        """Return the costs of one sample."""
        return Costs(
            parameters=self.parameters,
            flops=2 * COMPUTE_PASSES * self.products,
            activation_bytes=FLOAT_BYTES * self.kept,
            input_bytes=input_bytes,
            device_bytes=device_bytes,
            operations=self.operations,
            casts=self.casts,
            tensors=self.tensors,
            layers=tuple(
                LayerCosts(
                    parameters=after[0] - before[0],
                    flops=2 * COMPUTE_PASSES * (after[1] - before[1]),
                    winograd_flops=2 * COMPUTE_PASSES * (after[2] - before[2]),
                    activation_bytes=FLOAT_BYTES * (after[3] - before[3]),
                    operations=after[4] - before[4],
                )
                for before, after in pairwise(self.ends)
            ),
            winograd_share=self.winograd / self.products,
        )


class YoloTally(LayerTally):
    """A tally with the blocks of YOLOv5; its SiLU keeps its input."""

    def conv(self, channels: int, kernel: int = 1, stride: int = 1) -> None:
        self.convolution(channels, kernel, stride, kept=3)

    def csp(self, channels: int, count: int) -> None:
        """Add three 1x1 convolutions around `count` bottlenecks of half the channels."""
        inputs, half = self.channels, channels // 2
        self.conv(half)
        for _ in range(count):
            self.conv(half)
            self.conv(half, 3)
        self.channels = inputs
        self.conv(half)
        self.channels = 2 * half
        self.conv(channels)


class InceptionTally(LayerTally):
    """A tally of convolutions without padding where they have stride 2, and of branches over the same maps."""

    width: float = 1.0

    def conv(self, channels: int, high: int = 1, across: int = 1, stride: int = 1, *, padded: bool = True) -> None:
        side = self.side if padded and stride == 1 else (self.side - high) // stride + 1
        channels = max(1, round(channels * self.width))
        weights = high * across * self.channels * channels
        self.parameters += weights + 2 * channels
        self.products += weights * side**2
        if high == across == 3 and stride == 1:
            self.winograd += weights * side**2
        self.kept += 2 * channels * side**2
        self.operations += 3
        self.side, self.channels = side, channels
        self._end_layer()

    def branches(self, *branches: tuple[tuple[int, ...], ...], pool: int = 0, thinned: bool = False) -> None:
        """Add branches of convolutions (channels, height, width, stride), and a pooling before one of `pool` channels.

        The last layers of a branch may be two over the same maps: the channels of the first are negative.
        `thinned`: a pooling with stride 2 is a branch, too.
        """
        inputs, side, joined = self.channels, self.side, 0
        for branch in (*branches, *([((pool,),)] if pool else [])):
            self.channels, self.side = inputs, side
            for channels, *kernel in branch:
                before = self.channels
                self.conv(abs(channels), *kernel)
                if channels < 0:
                    joined, self.channels = joined + self.channels, before
            joined += self.channels
        if thinned:
            joined += inputs
            self.kept += 3 * inputs * self.side**2
        self.channels = joined
