"""The training workloads: model, samples, loss and optimiser.

Images are stored as bytes in memory or on the chosen drive, and each is converted to normalised floats on access, as a
loader does with decoded files. In memory, the same seed and process generate the same samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from hostwire.training import Spec
from trainer.models.inception import InceptionV3, classes_loss
from trainer.models.networks import alexnet, bert, mnist_cnn, mobilenet_v2, resnet50, vgg16
from trainer.models.yolo import Yolo, detection_loss
from trainer.processes import die_with_parent
from trainer.reporting import RunRefused
from trainer.storage import sample_source

if TYPE_CHECKING:
    from trainer.data_sets import Kind  # needs NumPy, which runs without files do not

Loss = Callable[[Any, tuple[Tensor, ...]], Tensor]


@dataclass(frozen=True, kw_only=True)
class TrainingTask:
    """A training workload: `samples` generates the samples of a process, `loss` compares outputs and targets.

    `files` is the data set that it reads instead, of these `sizes`. `score` is the mean of `measure` over a batch, 0 to
    1, None for a workload of which only the loss is known.
    """

    model: Callable[[], nn.Module]
    samples: Callable[[int, int], Dataset[Sample]]  # how many, for which process
    loss: Loss
    optimiser: Callable[[nn.Module], torch.optim.Optimizer]
    files: Kind
    sizes: dict[str, int]
    measure: str = ""
    score: Loss | None = None


def training_task(spec: Spec) -> TrainingTask:
    """Return the task of a spec's workload. Raises RunRefused for an unknown one."""
    try:
        make = _TASKS[spec.workload]
    except KeyError:
        raise RunRefused(f"The trainer has no workload '{spec.workload}'; it has {', '.join(_TASKS)}.") from None
    return make(spec)


def _sgd(spec: Spec) -> Callable[[nn.Module], torch.optim.Optimizer]:
    # Nothing is to be learnt from noise; a network without normalisation that sees drawn digits needs a higher rate.
    rate = 1e-3 if spec.data == "random" else 5e-2 if spec.workload == "mnist_cnn" else 1e-2
    return lambda model: torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)


def _answer_loss(outputs: Any, targets: tuple[Tensor, ...]) -> Tensor:
    first, last = outputs
    return (
        functional.cross_entropy(first.float(), targets[0]) + functional.cross_entropy(last.float(), targets[1])
    ) / 2


def _answer_f1(outputs: Any, targets: tuple[Tensor, ...]) -> Tensor:
    """Return the mean F1 of answers: tokens between the likeliest first and last one, against those of the target."""
    first, last = (part.argmax(1) for part in outputs)
    shared = (torch.minimum(last, targets[1]) - torch.maximum(first, targets[0]) + 1).clamp(min=0)
    score: Tensor = (2 * shared / ((last - first + 1).clamp(min=0) + targets[1] - targets[0] + 1)).mean()
    return score


def _options(spec: Spec, **defaults: float) -> dict[str, Any]:
    """Return the values of these options, each of the type of its default."""
    return {name: type(default)(spec.options.get(name, default)) for name, default in defaults.items()}


# The networks that classify images, with the options that they take.
_CLASSIFIERS: dict[str, tuple[Callable[..., nn.Module], dict[str, float]]] = {
    "mobilenet_v2": (mobilenet_v2, {"image": 224, "classes": 1000, "width": 1.0}),
    "resnet50": (resnet50, {"classes": 1000, "width": 1.0}),
    "inception_v3": (InceptionV3, {"classes": 1000, "width": 1.0}),
    "alexnet": (alexnet, {"classes": 1000, "width": 1.0}),
    "vgg16": (vgg16, {"classes": 1000, "width": 1.0}),
    "mnist_cnn": (mnist_cnn, {"image": 28, "classes": 10}),
}


def _classification(spec: Spec) -> TrainingTask:
    network, defaults = _CLASSIFIERS[spec.workload]
    sizes = _options(spec, **{"image": 224, **defaults})
    is_digits = spec.workload == "mnist_cnn"
    kind = DigitDataset if is_digits else ImageDataset
    return TrainingTask(
        model=lambda: network(**{name: sizes[name] for name in defaults}),
        samples=lambda length, rank: kind(
            length=length, image=sizes["image"], classes=sizes["classes"], seed=spec.seed, rank=rank
        ),
        loss=classes_loss,
        optimiser=_sgd(spec),
        files="digits" if is_digits else "images",
        sizes={name: sizes[name] for name in ("image", "classes")},
        measure="accuracy",
        score=lambda outputs, targets: (outputs.argmax(1) == targets[0]).float().mean(),
    )


def _yolov5l(spec: Spec) -> TrainingTask:
    sizes = _options(spec, classes=80, width=1.0, depth=1.0)
    image = _options(spec, image=640)
    return TrainingTask(
        model=lambda: Yolo(**sizes),
        samples=lambda length, rank: SceneDataset(
            length=length, classes=sizes["classes"], seed=spec.seed, rank=rank, **image
        ),
        loss=lambda outputs, targets: detection_loss(outputs, targets[0]),
        optimiser=_sgd(spec),
        files="scenes",
        sizes={**image, "classes": sizes["classes"]},
    )


