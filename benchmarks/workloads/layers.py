"""Counts parameters, arithmetic and kept activations of a network, layer by layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.workloads.shapes import Costs

FLOAT = 4.0  # bytes of a value in fp32
# A training step computes each layer three times: forward, the gradient by its input, the gradient by its weights.
PASSES = 3.0


@dataclass
class Tally:
    """A running sum over the layers of one network: `side` is that of the square maps where the next layer begins.

    `kept` counts values that the backward pass needs, `operations` the kernels of a forward pass.
    """

    side: int
    channels: int
    parameters: float = 0.0
    products: float = 0.0
    kept: float = 0.0
    operations: int = 0

    def convolution(
        self, channels: int, kernel: int, stride: int = 1, *, groups: int = 1, normed: bool = True, kept: int = 2
    ) -> None:
        """Add a convolution with padding: with normalisation it has no bias.

        `kept` tensors of its output's size are needed backwards: what the normalisation reads and what the next layer
        reads; a smooth activation such as SiLU keeps what it reads as well.
        """
        self.side = math.ceil(self.side / stride)
        weights = kernel * kernel * self.channels / groups * channels
        self.parameters += weights + (2 * channels if normed else channels)
        self.products += weights * self.side**2
        self.kept += kept * channels * self.side**2
        self.operations += 3 if normed else 2
        self.channels = channels

    def pool(self, kernel: int = 2, *, padded: bool = False) -> None:
        """Add a pooling layer that halves the side, with padding or without, and keeps where its maxima lay.

        A maximum's place is an index of 8 bytes.
        """
        self.side = math.ceil(self.side / 2) if padded else max(1, (self.side - kernel) // 2 + 1)
        self.kept += 3 * self.channels * self.side**2
        self.operations += 1

    def dense(self, inputs: float, outputs: float, rows: float = 1.0, *, kept: float = 1.0) -> None:
        """Add a fully connected layer with bias, applied to `rows` vectors."""
        self.parameters += inputs * outputs + outputs
        self.products += inputs * outputs * rows
        self.kept += kept * outputs * rows
        self.operations += 2

    def costs(self, *, input_bytes: float, device_bytes: float, late: float = 0.0) -> Costs:
        """Return the costs of one sample; `late` counts parameters whose gradients come as the backward pass ends."""
        return Costs(
            parameters=self.parameters,
            flops=2 * PASSES * self.products,
            activation_bytes=FLOAT * self.kept,
            input_bytes=input_bytes,
            device_bytes=device_bytes,
            late_share=late / self.parameters,
            operations=self.operations,
        )


def rounded(channels: float, divisor: int = 8) -> int:
    """Return a scaled number of channels as a multiple of `divisor`, nearest, and at least 90 % of what was asked."""
    near = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return near + divisor if near < 0.9 * channels else near
