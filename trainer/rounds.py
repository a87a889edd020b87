"""What measurements of links share: sizes of messages, times of transfers, and rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

from hostwire.training import Spec
from trainer.place import Place

GIGA = 1e9
GROWTH = 4  # from one size of message to the next
Figures = dict[str, Any]
Round = Callable[[], None]


class Link:
    """A measurement: `round` is taken again and again, `figures` says what came of the rounds since `forget`."""

    def __init__(self, take: Round, forget: Round, figures: Callable[[], tuple[Figures, dict[str, str]]]) -> None:
        self.take, self.forget, self.figures = take, forget, figures


def sizes_of(spec: Spec) -> list[int]:
    """Return the sizes of messages in bytes: fourfold from the least to the most, which is always among them."""
    least, most = int(spec.options.get("least_bytes", 4)), int(spec.options.get("most_bytes", 2**28))
    sizes = [least]
    while sizes[-1] * GROWTH <= most:
        sizes.append(sizes[-1] * GROWTH)
    return sizes if sizes[-1] >= most else [*sizes, most]


def iterations(spec: Spec) -> int:
    """Return how often a size is transferred in a round."""
    return int(spec.options.get("iterations", 20))


def message(number: int, device: torch.device) -> Tensor:
    """Return a message of so many bytes on a device."""
    return torch.zeros(number // 4, dtype=torch.float32, device=device)


def between_all(place: Place, values: Any) -> list[Any]:
    """Return what each process found, in their order: numbers and lists of them."""
    if not place.grouped or place.world == 1:
        return [values]
    # As JSON: PyTorch's own way for objects would unpickle what comes, and run whatever somebody has put there.
    mine = torch.frombuffer(bytearray(msgspec.json.encode(values)), dtype=torch.uint8).to(place.device)
    lengths = [torch.zeros(1, dtype=torch.int64, device=place.device) for _ in range(place.world)]
    dist.all_gather(lengths, torch.tensor([len(mine)], device=place.device))
    most = max(int(length) for length in lengths)
    texts = [torch.zeros(most, dtype=torch.uint8, device=place.device) for _ in range(place.world)]
    dist.all_gather(texts, torch.nn.functional.pad(mine, (0, most - len(mine))))
    return [
        msgspec.json.decode(bytes(text[: int(length)].tolist())) for text, length in zip(texts, lengths, strict=True)
    ]


class Times:
    """Seconds by what they are of, over rounds."""

    def __init__(self) -> None:
        self._of: dict[Any, list[float]] = {}

    def add(self, key: Any, seconds: float) -> None:
        """Note what one transfer took."""
        self._of.setdefault(key, []).append(max(seconds, 1e-9))

    def forget(self) -> None:
        """Begin anew."""
        self._of.clear()

    def median(self, key: Any) -> float | None:
        """Return the median, None where nothing was noted."""
        return statistics.median(self._of[key]) if key in self._of else None
