"""Samples made up on the spot: the shapes and sizes of real data sets, drawn from a seed.

Images lie as bytes in memory or on the drive that was chosen, a stock of them, and are made into normalised floats one
by one when they are asked for, as a loader does with decoded files. In memory, the same seed and process draw the same
samples.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trainer.parent import die_with_parent
from trainer.stock import stock_of

Sample = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]  # inputs of the model; what it should find
BOXES = 8  # objects in an image
# Digits as rows of five dots.
_DIGITS = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00110 01000 10000 11111",
    "01110 10001 00001 00110 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)


def _drawing(seed: int, rank: int, index: int) -> torch.Generator:
    return torch.Generator().manual_seed(((seed * 4099 + rank) * 1_000_003 + index) % 2**62)


class Images(Dataset[Sample]):
    """Random pixels with a class."""

    def __init__(self, *, length: int, image: int, classes: int, seed: int, rank: int) -> None:
        self.length, self.classes, self.seed, self.rank = length, classes, seed, rank
        self.stock = stock_of((3, image, image), length=length, rank=rank, generator=_drawing(seed, rank, 0))

    def __len__(self) -> int:
        return self.length

    def pixels(self, index: int) -> Tensor:
        """Return an image as floats around 0."""
        return self.stock.read(index).float().div_(127.5).sub_(1.0)

    def __getitem__(self, index: int) -> Sample:
        wanted = torch.randint(self.classes, (), generator=_drawing(self.seed, self.rank, index + 1))
        return (self.pixels(index),), (wanted,)


class Scenes(Images):
    """Random pixels with objects: class, centre, width and height as shares of the side."""

    def __getitem__(self, index: int) -> Sample:
        drawing = _drawing(self.seed, self.rank, index + 1)
        kinds = torch.randint(self.classes, (BOXES, 1), generator=drawing).float()
        centres = torch.rand((BOXES, 2), generator=drawing) * 0.8 + 0.1
        sides = torch.rand((BOXES, 2), generator=drawing) * 0.4 + 0.05
        return (self.pixels(index),), (torch.cat((kinds, centres, sides), 1),)


class Digits(Dataset[Sample]):
    """Grey images of digits, drawn at random places with noise."""

    def __init__(self, *, length: int, image: int, classes: int, seed: int, rank: int) -> None:
        self.length, self.image, self.classes, self.seed, self.rank = length, image, classes, seed, rank
        rows = [[[float(dot) for dot in row] for row in digit.split()] for digit in _DIGITS]
        scale = max(1, image // 12)
        self.glyphs = torch.tensor(rows).repeat_interleave(scale, 1).repeat_interleave(scale, 2)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        drawing = _drawing(self.seed, self.rank, index)
        digit = int(torch.randint(min(10, self.classes), (), generator=drawing))
        picture = torch.rand((1, self.image, self.image), generator=drawing) * 0.3
        height, width = self.glyphs.shape[1:]
        top = int(torch.randint(self.image - height + 1, (), generator=drawing))
        left = int(torch.randint(self.image - width + 1, (), generator=drawing))
        picture[0, top : top + height, left : left + width] += self.glyphs[digit] * 0.7
        return (picture,), (torch.tensor(digit),)


class Questions(Dataset[Sample]):
    """Random tokens: a question, a text, and where the answer begins and ends in it."""

    def __init__(self, *, length: int, sequence: int, vocabulary: int, seed: int, rank: int) -> None:
        self.length, self.sequence, self.vocabulary, self.seed, self.rank = length, sequence, vocabulary, seed, rank

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        drawing = _drawing(self.seed, self.rank, index)
        tokens = torch.randint(self.vocabulary, (self.sequence,), generator=drawing)
        kinds = (torch.arange(self.sequence) >= self.sequence // 6).long()
        places = torch.randint(self.sequence // 6, self.sequence, (2,), generator=drawing).sort().values
        return (tokens, torch.ones_like(tokens), kinds), (places[0], places[1])


def _begin_worker(_number: int) -> None:
    die_with_parent()


def batches(samples: Dataset[Sample], *, batch: int, workers: int, seed: int, pinned: bool) -> Iterator[Sample]:
    """Return the batches of all samples in order, prepared by `workers` processes, or by this one if 0."""
    loader = DataLoader(
        samples,
        batch_size=batch,
        num_workers=workers,
        pin_memory=pinned,
        drop_last=True,
        worker_init_fn=_begin_worker if workers else None,
        generator=torch.Generator().manual_seed(seed),
    )
    return iter(loader)
