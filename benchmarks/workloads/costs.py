"""The costs of one sample of each workload, layer by layer. Pure.

Multiply and add count as two operations, and a step of training computes each layer three times. Nothing here is a
measurement. Sizes of files are those of the data set that the workload represents: 110 kB for an image of ImageNet
(141 GB over 1.28 million), 165 kB for one of COCO (19 GB over 118 thousand), at the usual input side of the network;
other sides are scaled by their pixels, as the trainer generates images of the requested size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps

from benchmarks.workloads.definitions import Costs, LayerCosts
from benchmarks.workloads.layer_tally import COMPUTE_PASSES, FLOAT_BYTES, InceptionTally, LayerTally, YoloTally
from hostwire.training import Spec


def round_channels(channels: float) -> int:
    """Return a scaled number of channels as the nearest multiple of 8, at least 90 % of the exact value."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


IMAGENET_FILE_BYTES, COCO_FILE_BYTES = 110e3, 165e3  # bytes
TOKEN_BYTES = 8.0  # bytes of an index as PyTorch sends it to a device


def _option_value(spec: Spec, name: str, default: float) -> float:
    return float(spec.options.get(name, default))


def _of_options(**defaults: float) -> Callable[[Callable[..., Costs]], Callable[[Spec], Costs]]:
    """Return a decorator that calls a function with these options of a spec, and caches its results."""

    def decorate(function: Callable[..., Costs]) -> Callable[[Spec], Costs]:
        cached = cache(function)

        @wraps(function)
        def of_spec(spec: Spec) -> Costs:
            return cached(**{name: _option_value(spec, name, default) for name, default in defaults.items()})

        return of_spec

    return decorate


def _image_bytes(side: float, *, usual: float, file_bytes: float, channels: int = 3) -> dict[str, float]:
    """Return the bytes of one image from storage, and to the device as fp32."""
    return {"input_bytes": file_bytes * (side / usual) ** 2, "device_bytes": FLOAT_BYTES * channels * side**2}


@_of_options(image=224, classes=1000, width=1)
def mobilenet_v2(image: float, classes: float, width: float) -> Costs:
    """Inverted residuals: 3.5 million parameters and 0.3 billion products an image at full size."""
    net = LayerTally(side=int(image), channels=3)
    net.convolution(round_channels(32 * width), 3, 2, kept=3)  # ReLU6 keeps its input
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
            net.convolution(round_channels(channels * width), 1)
    net.convolution(1280 if width < 1 else round_channels(1280 * width), 1)  # a narrow network keeps its last layer
    net.dense(net.channels, classes)
    return net.costs(**_image_bytes(image, usual=224, file_bytes=IMAGENET_FILE_BYTES))


@_of_options(image=224, classes=1000, width=1)
def resnet50(image: float, classes: float, width: float) -> Costs:
    """Bottlenecks 3-4-6-3: 25.6 million parameters and 4.1 billion products an image at full size."""

    def scaled(full: int) -> int:
        return max(8, round(full * width / 8) * 8)

    net = LayerTally(side=int(image), channels=3)
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
    return net.costs(**_image_bytes(image, usual=224, file_bytes=IMAGENET_FILE_BYTES))


