"""YOLOv5 as in its releases 4 and 5, and a loss over random boxes.

A backbone of cross-stage partial blocks, a spatial pyramid, a neck that aggregates paths up and down, and a head at
three scales with three anchors each. At width and depth 1 it is the large one, L: 47 million parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

# Width and height of the anchors in pixels, at strides 8, 16 and 32: those published for COCO.
ANCHORS = (
    ((10.0, 13.0), (16.0, 30.0), (33.0, 23.0)),
    ((30.0, 61.0), (62.0, 45.0), (59.0, 119.0)),
    ((116.0, 90.0), (156.0, 198.0), (373.0, 326.0)),
)
# A box matches an anchor whose sides are longer or shorter by at most this factor.
MAX_ANCHOR_RATIO = 4.0
BOX_WEIGHT, OBJECT_WEIGHT, CLASS_WEIGHT = 0.05, 1.0, 0.5  # weights of the loss terms


class ConvolutionBlock(nn.Sequential):
    """A convolution that keeps the side, or halves it with stride 2; normalised, then SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03),
            nn.SiLU(inplace=True),
        )


class Bottleneck(nn.Module):
    """A narrow and a wide convolution, added to the input if `adds`."""

    def __init__(self, channels: int, *, adds: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(ConvolutionBlock(channels, channels), ConvolutionBlock(channels, channels, 3))
        self.adds = adds

    def forward(self, features: Tensor) -> Tensor:
        """Return features of the same shape."""
        found: Tensor = self.layers(features)
        return features + found if self.adds else found


class CrossStagePartial(nn.Module):
    """A cross-stage partial block: half of the channels go through bottlenecks, half around them."""

    def __init__(self, inputs: int, outputs: int, count: int, *, adds: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.through = nn.Sequential(
            ConvolutionBlock(inputs, half), *(Bottleneck(half, adds=adds) for _ in range(count))
        )
        self.around = ConvolutionBlock(inputs, half)
        self.joined = ConvolutionBlock(2 * half, outputs)

    def forward(self, features: Tensor) -> Tensor:
        """Return features of the same side."""
        found: Tensor = self.joined(torch.cat((self.through(features), self.around(features)), 1))
        return found


class SpatialPyramidPooling(nn.Module):
    """Spatial pyramid pooling: maximum pooling with windows of 5, 9 and 13."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.narrow = ConvolutionBlock(channels, channels // 2)
        self.pools = nn.ModuleList(nn.MaxPool2d(side, 1, side // 2) for side in (5, 9, 13))
        self.wide = ConvolutionBlock(channels // 2 * 4, channels)

    def forward(self, features: Tensor) -> Tensor:
        """Return features of the same shape."""
        narrow = self.narrow(features)
        found: Tensor = self.wide(torch.cat((narrow, *(pool(narrow) for pool in self.pools)), 1))
        return found


class Yolo(nn.Module):
    """The network: images of a side that 32 divides, to predictions at strides 8, 16 and 32."""

    def __init__(self, *, classes: int = 80, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()

        def wide(channels: int) -> int:
            return max(8, -(-int(channels * width) // 8) * 8)

        def deep(count: int) -> int:
            return max(1, round(count * depth))

        c64, c128, c256, c512, c1024 = (wide(channels) for channels in (64, 128, 256, 512, 1024))
        self.classes = classes
        self.early = nn.Sequential(
            nn.PixelUnshuffle(2),  # folds each two by two pixels into channels
            ConvolutionBlock(12, c64, 3),
            ConvolutionBlock(c64, c128, 3, 2),
            CrossStagePartial(c128, c128, deep(3)),
            ConvolutionBlock(c128, c256, 3, 2),
            CrossStagePartial(c256, c256, deep(9)),
        )
        self.middle = nn.Sequential(ConvolutionBlock(c256, c512, 3, 2), CrossStagePartial(c512, c512, deep(9)))
        self.late = nn.Sequential(
            ConvolutionBlock(c512, c1024, 3, 2),
            SpatialPyramidPooling(c1024),
            CrossStagePartial(c1024, c1024, deep(3), adds=False),
        )
        self.from_late = ConvolutionBlock(c1024, c512)
        self.up_middle = CrossStagePartial(2 * c512, c512, deep(3), adds=False)
        self.from_middle = ConvolutionBlock(c512, c256)
        self.up_early = CrossStagePartial(2 * c256, c256, deep(3), adds=False)
        self.down_early = ConvolutionBlock(c256, c256, 3, 2)
        self.down_middle = CrossStagePartial(2 * c256, c512, deep(3), adds=False)
        self.down_late = ConvolutionBlock(c512, c512, 3, 2)
        self.last = CrossStagePartial(2 * c512, c1024, deep(3), adds=False)
        each = len(ANCHORS[0]) * (5 + classes)
        self.heads = nn.ModuleList(nn.Conv2d(channels, each, 1) for channels in (c256, c512, c1024))

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return for each scale a tensor [image, anchor, row, column, x y width height object classes...]."""
        early = self.early(images)
        middle = self.middle(early)
        late = self.from_late(self.late(middle))
        middle = self.from_middle(self.up_middle(torch.cat((functional.interpolate(late, scale_factor=2), middle), 1)))
        small = self.up_early(torch.cat((functional.interpolate(middle, scale_factor=2), early), 1))
        medium = self.down_middle(torch.cat((self.down_early(small), middle), 1))
        large = self.last(torch.cat((self.down_late(medium), late), 1))
        return tuple(
            head(features).unflatten(1, (len(ANCHORS[0]), 5 + self.classes)).permute(0, 1, 3, 4, 2)
            for head, features in zip(self.heads, (small, medium, large), strict=True)
        )


def detection_loss(predictions: tuple[Tensor, ...], boxes: Tensor) -> Tensor:
    """Return the loss of predictions against boxes [image, box, class x y width height], in shares of a side."""
    total = boxes.new_zeros(())
    for scale, predicted in enumerate(predictions):
        total = total + _loss_at_scale(predicted.float(), boxes, 8.0 * 2**scale, boxes.new_tensor(ANCHORS[scale]))
    return total


def _loss_at_scale(predicted: Tensor, boxes: Tensor, stride: float, anchors: Tensor) -> Tensor:
    """Return the loss at one scale: each box is a target of each matching anchor, in the cell of its centre."""
    count, each, rows, columns, width = predicted.shape
    grid = boxes.new_tensor((columns, rows))
    centre = boxes[..., 1:3] * grid
    cell = centre.floor().long().clamp_(min=0)
    cell = torch.minimum(cell, grid.long() - 1)
    sides = boxes[..., 3:5] * grid
    ratio = sides[:, :, None] / (anchors / stride)  # [image, box, anchor, 2]
    fits = (torch.maximum(ratio, 1 / ratio).amax(-1) < MAX_ANCHOR_RATIO).float()
    place = (torch.arange(each, device=boxes.device) * rows + cell[..., 1:2]) * columns + cell[..., 0:1]
    flat = predicted.reshape(count, each * rows * columns, width)
    place = place.flatten(1)
    found = flat.gather(1, place[..., None].expand(-1, -1, width)).reshape(*fits.shape, width)
    offset = (centre - cell)[:, :, None]
    middle = found[..., 0:2].sigmoid() * 2 - 0.5
    extent = (found[..., 2:4].sigmoid() * 2) ** 2 * (anchors / stride)
    overlap = generalised_iou(middle, extent, offset.expand_as(middle), sides[:, :, None].expand_as(extent))
    share = fits.sum().clamp(min=1)
    targets = functional.one_hot(boxes[..., 0].long(), width - 5).to(found.dtype)[:, :, None].expand_as(found[..., 5:])
    class_loss = functional.binary_cross_entropy_with_logits(found[..., 5:], targets, reduction="none").mean(-1)
    objects = torch.zeros_like(flat[..., 4])
    objects.scatter_reduce_(1, place, (overlap.detach().clamp(min=0) * fits).flatten(1), "amax")
    there = functional.binary_cross_entropy_with_logits(flat[..., 4], objects)
    return (
        BOX_WEIGHT * ((1 - overlap) * fits).sum() / share
        + CLASS_WEIGHT * (class_loss * fits).sum() / share
        + OBJECT_WEIGHT * there
    )


def generalised_iou(middle: Tensor, extent: Tensor, other: Tensor, other_extent: Tensor) -> Tensor:
    """Return the generalised intersection over union of boxes, from -1 (far apart) to 1 (the same)."""
    low, high = middle - extent / 2, middle + extent / 2
    other_low, other_high = other - other_extent / 2, other + other_extent / 2
    inner = (torch.minimum(high, other_high) - torch.maximum(low, other_low)).clamp(min=0).prod(-1)
    outer = (torch.maximum(high, other_high) - torch.minimum(low, other_low)).prod(-1)
    union = extent.prod(-1) + other_extent.prod(-1) - inner + 1e-9
    return inner / union - (outer - union) / (outer + 1e-9)
