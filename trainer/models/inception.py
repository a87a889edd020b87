"""Inception v3: parallel convolutions of several sizes, joined; and an auxiliary classifier half way in training."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.models.networks import Classifier

# A layer: channels, height and width of the kernel, stride. With stride 2 it has no padding.
Layer = tuple[int, int, int, int]
DROPOUT = 0.5
AUXILIARY_WEIGHT = 0.3  # of the loss of the auxiliary classifier, as in GoogLeNet


class Normalised(nn.Sequential):
    """A convolution, normalised, then ReLU."""

    def __init__(
        self, inputs: int, outputs: int, kernel: tuple[int, int], *, stride: int = 1, padded: bool = True
    ) -> None:
        padding = (kernel[0] // 2, kernel[1] // 2) if padded else 0
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
            nn.BatchNorm2d(outputs, eps=1e-3),
            nn.ReLU(inplace=True),
        )


class Branches(nn.Module):
    """Branches over the same features, whose channels are joined."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        for number, branch in enumerate(branches):
            self.add_module(f"branch{number}", branch)

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([branch(features) for branch in self.children()], 1)


class InceptionV3(nn.Module):
    """The network: images of 75 pixels or more, to logits, in training with those of the auxiliary classifier."""

    def __init__(self, *, classes: int = 1000, width: float = 1.0) -> None:
        super().__init__()

        def wide(channels: int) -> int:
            return max(1, round(channels * width))

        def chain(inputs: int, *layers: Layer) -> nn.Sequential:
            made = []
            for channels, high, across, stride in layers:
                kernel = (high, across)
                made.append(Normalised(inputs, wide(channels), kernel, stride=stride, padded=stride == 1))
                inputs = wide(channels)
            return nn.Sequential(*made)

        def pooled(inputs: int, channels: int) -> nn.Sequential:
            return nn.Sequential(nn.AvgPool2d(3, 1, 1), chain(inputs, (channels, 1, 1, 1)))

        def fine(inputs: int, pool: int) -> Branches:
            return Branches(
                chain(inputs, (64, 1, 1, 1)),
                chain(inputs, (48, 1, 1, 1), (64, 5, 5, 1)),
                chain(inputs, (64, 1, 1, 1), (96, 3, 3, 1), (96, 3, 3, 1)),
                pooled(inputs, pool),
            )

        def long(inputs: int, inner: int) -> Branches:
            """Return a block whose kernels of seven are one row or one column."""
            row, column = (inner, 1, 7, 1), (inner, 7, 1, 1)
            return Branches(
                chain(inputs, (192, 1, 1, 1)),
                chain(inputs, (inner, 1, 1, 1), row, (192, 7, 1, 1)),
                chain(inputs, (inner, 1, 1, 1), column, row, column, (192, 1, 7, 1)),
                pooled(inputs, 192),
            )

        def forked(inputs: int, *layers: Layer) -> nn.Sequential:
            """Return a branch that ends in a row and a column of three, joined."""
            last = wide(layers[-1][0])
            return nn.Sequential(
                chain(inputs, *layers), Branches(chain(last, (384, 1, 3, 1)), chain(last, (384, 3, 1, 1)))
            )

        def coarse(inputs: int) -> Branches:
            return Branches(
                chain(inputs, (320, 1, 1, 1)),
                forked(inputs, (384, 1, 1, 1)),
                forked(inputs, (448, 1, 1, 1), (384, 3, 3, 1)),
                pooled(inputs, 192),
            )

        first = wide(64) + wide(64) + wide(96)
        middle, last = wide(384) + wide(96) + first + wide(64), 4 * wide(192)
        joined = wide(320) + wide(192) + last
        ending = wide(320) + 4 * wide(384) + wide(192)
        self.early = nn.Sequential(
            chain(3, (32, 3, 3, 2)),
            Normalised(wide(32), wide(32), (3, 3), padded=False),
            chain(wide(32), (64, 3, 3, 1)),
            nn.MaxPool2d(3, 2),
            chain(wide(64), (80, 1, 1, 1)),
            Normalised(wide(80), wide(192), (3, 3), padded=False),
            nn.MaxPool2d(3, 2),
            fine(wide(192), 32),
            fine(first + wide(32), 64),
            fine(first + wide(64), 64),
            Branches(
                chain(first + wide(64), (384, 3, 3, 2)),
                chain(first + wide(64), (64, 1, 1, 1), (96, 3, 3, 1), (96, 3, 3, 2)),
                nn.MaxPool2d(3, 2),
            ),
            long(middle, 128),
            *(long(last, inner) for inner in (160, 160, 192)),
        )
        self.late = Classifier(
            [
                Branches(
                    chain(last, (192, 1, 1, 1), (320, 3, 3, 2)),
                    chain(last, (192, 1, 1, 1), (192, 1, 7, 1), (192, 7, 1, 1), (192, 3, 3, 2)),
                    nn.MaxPool2d(3, 2),
                ),
                coarse(joined),
                coarse(ending),
            ],
            1,
            [nn.Dropout(DROPOUT), nn.Linear(ending, classes)],
        )
        # Pooled to 5 x 5 as the published pooling leaves of 299 pixels, whatever the size.
        self.auxiliary = Classifier(
            [
                nn.AdaptiveAvgPool2d(5),
                chain(last, (128, 1, 1, 1)),
                Normalised(wide(128), wide(768), (5, 5), padded=False),
            ],
            1,
            [nn.Linear(wide(768), classes)],
        )

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Return logits; in training also those of the auxiliary classifier."""
        features = self.early(images)
        logits: Tensor = self.late(features)
        return (logits, self.auxiliary(features)) if self.training else logits


def classes_loss(outputs: Tensor | tuple[Tensor, Tensor], targets: tuple[Tensor, ...]) -> Tensor:
    """Return the loss of logits, and in training a part of that of the auxiliary classifier."""
    if isinstance(outputs, Tensor):
        return functional.cross_entropy(outputs.float(), targets[0])
    loss, auxiliary = (functional.cross_entropy(part.float(), targets[0]) for part in outputs)
    return loss + AUXILIARY_WEIGHT * auxiliary