@_of_options(image=640, classes=80, width=1, depth=1)
def yolov5l(image: float, classes: float, width: float, depth: float) -> Costs:
    """CSP backbone, path aggregation and three scales: 47 million parameters, 58 billion products at full size."""

    def channels(full: int) -> int:
        return max(8, -(-int(full * width) // 8) * 8)

    def times(full: int) -> int:
        return max(1, round(full * depth))

    net = YoloTally(side=int(image), channels=3)
    net.channels, net.side = 12, -(-net.side // 2)  # two by two pixels folded into channels
    net.conv(channels(64), 3)
    skips: list[tuple[int, int]] = []  # channels and side of the maps that the neck reuses
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
    return net.costs(**_image_bytes(image, usual=640, file_bytes=COCO_FILE_BYTES))


def _bert(sequence: float, vocabulary: float, layers: float, hidden: float, heads: float) -> Costs:
    """110 million parameters with 12 layers of 768, 335 million with 24 layers of 1024."""
    embeddings = (vocabulary + 512 + 2 + 2) * hidden
    # A layer: four projections and two of four times the width, their biases, and two normalisations.
    layer = 12 * hidden**2 + 13 * hidden
    head = 2 * hidden + 2  # start and end of the answer
    products = layers * (12 * hidden**2 * sequence + 2 * hidden * sequence**2) + head * sequence
    # Kept a layer and token in half precision: 34 bytes a channel, and 5 bytes a head and token of attention
    # (Korthikanti and others, 2022); twice that in fp32.
    kept = 2 * layers * sequence * (34 * hidden + 5 * heads * sequence)
    return Costs(
        parameters=embeddings + layers * layer + head,
        flops=2 * COMPUTE_PASSES * products,
        activation_bytes=kept,
        input_bytes=3 * TOKEN_BYTES * sequence,
        device_bytes=3 * TOKEN_BYTES * sequence + 2 * TOKEN_BYTES,
        late_share=embeddings / (embeddings + layers * layer + head),
        operations=int(25 * layers + 10),
        # Autocast converts six weights, six biases, and the outputs of normalisations (fp32) for four dense layers.
        casts=int(16 * layers + 3),
        tensors=int(16 * layers + 7),
        layers=(
            LayerCosts(parameters=embeddings, operations=5),
            *(
                LayerCosts(
                    parameters=layer,
                    flops=2 * COMPUTE_PASSES * (products - head * sequence) / layers,
                    activation_bytes=kept / layers,
                    operations=25,
                )
                for _ in range(int(layers))
            ),
            LayerCosts(parameters=head, flops=2 * COMPUTE_PASSES * head * sequence, operations=5),
        ),
    )


bert_base = _of_options(sequence=384, vocabulary=30522, layers=12, hidden=768, heads=12)(_bert)
bert_large = _of_options(sequence=384, vocabulary=30522, layers=24, hidden=1024, heads=16)(_bert)


@_of_options(image=299, classes=1000, width=1)
def inception_v3(image: float, classes: float, width: float) -> Costs:
    """Branches of several kernels: 27.2 million parameters with the auxiliary classifier, 5.7 billion products."""
    net = InceptionTally(side=int(image), channels=3)
    net.width = width
    net.conv(32, 3, 3, 2)
    net.conv(32, 3, 3, padded=False)
    net.conv(64, 3, 3)
    net.pool(3)
    net.conv(80)
    net.conv(192, 3, 3, padded=False)
    net.pool(3)
    for pool in (32, 64, 64):
        net.branches(((64,),), ((48,), (64, 5, 5)), ((64,), (96, 3, 3), (96, 3, 3)), pool=pool)
    net.branches(((384, 3, 3, 2),), ((64,), (96, 3, 3), (96, 3, 3, 2)), thinned=True)
    for inner in (128, 160, 160, 192):
        row, column = (inner, 1, 7), (inner, 7, 1)
        net.branches(((192,),), ((inner,), row, (192, 7, 1)), ((inner,), column, row, column, (192, 1, 7)), pool=192)
    channels, side = net.channels, net.side
    net.side = 5  # the auxiliary classifier pools to it
    net.conv(128)
    net.conv(768, 5, 5, padded=False)
    net.dense(net.channels, classes)
    net.channels, net.side = channels, side
    net.branches(((192,), (320, 3, 3, 2)), ((192,), (192, 1, 7), (192, 7, 1), (192, 3, 3, 2)), thinned=True)
    for _ in range(2):
        fork = ((-384, 1, 3), (384, 3, 1))
        net.branches(((320,),), ((384,), *fork), ((448,), (384, 3, 3), *fork), pool=192)
    net.dense(net.channels, classes)
    return net.costs(**_image_bytes(image, usual=299, file_bytes=IMAGENET_FILE_BYTES))


@_of_options(image=224, classes=1000, width=1)
def alexnet(image: float, classes: float, width: float) -> Costs:
    """Five convolutions and three dense layers of one tower: 61 million parameters, 0.7 billion products."""

    def scaled(full: int) -> int:
        return max(1, round(full * width))

    net = LayerTally(side=int(image), channels=3)
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
    return net.costs(**_image_bytes(image, usual=224, file_bytes=IMAGENET_FILE_BYTES))


@_of_options(image=224, classes=1000, width=1)
def vgg16(image: float, classes: float, width: float) -> Costs:
    """Thirteen convolutions and three dense layers: 138 million parameters, 15.5 billion products."""

    def scaled(full: int) -> int:
        return max(1, round(full * width))

    net = LayerTally(side=int(image), channels=3)
    for full, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            net.convolution(scaled(full), 3, normed=False, kept=1)
        net.pool()
    net.dense(net.channels * 49, scaled(4096), kept=2)
    net.dense(scaled(4096), scaled(4096), kept=2)
    net.dense(scaled(4096), classes)
    return net.costs(**_image_bytes(image, usual=224, file_bytes=IMAGENET_FILE_BYTES))


@_of_options(image=28, classes=10)
def mnist_cnn(image: float, classes: float) -> Costs:
    """Two convolutions and two dense layers over a grey image."""
    net = LayerTally(side=int(image), channels=1)
    for channels in (32, 64):
        net.convolution(channels, 3, normed=False, kept=1)
        net.pool()
    net.dense(net.channels * net.side**2, 128, kept=2)
    net.dense(128, classes)
    return net.costs(**_image_bytes(image, usual=28, file_bytes=28.0**2, channels=1))


@_of_options(image=224, classes=1000)
def efficientnet_b0(image: float, classes: float) -> Costs:
    """Not run here: its published rates substitute MobileNetV2's. 5.3 million parameters, 0.4 billion products."""
    net = LayerTally(side=int(image), channels=3)
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
    return net.costs(**_image_bytes(image, usual=224, file_bytes=IMAGENET_FILE_BYTES))


def transfers(spec: Spec) -> Costs:
    """Every size of message, repeated as specified: the bytes that one device sends, and buffers for the largest."""
    moved = sum(spec.message_sizes) * _option_value(spec, "iterations", 20)
    return Costs(activation_bytes=2 * _option_value(spec, "most_bytes", 2**28), device_bytes=moved)


gpu_bandwidth = all_reduce = host_copy = transfers


def storage_read(spec: Spec) -> Costs:
    """A file, read once a step."""
    return Costs(input_bytes=_option_value(spec, "file_bytes", 2**32))
