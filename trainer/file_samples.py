"""Samples from the files of a data set: decoded, augmented and ordered as a loader's processes do it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trainer.data_sets import StoredDataSet
from trainer.processes import die_with_parent
from trainer.workloads import Sample

Place = tuple[int, int]  # number of a sample; epoch, VALIDATION for one that is not augmented
VALIDATION: Final = -1
# Of ImageNet, as everyone normalises with them.
MEAN: Final = np.array((0.485, 0.456, 0.406), np.float32)
DEVIATION: Final = np.array((0.229, 0.224, 0.225), np.float32)
CROP_SHARE: Final = (0.25, 1.0)  # of the area of a picture that a crop shows
CROP_RATIO: Final = (3 / 4, 4 / 3)
RESIZE_SHARE: Final = 0.875  # of the shorter side that the middle crop of a validation shows
BRIGHTNESS: Final = (0.8, 1.2)


@dataclass(kw_only=True, eq=False)
class FileSamples(Dataset[Sample]):
    """Samples of a data set by their number and epoch: the same for the same seed, whichever process prepares them."""

    data: StoredDataSet
    seed: int

    def __getitem__(self, place: Place) -> Sample:
        number, epoch = place
        random = None if epoch == VALIDATION else np.random.default_rng((self.seed, epoch, number))
        content, label = self.data.read(number), self.data.labels[number]
        match self.data.manifest.kind:
            case "texts":
                return _text(content, label)
            case "digits":
                return _digit(content, label)
            case "scenes":
                return _scene(content, label, self.data.manifest.sizes["image"], random)
            case "images":
                return _image(content, label, self.data.manifest.sizes["image"], random)


def _image(content: bytes, label: Any, side: int, random: np.random.Generator | None) -> Sample:
    """Decode a picture; show a random part of it, maybe mirrored, or for validation its middle."""
    with Image.open(io.BytesIO(content)) as file:
        picture = file.convert("RGB")
    width, height = picture.size
    if random is None:
        wide = high = RESIZE_SHARE * min(width, height)
        left, top = (width - wide) / 2, (height - high) / 2
    else:
        area = width * height * random.uniform(*CROP_SHARE)
        ratio = np.exp(random.uniform(*np.log(CROP_RATIO)))
        wide, high = min(width, (area * ratio) ** 0.5), min(height, (area / ratio) ** 0.5)
        left, top = random.uniform(0, width - wide), random.uniform(0, height - high)
    box = (left, top, min(width, left + wide), min(height, top + high))
    values = np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR, box=box))
    if random is not None and random.random() < 0.5:
        values = values[:, ::-1]
    return (_normalised(values),), (torch.tensor(int(label)),)


def _scene(content: bytes, label: Any, side: int, random: np.random.Generator | None) -> Sample:
    """Decode a picture and fit it into a square; for training maybe mirrored, and lighter or darker."""
    with Image.open(io.BytesIO(content)) as file:
        picture = file.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    values, boxes = np.asarray(picture), np.array(label, np.float32)
    if random is not None:
        values = (values * random.uniform(*BRIGHTNESS)).clip(0, 255)
        if random.random() < 0.5:
            values = values[:, ::-1]
            boxes[:, 1] = 1 - boxes[:, 1]
    return (_normalised(values),), (torch.from_numpy(boxes),)


def _digit(content: bytes, label: Any) -> Sample:
    with Image.open(io.BytesIO(content)) as file:
        values = np.asarray(file, np.float32) / 255
    return (torch.from_numpy(values)[None],), (torch.tensor(int(label)),)


def _text(content: bytes, label: Any) -> Sample:
    tokens = torch.from_numpy(np.frombuffer(content, "<u4").astype(np.int64))
    kinds = (torch.arange(len(tokens)) >= len(tokens) // 6).long()
    return (tokens, torch.ones_like(tokens), kinds), (torch.tensor(int(label[0])), torch.tensor(int(label[1])))


def _normalised(values: np.ndarray[Any, Any]) -> Tensor:
    """Return a picture [row, column, colour] of bytes as floats [colour, row, column] around 0."""
    scaled = (values.astype(np.float32) / 255 - MEAN) / DEVIATION
    return torch.from_numpy(np.ascontiguousarray(scaled.transpose(2, 0, 1)))


@dataclass(kw_only=True)
class EpochOrder:
    """The batches of one process: endless epochs over `count` samples, each in an order of its own.

    All processes go through one sequence of samples together, of which each takes its part of every batch. `consumed`
    is how many of it were taken before: another number of processes goes on from there.
    """

    count: int
    batch: int
    rank: int
    world: int
    seed: int
    consumed: int = 0

    def __iter__(self) -> Iterator[list[Place]]:
        current, order = -1, np.zeros(0, np.int64)
        at = self.consumed + self.rank * self.batch
        while True:
            places = []
            for place in range(at, at + self.batch):
                epoch, index = divmod(place, self.count)
                if epoch != current:
                    current, order = epoch, np.random.default_rng((self.seed, epoch)).permutation(self.count)
                places.append((int(order[index]), epoch))
            yield places
            at += self.batch * self.world


def validation_batches(data: StoredDataSet, *, batch: int, rank: int, world: int) -> list[list[Place]]:
    """Return the batches of a process over the samples for validation: as many as each other process has.

    The last ones begin anew where the samples do not suffice for whole batches.
    """
    first, count = data.manifest.samples, data.manifest.validation
    rounds = -(-count // (batch * world))
    return [
        [(first + (start + step) % count, VALIDATION) for step in range(batch)]
        for start in ((number * world + rank) * batch for number in range(rounds))
    ]


def file_loader(
    samples: FileSamples, places: Iterable[list[Place]], *, workers: int, pinned: bool
) -> DataLoader[Sample]:
    """Return a loader of these batches, prepared by `workers` processes, or by this process if 0."""
    return DataLoader(
        samples,
        batch_sampler=places,
        num_workers=workers,
        pin_memory=pinned,
        worker_init_fn=_begin_loader if workers else None,
    )


def _begin_loader(_number: int) -> None:
    """End with the process that trains, and compute with one thread: the other loaders have the other cores."""
    die_with_parent()
    torch.set_num_threads(1)
