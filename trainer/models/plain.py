"""Convolutional classifiers without normalisation: AlexNet, VGG-16 and a small one for digits."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn


class Classifier(nn.Module):
    """Features of an image, pooled to `side` x `side`, then dense layers."""

    def __init__(self, features: list[nn.Module], side: int, dense: list[nn.Module]) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.pool = nn.AdaptiveAvgPool2d(side) if side else nn.Identity()
        self.dense = nn.Sequential(nn.Flatten(), *dense)

    def forward(self, images: Tensor) -> Tensor:
        """Return a logit for each image and class."""
        logits: Tensor = self.dense(self.pool(self.features(images)))
        return logits


def _head(inputs: int, hidden: int, classes: int) -> list[nn.Module]:
    return [
        nn.Dropout(),
        nn.Linear(inputs, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, classes),
    ]


def alexnet(*, classes: int = 1000, width: float = 1.0) -> nn.Module:
    """Return AlexNet in one tower: five convolutions, three dense layers; 61 million parameters at full size."""

    def wide(channels: int) -> int:
        return max(1, round(channels * width))

    pool = nn.MaxPool2d(3, 2)
    features: list[nn.Module] = [nn.Conv2d(3, wide(64), 11, 4, 2), nn.ReLU(inplace=True), pool]
    features += [nn.Conv2d(wide(64), wide(192), 5, padding=2), nn.ReLU(inplace=True), pool]
    for before, channels in ((192, 384), (384, 256), (256, 256)):
        features += [nn.Conv2d(wide(before), wide(channels), 3, padding=1), nn.ReLU(inplace=True)]
    return Classifier([*features, pool], 6, _head(wide(256) * 36, wide(4096), classes))


def vgg16(*, classes: int = 1000, width: float = 1.0) -> nn.Module:
    """Return VGG-16: thirteen convolutions, three dense layers; 138 million parameters at full size."""

    def wide(channels: int) -> int:
        return max(1, round(channels * width))

    def layers() -> Iterator[nn.Module]:
        before = 3
        for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                yield nn.Conv2d(before, wide(channels), 3, padding=1)
                yield nn.ReLU(inplace=True)
                before = wide(channels)
            yield nn.MaxPool2d(2, 2)

    return Classifier(list(layers()), 7, _head(wide(512) * 49, wide(4096), classes))


def mnist_cnn(*, image: int = 28, classes: int = 10) -> nn.Module:
    """Return two convolutions and two dense layers for grey images."""
    return Classifier(
        [
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        ],
        0,
        [nn.Linear(64 * (image // 4) ** 2, 128), nn.ReLU(inplace=True), nn.Linear(128, classes)],
    )
