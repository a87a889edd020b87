"""Models from the library transformers, at any size. It takes seconds to import, so only where needed."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

MOBILENET_DROPOUT = 0.2  # before MobileNetV2's classifier, as published


class LogitsModule(nn.Module):
    """A model of transformers that returns a plain tensor, which every strategy can gather."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(pixel_values=images).logits
        return logits


class AnswerModule(nn.Module):
    """BERT with a head that marks the start and the end of the answer to a question."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor, mask: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
        output = self.inner(input_ids=tokens, attention_mask=mask, token_type_ids=kinds)
        return output.start_logits, output.end_logits


def mobilenet_v2(*, image: int = 224, classes: int = 1000, width: float = 1.0) -> nn.Module:
    """Return MobileNetV2; 3.5 million parameters at full size."""
    from transformers.models.mobilenet_v2.configuration_mobilenet_v2 import MobileNetV2Config
    from transformers.models.mobilenet_v2.modeling_mobilenet_v2 import MobileNetV2ForImageClassification

    settings = MobileNetV2Config(
        image_size=image,
        num_labels=classes,  # type: ignore[call-arg]  # of its base
        depth_multiplier=width,
        tf_padding=False,
        classifier_dropout_prob=MOBILENET_DROPOUT,
    )
    return LogitsModule(MobileNetV2ForImageClassification(settings))


def resnet50(*, classes: int = 1000, width: float = 1.0) -> nn.Module:
    """Return ResNet-50; 25.6 million parameters at full size."""
    from transformers.models.resnet.configuration_resnet import ResNetConfig
    from transformers.models.resnet.modeling_resnet import ResNetForImageClassification

    def wide(channels: int) -> int:
        return max(8, round(channels * width / 8) * 8)

    settings = ResNetConfig(
        embedding_size=wide(64),
        hidden_sizes=[wide(256), wide(512), wide(1024), wide(2048)],
        num_labels=classes,  # type: ignore[call-arg]  # of its base
    )
    return LogitsModule(ResNetForImageClassification(settings))


def bert(*, layers: int, hidden: int, heads: int, vocabulary: int, sequence: int) -> nn.Module:
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertForQuestionAnswering

    settings = BertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        max_position_embeddings=max(512, sequence),
        attn_implementation="sdpa",  # type: ignore[call-arg]  # of its base
    )
    return AnswerModule(BertForQuestionAnswering(settings))


class Classifier(nn.Module):
    """Features of an image, pooled to `side` x `side`, then dense layers."""

    def __init__(self, features: list[nn.Module], side: int, dense: list[nn.Module]) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.pool = nn.AdaptiveAvgPool2d(side) if side else nn.Identity()
        self.dense = nn.Sequential(nn.Flatten(), *dense)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.dense(self.pool(self.features(images)))
        return logits


def _dense_head(inputs: int, hidden: int, classes: int) -> list[nn.Module]:
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
    return Classifier([*features, pool], 6, _dense_head(wide(256) * 36, wide(4096), classes))


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

    return Classifier(list(layers()), 7, _dense_head(wide(512) * 49, wide(4096), classes))


def mnist_cnn(*, image: int = 28, classes: int = 10) -> nn.Module:
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
