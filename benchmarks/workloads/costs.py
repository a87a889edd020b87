"""What one sample of each workload costs, by the arithmetic of its architecture: a function for each, Spec to Costs.

Multiply and add count as two operations, and a step of training computes each layer three times. Nothing here is a
measurement. Sizes of files are those of the data set that the workload stands for: 110 kB for an image of ImageNet
(141 GB over 1.28 million), 165 kB for one of COCO (19 GB over 118 thousand), at the side that the network is usually
fed with; other sides are scaled by their pixels, as the trainer makes images of the size that is asked for.
"""

from __future__ import annotations

from functools import cache

from benchmarks.workloads.layers import FLOAT, PASSES, Tally, rounded
from benchmarks.workloads.shapes import Costs
from hostwire.training import Option, Spec

IMAGENET_FILE, COCO_FILE = 110e3, 165e3  # bytes
TOKEN = 8.0  # bytes of an index as PyTorch sends it to a device
GROWTH = 4  # from one size of message to the next


def _number(spec: Spec, name: str, default: float) -> float:
    value: Option = spec.options.get(name, default)
    return float(value)


def _image(side: float, *, usual: float, file_bytes: float, channels: int = 3) -> dict[str, float]:
    """Return the bytes of one image from storage, and to the device as fp32."""
    return {"input_bytes": file_bytes * (side / usual) ** 2, "device_bytes": FLOAT * channels * side**2}


def mobilenet_v2(spec: Spec) -> Costs:
    """Inverted residuals: 3.5 million parameters and 0.3 billion products an image at full size."""
    return _mobilenet_v2(_number(spec, "image", 224), _number(spec, "classes", 1000), _number(spec, "width", 1))


@cache
def _mobilenet_v2(side: float, classes: float, width: float) -> Costs:
    net = Tally(side=int(side), channels=3)
    net.convolution(rounded(32 * width), 3, 2, kept=3)  # ReLU6 keeps what it reads
    # Expansion, channels, repetitions, stride of the first: table 2 of the publication.
    for expansion, channels, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for repetition in range(count):
            inner = net.channels * expansion
            if expansion > 1:
                net.convolution(inner, 1, kept=3)
            net.convolution(inner, 3, stride if repetition == 0 else 1, groups=inner, kept=3)
            net.convolution(rounded(channels * width), 1)
    net.convolution(1280 if width < 1 else rounded(1280 * width), 1)  # a narrow network keeps its last layer
    net.dense(net.channels, classes)
    return net.costs(**_image(side, usual=224, file_bytes=IMAGENET_FILE))


def resnet50(spec: Spec) -> Costs:
    """Bottlenecks 3-4-6-3: 25.6 million parameters and 4.1 billion products an image at full size."""
    return _resnet50(_number(spec, "image", 224), _number(spec, "classes", 1000), _number(spec, "width", 1))


