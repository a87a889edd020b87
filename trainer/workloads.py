"""The training workloads: model, samples, loss and optimiser.

Images are stored as bytes in memory or on the chosen drive, and each is converted to normalised floats on access, as a
loader does with decoded files. In memory, the same seed and process generate the same samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from hostwire.training import Spec
from trainer.models.networks import alexnet, mnist_cnn, vgg16
from trainer.models.yolo import Yolo, detection_loss
from trainer.processes import die_with_parent
from trainer.reporting import RunRefused
from trainer.storage import sample_source

Loss = Callable[[Any, tuple[Tensor, ...]], Tensor]


@dataclass(frozen=True, kw_only=True)
class TrainingTask:
    """A training workload: `samples` generates the samples of a process, `loss` compares outputs and targets."""

    model: Callable[[], nn.Module]
    samples: Callable[[int, int], Dataset[Sample]]  # how many, for which process
    loss: Loss
    optimiser: Callable[[nn.Module], torch.optim.Optimizer]


def training_task(spec: Spec) -> TrainingTask:
    """Return the task of a spec's workload. Raises Refused for an unknown one."""
    try:
        make = _TASKS[spec.workload]
    except KeyError:
        raise RunRefused(f"The trainer has no workload '{spec.workload}'; it has {', '.join(_TASKS)}.") from None
    return make(spec)


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-5)


def _classes_loss(outputs: Any, targets: tuple[Tensor, ...]) -> Tensor:
    return functional.cross_entropy(outputs.float(), targets[0])


def _boxes_loss(outputs: Any, targets: tuple[Tensor, ...]) -> Tensor:
    return detection_loss(outputs, targets[0])


def _answer_loss(outputs: Any, targets: tuple[Tensor, ...]) -> Tensor:
    first, last = outputs
    return (
        functional.cross_entropy(first.float(), targets[0]) + functional.cross_entropy(last.float(), targets[1])
    ) / 2


def _integer_option(spec: Spec, name: str, default: int) -> int:
    return int(spec.options.get(name, default))


def _float_option(spec: Spec, name: str) -> float:
    return float(spec.options.get(name, 1.0))


def _classification(spec: Spec, model: Callable[[], nn.Module], image: int = 224, classes: int = 1000) -> TrainingTask:
    side, kinds = _integer_option(spec, "image", image), _integer_option(spec, "classes", classes)
    kind = DigitDataset if spec.workload == "mnist_cnn" else ImageDataset
    return TrainingTask(
        model=model,
        samples=lambda length, rank: kind(length=length, image=side, classes=kinds, seed=spec.seed, rank=rank),
        loss=_classes_loss,
        optimiser=_sgd,
    )


def _mobilenet_v2(spec: Spec) -> TrainingTask:
    from trainer.models.networks import mobilenet_v2

    sizes = {"image": _integer_option(spec, "image", 224), "classes": _integer_option(spec, "classes", 1000)}
    return _classification(spec, lambda: mobilenet_v2(width=_float_option(spec, "width"), **sizes))


def _resnet50(spec: Spec) -> TrainingTask:
    from trainer.models.networks import resnet50

    return _classification(
        spec, lambda: resnet50(classes=_integer_option(spec, "classes", 1000), width=_float_option(spec, "width"))
    )


def _alexnet(spec: Spec) -> TrainingTask:
    return _classification(
        spec, lambda: alexnet(classes=_integer_option(spec, "classes", 1000), width=_float_option(spec, "width"))
    )


def _vgg16(spec: Spec) -> TrainingTask:
    return _classification(
        spec, lambda: vgg16(classes=_integer_option(spec, "classes", 1000), width=_float_option(spec, "width"))
    )


def _mnist_cnn(spec: Spec) -> TrainingTask:
    image, classes = _integer_option(spec, "image", 28), _integer_option(spec, "classes", 10)
    return _classification(spec, lambda: mnist_cnn(image=image, classes=classes), image, classes)


def _yolov5l(spec: Spec) -> TrainingTask:
    side, classes = _integer_option(spec, "image", 640), _integer_option(spec, "classes", 80)
    width, depth = _float_option(spec, "width"), _float_option(spec, "depth")
    return TrainingTask(
        model=lambda: Yolo(classes=classes, width=width, depth=depth),
        samples=lambda length, rank: SceneDataset(
            length=length, image=side, classes=classes, seed=spec.seed, rank=rank
        ),
        loss=_boxes_loss,
        optimiser=_sgd,
    )


def _bert(spec: Spec, *, layers: int, hidden: int, heads: int) -> TrainingTask:
    from trainer.models.networks import bert

    sizes = {
        "layers": _integer_option(spec, "layers", layers),
        "hidden": _integer_option(spec, "hidden", hidden),
        "heads": _integer_option(spec, "heads", heads),
        "vocabulary": _integer_option(spec, "vocabulary", 30522),
        "sequence": _integer_option(spec, "sequence", 384),
    }
    return TrainingTask(
        model=lambda: bert(**sizes),
        samples=lambda length, rank: QuestionDataset(
            length=length, sequence=sizes["sequence"], vocabulary=sizes["vocabulary"], seed=spec.seed, rank=rank
        ),
        loss=_answer_loss,
        optimiser=_adamw,
    )


