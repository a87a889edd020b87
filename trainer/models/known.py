"""Models whose classes the library transformers has, at any size. It takes seconds to import: only where needed."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

DROPOUT = 0.2  # before MobileNetV2's classifier, as its publication has it


class Logits(nn.Module):
    """A model of transformers that answers with a tensor alone, as every strategy can gather it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        """Return a logit for each image and class."""
        logits: Tensor = self.inner(pixel_values=images).logits
        return logits


class Answers(nn.Module):
    """BERT with a head that marks where the answer to a question begins and ends."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor, mask: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of each place to be the first and the last of the answer."""
        said = self.inner(input_ids=tokens, attention_mask=mask, token_type_ids=kinds)
        return said.start_logits, said.end_logits


def mobilenet_v2(*, image: int = 224, classes: int = 1000, width: float = 1.0) -> nn.Module:
    """Return MobileNetV2; 3.5 million parameters at full size."""
    from transformers.models.mobilenet_v2.configuration_mobilenet_v2 import MobileNetV2Config
    from transformers.models.mobilenet_v2.modeling_mobilenet_v2 import MobileNetV2ForImageClassification

    settings = MobileNetV2Config(
        image_size=image,
        num_labels=classes,  # type: ignore[call-arg]  # of its base
        depth_multiplier=width,
        tf_padding=False,
        classifier_dropout_prob=DROPOUT,
    )
    return Logits(MobileNetV2ForImageClassification(settings))


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
    return Logits(ResNetForImageClassification(settings))


def bert(*, layers: int, hidden: int, heads: int, vocabulary: int, sequence: int, **_others: Any) -> nn.Module:
    """Return a BERT that answers questions about a text."""
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
    return Answers(BertForQuestionAnswering(settings))