def _bert(spec: Spec, *, layers: int, hidden: int, heads: int) -> TrainingTask:
    sizes = _options(spec, layers=layers, hidden=hidden, heads=heads, vocabulary=30522, sequence=384)
    return TrainingTask(
        model=lambda: bert(**sizes),
        samples=lambda length, rank: QuestionDataset(
            length=length, sequence=sizes["sequence"], vocabulary=sizes["vocabulary"], seed=spec.seed, rank=rank
        ),
        loss=_answer_loss,
        optimiser=lambda model: torch.optim.AdamW(model.parameters(), lr=3e-5 if spec.data == "random" else 1e-4),
        files="texts",
        sizes={name: sizes[name] for name in ("sequence", "vocabulary")},
        measure="f1",
        score=_answer_f1,
    )


_TASKS: dict[str, Callable[[Spec], TrainingTask]] = {
    **dict.fromkeys(_CLASSIFIERS, _classification),
    "yolov5l": _yolov5l,
    "bert_base": lambda spec: _bert(spec, layers=12, hidden=768, heads=12),
    "bert_large": lambda spec: _bert(spec, layers=24, hidden=1024, heads=16),
}

Sample = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]  # inputs of the model; targets
BOXES_A_SCENE = 8  # objects in an image
# Digits as rows of five dots.
DIGITS = (
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


@dataclass(kw_only=True, eq=False)
class GeneratedDataset(Dataset[Sample]):
    """`length` samples of the process `rank`, the same for the same seed."""

    length: int
    seed: int
    rank: int

    def __len__(self) -> int:
        return self.length

    def generator(self, index: int) -> torch.Generator:
        """Return the random numbers of a sample."""
        return torch.Generator().manual_seed(((self.seed * 4099 + self.rank) * 1_000_003 + index) % 2**62)


@dataclass(kw_only=True, eq=False)
class ImageDataset(GeneratedDataset):
    """Random pixels with a class."""

    image: int
    classes: int

    def __post_init__(self) -> None:
        shape = (3, self.image, self.image)
        self.source = sample_source(shape, length=self.length, rank=self.rank, generator=self.generator(0))

    def pixels(self, index: int) -> Tensor:
        """Return an image as floats around 0."""
        return self.source.read(index).float().div_(127.5).sub_(1.0)

    def __getitem__(self, index: int) -> Sample:
        target = torch.randint(self.classes, (), generator=self.generator(index + 1))
        return (self.pixels(index),), (target,)


class SceneDataset(ImageDataset):
    """Random pixels with objects: class, centre, width and height as shares of the side."""

    def __getitem__(self, index: int) -> Sample:
        drawing = self.generator(index + 1)
        kinds = torch.randint(self.classes, (BOXES_A_SCENE, 1), generator=drawing).float()
        centres = torch.rand((BOXES_A_SCENE, 2), generator=drawing) * 0.8 + 0.1
        sides = torch.rand((BOXES_A_SCENE, 2), generator=drawing) * 0.4 + 0.05
        return (self.pixels(index),), (torch.cat((kinds, centres, sides), 1),)


@dataclass(kw_only=True, eq=False)
class DigitDataset(GeneratedDataset):
    """Grey images of digits, drawn at random places with noise."""

    image: int
    classes: int

    def __post_init__(self) -> None:
        rows = [[[float(dot) for dot in row] for row in digit.split()] for digit in DIGITS]
        scale = max(1, self.image // 12)
        self.glyphs = torch.tensor(rows).repeat_interleave(scale, 1).repeat_interleave(scale, 2)

    def __getitem__(self, index: int) -> Sample:
        drawing = self.generator(index)
        digit = int(torch.randint(min(10, self.classes), (), generator=drawing))
        picture = torch.rand((1, self.image, self.image), generator=drawing) * 0.3
        height, width = self.glyphs.shape[1:]
        top = int(torch.randint(self.image - height + 1, (), generator=drawing))
        left = int(torch.randint(self.image - width + 1, (), generator=drawing))
        picture[0, top : top + height, left : left + width] += self.glyphs[digit] * 0.7
        return (picture,), (torch.tensor(digit),)


@dataclass(kw_only=True, eq=False)
class QuestionDataset(GeneratedDataset):
    """Random tokens: a question, a text, and the start and the end of the answer in it."""

    sequence: int
    vocabulary: int

    def __getitem__(self, index: int) -> Sample:
        drawing = self.generator(index)
        tokens = torch.randint(self.vocabulary, (self.sequence,), generator=drawing)
        kinds = (torch.arange(self.sequence) >= self.sequence // 6).long()
        places = torch.randint(self.sequence // 6, self.sequence, (2,), generator=drawing).sort().values
        return (tokens, torch.ones_like(tokens), kinds), (places[0], places[1])


def batch_iterator(samples: Dataset[Sample], *, batch: int, workers: int, seed: int, pinned: bool) -> Iterator[Sample]:
    """Return the batches of all samples in order, prepared by `workers` processes, or by this process if 0."""
    loader = DataLoader(
        samples,
        batch_size=batch,
        num_workers=workers,
        pin_memory=pinned,
        drop_last=True,
        worker_init_fn=(lambda _number: die_with_parent()) if workers else None,
        generator=torch.Generator().manual_seed(seed),
    )
    return iter(loader)
