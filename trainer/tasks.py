"""What each training workload is made of: a model, samples, a loss and an optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from hostwire.training import Spec
from trainer.data import Digits, Images, Questions, Sample, Scenes
from trainer.models.plain import alexnet, mnist_cnn, vgg16
from trainer.models.yolo import Yolo, detection_loss
from trainer.troubles import Refused

Loss = Callable[[Any, tuple[Tensor, ...]], Tensor]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A workload to train: `samples` makes a number of samples for a process, `loss` compares outputs and targets."""

    model: Callable[[], nn.Module]
    samples: Callable[[int, int], Dataset[Sample]]  # how many, for which process
    loss: Loss
    optimiser: Callable[[nn.Module], torch.optim.Optimizer]


def task_of(spec: Spec) -> Task:
    """Return what the workload of a spec is made of. Raises Refused for one that is not trained here."""
    try:
        make = _TASKS[spec.workload]
    except KeyError:
        raise Refused(f"The trainer has no workload '{spec.workload}'; it has {', '.join(_TASKS)}.") from None
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


def _whole(spec: Spec, name: str, default: int) -> int:
    return int(spec.options.get(name, default))


def _share(spec: Spec, name: str) -> float:
    return float(spec.options.get(name, 1.0))


def _vision(spec: Spec, model: Callable[[], nn.Module], image: int = 224, classes: int = 1000) -> Task:
    side, kinds = _whole(spec, "image", image), _whole(spec, "classes", classes)
    kind = Digits if spec.workload == "mnist_cnn" else Images
    return Task(
        model=model,
        samples=lambda length, rank: kind(length=length, image=side, classes=kinds, seed=spec.seed, rank=rank),
        loss=_classes_loss,
        optimiser=_sgd,
    )


def _mobilenet_v2(spec: Spec) -> Task:
    from trainer.models.known import mobilenet_v2

    sizes = {"image": _whole(spec, "image", 224), "classes": _whole(spec, "classes", 1000)}
    return _vision(spec, lambda: mobilenet_v2(width=_share(spec, "width"), **sizes))


def _resnet50(spec: Spec) -> Task:
    from trainer.models.known import resnet50

    return _vision(spec, lambda: resnet50(classes=_whole(spec, "classes", 1000), width=_share(spec, "width")))


def _alexnet(spec: Spec) -> Task:
    return _vision(spec, lambda: alexnet(classes=_whole(spec, "classes", 1000), width=_share(spec, "width")))


def _vgg16(spec: Spec) -> Task:
    return _vision(spec, lambda: vgg16(classes=_whole(spec, "classes", 1000), width=_share(spec, "width")))


def _mnist_cnn(spec: Spec) -> Task:
    image, classes = _whole(spec, "image", 28), _whole(spec, "classes", 10)
    return _vision(spec, lambda: mnist_cnn(image=image, classes=classes), image, classes)


def _yolov5l(spec: Spec) -> Task:
    side, classes = _whole(spec, "image", 640), _whole(spec, "classes", 80)
    width, depth = _share(spec, "width"), _share(spec, "depth")
    return Task(
        model=lambda: Yolo(classes=classes, width=width, depth=depth),
        samples=lambda length, rank: Scenes(length=length, image=side, classes=classes, seed=spec.seed, rank=rank),
        loss=_boxes_loss,
        optimiser=_sgd,
    )


def _bert(spec: Spec, *, layers: int, hidden: int, heads: int) -> Task:
    from trainer.models.known import bert

    sizes = {
        "layers": _whole(spec, "layers", layers),
        "hidden": _whole(spec, "hidden", hidden),
        "heads": _whole(spec, "heads", heads),
        "vocabulary": _whole(spec, "vocabulary", 30522),
        "sequence": _whole(spec, "sequence", 384),
    }
    return Task(
        model=lambda: bert(**sizes),
        samples=lambda length, rank: Questions(
            length=length, sequence=sizes["sequence"], vocabulary=sizes["vocabulary"], seed=spec.seed, rank=rank
        ),
        loss=_answer_loss,
        optimiser=_adamw,
    )


_TASKS: dict[str, Callable[[Spec], Task]] = {
    "mobilenet_v2": _mobilenet_v2,
    "resnet50": _resnet50,
    "yolov5l": _yolov5l,
    "bert_base": lambda spec: _bert(spec, layers=12, hidden=768, heads=12),
    "bert_large": lambda spec: _bert(spec, layers=24, hidden=1024, heads=16),
    "alexnet": _alexnet,
    "vgg16": _vgg16,
    "mnist_cnn": _mnist_cnn,
}