@cache
def _resnet50(side: float, classes: float, width: float) -> Costs:
    def scaled(full: int) -> int:
        return max(8, round(full * width / 8) * 8)

    net = Tally(side=int(side), channels=3)
    net.convolution(scaled(64), 7, 2)
    net.pool(padded=True)
    for stage, count in enumerate((3, 4, 6, 3)):
        outer = scaled(256 * 2**stage)
        for block in range(count):
            stride = 2 if stage and block == 0 else 1
            before, side_before = net.channels, net.side
            net.convolution(outer // 4, 1)
            net.convolution(outer // 4, 3, stride)
            net.convolution(outer, 1)
            if block == 0:
                net.channels, net.side = before, side_before
                net.convolution(outer, 1, stride)  # the shortcut
    net.dense(net.channels, classes)
    return net.costs(**_image(side, usual=224, file_bytes=IMAGENET_FILE))


def yolov5l(spec: Spec) -> Costs:
    """CSP backbone, path aggregation and three scales: 47 million parameters, 58 billion products at full size."""
    return _yolov5l(
        _number(spec, "image", 640), _number(spec, "classes", 80), _number(spec, "width", 1), _number(spec, "depth", 1)
    )


class _Yolo(Tally):
    """A tally that knows the blocks of YOLOv5; its SiLU keeps what it reads."""

    def conv(self, channels: int, kernel: int = 1, stride: int = 1) -> None:
        self.convolution(channels, kernel, stride, kept=3)

    def csp(self, channels: int, count: int) -> None:
        """Add three 1x1 convolutions around `count` bottlenecks of half the channels."""
        inputs, half = self.channels, channels // 2
        self.conv(half)
        for _ in range(count):
            self.conv(half)
            self.conv(half, 3)
        self.channels = inputs
        self.conv(half)
        self.channels = 2 * half
        self.conv(channels)


@cache
def _yolov5l(side: float, classes: float, width: float, depth: float) -> Costs:
    def channels(full: int) -> int:
        return max(8, -(-int(full * width) // 8) * 8)

    def times(full: int) -> int:
        return max(1, round(full * depth))

    net = _Yolo(side=int(side), channels=3)
    net.channels, net.side = 12, -(-net.side // 2)  # two by two pixels folded into channels
    net.conv(channels(64), 3)
    skips: list[tuple[int, int]] = []  # channels and side of what the neck takes up again
    for full, count in ((128, 3), (256, 9), (512, 9)):
        net.conv(channels(full), 3, 2)
        net.csp(channels(full), times(count))
        skips.append((net.channels, net.side))
    net.conv(channels(1024), 3, 2)
    # Spatial pyramid: three poolings between two 1x1 convolutions.
    net.conv(channels(1024) // 2)
    net.kept += 9 * net.channels * net.side**2
    net.channels *= 4
    net.conv(channels(1024))
    net.csp(channels(1024), times(3))
    ways: list[tuple[int, int]] = []
    for full, (across, next_side) in zip((512, 256), reversed(skips[1:]), strict=True):
        net.conv(channels(full))
        ways.append((net.channels, net.side))
        net.side, net.channels = next_side, net.channels + across
        net.kept += net.channels * net.side**2
        net.csp(channels(full), times(3))
    scales = [(net.channels, net.side)]
    for full, (across, _side) in zip((512, 1024), reversed(ways), strict=True):
        net.conv(channels(full // 2), 3, 2)
        net.channels += across
        net.kept += net.channels * net.side**2
        net.csp(channels(full), times(3))
        scales.append((net.channels, net.side))
    for net.channels, net.side in scales:
        net.convolution(int(3 * (classes + 5)), 1, normed=False, kept=1)
    return net.costs(**_image(side, usual=640, file_bytes=COCO_FILE))


def bert_base(spec: Spec) -> Costs:
    """Twelve layers of 768: 110 million parameters."""
    return _bert(spec, layers=12, hidden=768, heads=12)


def bert_large(spec: Spec) -> Costs:
    """Twenty-four layers of 1024: 335 million parameters."""
    return _bert(spec, layers=24, hidden=1024, heads=16)


def _bert(spec: Spec, *, layers: int, hidden: int, heads: int) -> Costs:
    length = _number(spec, "sequence", 384)
    width = _number(spec, "hidden", hidden)
    depth = _number(spec, "layers", layers)
    head_count = _number(spec, "heads", heads)
    embeddings = (_number(spec, "vocabulary", 30522) + 512 + 2 + 2) * width
    # A layer: four projections and two of four times the width, their biases, and two normalisations.
    layer = 12 * width**2 + 13 * width
    head = 2 * width + 2  # where the answer begins and ends
    products = depth * (12 * width**2 * length + 2 * width * length**2) + head * length
    # Kept a layer and token in half precision: 34 bytes a channel, and 5 bytes a head and token of attention
    # (Korthikanti and others, 2022); twice that in fp32.
    kept = 2 * depth * length * (34 * width + 5 * head_count * length)
    return Costs(
        parameters=embeddings + depth * layer + head,
        flops=2 * PASSES * products,
        activation_bytes=kept,
        input_bytes=3 * TOKEN * length,
        device_bytes=3 * TOKEN * length + 2 * TOKEN,
        late_share=embeddings / (embeddings + depth * layer + head),
        operations=int(25 * depth + 10),
    )


def alexnet(spec: Spec) -> Costs:
    """Five convolutions and three dense layers of one tower: 61 million parameters, 0.7 billion products."""
    return _alexnet(_number(spec, "image", 224), _number(spec, "classes", 1000), _number(spec, "width", 1))


@cache
def _alexnet(side: float, classes: float, width: float) -> Costs:
    def scaled(full: int) -> int:
        return max(1, round(full * width))

    net = Tally(side=int(side), channels=3)
    net.side = 4 * ((net.side - 7) // 4 + 1)  # what its first convolution's padding of 2 leaves
    net.convolution(scaled(64), 11, 4, normed=False, kept=1)
    net.pool(3)
    net.convolution(scaled(192), 5, normed=False, kept=1)
    net.pool(3)
    for full in (384, 256, 256):
        net.convolution(scaled(full), 3, normed=False, kept=1)
    net.pool(3)
    net.dense(net.channels * 36, scaled(4096), kept=2)
    net.dense(scaled(4096), scaled(4096), kept=2)
    net.dense(scaled(4096), classes)
    return net.costs(**_image(side, usual=224, file_bytes=IMAGENET_FILE))


def vgg16(spec: Spec) -> Costs:
    """Thirteen convolutions and three dense layers: 138 million parameters, 15.5 billion products."""
    return _vgg16(_number(spec, "image", 224), _number(spec, "classes", 1000), _number(spec, "width", 1))


@cache
def _vgg16(side: float, classes: float, width: float) -> Costs:
    def scaled(full: int) -> int:
        return max(1, round(full * width))

    net = Tally(side=int(side), channels=3)
    for full, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            net.convolution(scaled(full), 3, normed=False, kept=1)
        net.pool()
    net.dense(net.channels * 49, scaled(4096), kept=2)
    net.dense(scaled(4096), scaled(4096), kept=2)
    net.dense(scaled(4096), classes)
    return net.costs(**_image(side, usual=224, file_bytes=IMAGENET_FILE))


def mnist_cnn(spec: Spec) -> Costs:
    """Two convolutions and two dense layers over a grey image."""
    return _mnist_cnn(_number(spec, "image", 28), _number(spec, "classes", 10))


@cache
def _mnist_cnn(side: float, classes: float) -> Costs:
    net = Tally(side=int(side), channels=1)
    for channels in (32, 64):
        net.convolution(channels, 3, normed=False, kept=1)
        net.pool()
    net.dense(net.channels * net.side**2, 128, kept=2)
    net.dense(128, classes)
    return net.costs(**_image(side, usual=28, file_bytes=28.0**2, channels=1))


def efficientnet_b0(spec: Spec) -> Costs:
    """Not run here: its published rates stand in for MobileNetV2's. 5.3 million parameters, 0.4 billion products."""
    return _efficientnet_b0(_number(spec, "image", 224), _number(spec, "classes", 1000))


@cache
def _efficientnet_b0(side: float, classes: float) -> Costs:
    net = Tally(side=int(side), channels=3)
    net.convolution(32, 3, 2, kept=3)
    for expansion, channels, count, stride, kernel in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for repetition in range(count):
            squeezed = max(1, net.channels // 4)
            inner = net.channels * expansion
            if expansion > 1:
                net.convolution(inner, 1, kept=3)
            net.convolution(inner, kernel, stride if repetition == 0 else 1, groups=inner, kept=4)
            net.dense(inner, squeezed)
            net.dense(squeezed, inner)
            net.convolution(channels, 1)
    net.convolution(1280, 1, kept=3)
    net.dense(net.channels, classes)
    return net.costs(**_image(side, usual=224, file_bytes=IMAGENET_FILE))


def message_sizes(spec: Spec) -> list[float]:
    """Return the sizes of the messages of a link workload, bytes: fourfold from the least to the most."""
    least, most = _number(spec, "least_bytes", 4), _number(spec, "most_bytes", 2**28)
    sizes = [least]
    while 0 < sizes[-1] * GROWTH <= most:
        sizes.append(sizes[-1] * GROWTH)
    return sizes if sizes[-1] == most else [*sizes, most]


def _moved(spec: Spec) -> Costs:
    """Costs of a link workload: bytes that one device sends in a step, and its buffers for the largest message."""
    moved = sum(message_sizes(spec)) * _number(spec, "iterations", 20)
    return Costs(
        parameters=0.0,
        flops=0.0,
        activation_bytes=2 * _number(spec, "most_bytes", 2**28),
        input_bytes=0.0,
        device_bytes=moved,
    )


def gpu_bandwidth(spec: Spec) -> Costs:
    """Every size of message, as often as asked, from each device to each other one."""
    return _moved(spec)


def all_reduce(spec: Spec) -> Costs:
    """Every size of message, as often as asked, summed over all devices."""
    return _moved(spec)


def host_copy(spec: Spec) -> Costs:
    """Every size of message, as often as asked, from the host to each device and back."""
    return _moved(spec)


def storage_read(spec: Spec) -> Costs:
    """A file, read once a step."""
    return Costs(
        parameters=0.0,
        flops=0.0,
        activation_bytes=0.0,
        input_bytes=_number(spec, "file_bytes", 2**32),
        device_bytes=0.0,
    )