_TASKS: dict[str, Callable[[Spec], TrainingTask]] = {
    "mobilenet_v2": _mobilenet_v2,
    "resnet50": _resnet50,
    "yolov5l": _yolov5l,
    "bert_base": lambda spec: _bert(spec, layers=12, hidden=768, heads=12),
    "bert_large": lambda spec: _bert(spec, layers=24, hidden=1024, heads=16),
    "alexnet": _alexnet,
    "vgg16": _vgg16,
    "mnist_cnn": _mnist_cnn,
}

Sample = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]  # inputs of the model; targets
BOXES_A_SCENE = 8  # objects in an image
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


def _sample_generator(seed: int, rank: int, index: int) -> torch.Generator:
    return torch.Generator().manual_seed(((seed * 4099 + rank) * 1_000_003 + index) % 2**62)


class ImageDataset(Dataset[Sample]):
    """Random pixels with a class."""

    def __init__(self, *, length: int, image: int, classes: int, seed: int, rank: int) -> None:
        self.length, self.classes, self.seed, self.rank = length, classes, seed, rank
        self.stock = sample_source(
            (3, image, image), length=length, rank=rank, generator=_sample_generator(seed, rank, 0)
        )

    def __len__(self) -> int:
        return self.length

    def pixels(self, index: int) -> Tensor:
        """Return an image as floats around 0."""
        return self.stock.read(index).float().div_(127.5).sub_(1.0)

    def __getitem__(self, index: int) -> Sample:
        wanted = torch.randint(self.classes, (), generator=_sample_generator(self.seed, self.rank, index + 1))
        return (self.pixels(index),), (wanted,)


class SceneDataset(ImageDataset):
    """Random pixels with objects: class, centre, width and height as shares of the side."""

    def __getitem__(self, index: int) -> Sample:
        drawing = _sample_generator(self.seed, self.rank, index + 1)
        kinds = torch.randint(self.classes, (BOXES_A_SCENE, 1), generator=drawing).float()
        centres = torch.rand((BOXES_A_SCENE, 2), generator=drawing) * 0.8 + 0.1
        sides = torch.rand((BOXES_A_SCENE, 2), generator=drawing) * 0.4 + 0.05
        return (self.pixels(index),), (torch.cat((kinds, centres, sides), 1),)


class DigitDataset(Dataset[Sample]):
    """Grey images of digits, drawn at random places with noise."""

    def __init__(self, *, length: int, image: int, classes: int, seed: int, rank: int) -> None:
        self.length, self.image, self.classes, self.seed, self.rank = length, image, classes, seed, rank
        rows = [[[float(dot) for dot in row] for row in digit.split()] for digit in _DIGITS]
        scale = max(1, image // 12)
        self.glyphs = torch.tensor(rows).repeat_interleave(scale, 1).repeat_interleave(scale, 2)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        drawing = _sample_generator(self.seed, self.rank, index)
        digit = int(torch.randint(min(10, self.classes), (), generator=drawing))
        picture = torch.rand((1, self.image, self.image), generator=drawing) * 0.3
        height, width = self.glyphs.shape[1:]
        top = int(torch.randint(self.image - height + 1, (), generator=drawing))
        left = int(torch.randint(self.image - width + 1, (), generator=drawing))
        picture[0, top : top + height, left : left + width] += self.glyphs[digit] * 0.7
        return (picture,), (torch.tensor(digit),)


class QuestionDataset(Dataset[Sample]):
    """Random tokens: a question, a text, and the start and the end of the answer in it."""

    def __init__(self, *, length: int, sequence: int, vocabulary: int, seed: int, rank: int) -> None:
        self.length, self.sequence, self.vocabulary, self.seed, self.rank = length, sequence, vocabulary, seed, rank

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        drawing = _sample_generator(self.seed, self.rank, index)
        tokens = torch.randint(self.vocabulary, (self.sequence,), generator=drawing)
        kinds = (torch.arange(self.sequence) >= self.sequence // 6).long()
        places = torch.randint(self.sequence // 6, self.sequence, (2,), generator=drawing).sort().values
        return (tokens, torch.ones_like(tokens), kinds), (places[0], places[1])


def _initialise_worker(_number: int) -> None:
    die_with_parent()


def batch_iterator(samples: Dataset[Sample], *, batch: int, workers: int, seed: int, pinned: bool) -> Iterator[Sample]:
    """Return the batches of all samples in order, prepared by `workers` processes, or by this process if 0."""
    loader = DataLoader(
        samples,
        batch_size=batch,
        num_workers=workers,
        pin_memory=pinned,
        drop_last=True,
        worker_init_fn=_initialise_worker if workers else None,
        generator=torch.Generator().manual_seed(seed),
    )
    return iter(loader)
