"""The content of generated data sets: pictures and texts whose labels can be learnt. Needs NumPy and Pillow.

A picture is a shape in the colour of its class over a noisy background; a text has, somewhere after its question, the
one run of tokens that the question's first token asks for.
"""

from __future__ import annotations

import colorsys
import io
import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from trainer.workloads import BOXES_A_SCENE, DIGITS

Labels = NDArray[Any]

JPEG_QUALITY: Final = 91
# Least and most noise, 0 to 255. It sets the size of files: 110 kB on average, as ImageNet has, and 165 kB as COCO has.
IMAGE_NOISE: Final = (12.0, 54.0)
SCENE_NOISE: Final = (5.0, 32.0)
# Sides of a picture of ImageNet (469 x 387 on average) for an input of 224, of COCO for one of 640.
IMAGE_SIDES: Final = ((500, 375), (375, 500), (500, 333), (469, 387))
SCENE_SIDES: Final = ((640, 480), (480, 640), (640, 427), (612, 612))
IMAGE_INPUT, SCENE_INPUT = 224, 640
QUESTIONS: Final = 8  # kinds of questions
_SHAPES: Final = 5
_GOLDEN: Final = (math.sqrt(5) - 1) / 2  # successive multiples of it are far apart


def draw_image(random: np.random.Generator, sizes: dict[str, int]) -> tuple[bytes, Labels]:
    """Return a picture as a JPEG file, and its class."""
    kind = int(random.integers(sizes["classes"]))
    picture = _background(random, _sides(random, IMAGE_SIDES, sizes["image"] / IMAGE_INPUT))
    width, height = picture.size
    side = random.uniform(0.45, 0.7) * min(width, height)
    x, y = (random.uniform(side / 2, extent - side / 2) for extent in (width, height))
    _shape(picture, kind, (x, y), (side, side))
    return _jpeg(_noisy(random, picture, IMAGE_NOISE)), np.array(kind, np.int64)


def draw_scene(random: np.random.Generator, sizes: dict[str, int]) -> tuple[bytes, Labels]:
    """Return a picture as a JPEG file, and its boxes [box, class x y width height] as shares of its sides."""
    picture = _background(random, _sides(random, SCENE_SIDES, sizes["image"] / SCENE_INPUT))
    width, height = picture.size
    boxes = np.empty((BOXES_A_SCENE, 5), np.float32)
    boxes[:, 0] = random.integers(sizes["classes"], size=BOXES_A_SCENE)
    boxes[:, 3:] = random.uniform(0.08, 0.4, (BOXES_A_SCENE, 2))
    boxes[:, 1:3] = random.uniform(boxes[:, 3:] / 2, 1 - boxes[:, 3:] / 2)
    for kind, x, y, wide, high in boxes[np.argsort(-boxes[:, 3] * boxes[:, 4])]:  # small ones before large ones
        _shape(picture, int(kind), (x * width, y * height), (wide * width, high * height))
    return _jpeg(_noisy(random, picture, SCENE_NOISE)), boxes


def draw_digit(random: np.random.Generator, sizes: dict[str, int]) -> tuple[bytes, Labels]:
    """Return a grey picture of a digit as a JPEG file, and the digit."""
    side, digit = sizes["image"], int(random.integers(min(10, sizes["classes"])))
    rows = np.array([[int(dot) for dot in row] for row in DIGITS[digit].split()], np.float64)
    scale = max(1, side // 12)
    glyph = rows.repeat(scale, 0).repeat(scale, 1) * 0.7
    picture = random.uniform(0, 0.3, (side, side))
    top, left = (int(random.integers(side - extent + 1)) for extent in glyph.shape)
    picture[top : top + glyph.shape[0], left : left + glyph.shape[1]] += glyph
    return _jpeg(Image.fromarray((picture * 255).astype(np.uint8))), np.array(digit, np.int64)


def write_text(random: np.random.Generator, sizes: dict[str, int]) -> tuple[bytes, Labels]:
    """Return the tokens of a question and a text, 32 bits each, and the first and last token of the answer.

    The first token names the kind of question; the answer is a run of tokens of that kind, and a run of another kind
    is in the text, too.
    """
    sequence, vocabulary = sizes["sequence"], sizes["vocabulary"]
    band = max(1, vocabulary // (4 * QUESTIONS))  # tokens of a kind; the upper three quarters are of none
    tokens = random.integers(QUESTIONS * band, vocabulary, sequence)
    asked, other = random.permutation(QUESTIONS)[:2]
    tokens[0] = asked * band
    begin, half = sequence // 6, (sequence - sequence // 6) // 2
    places = [begin, begin + half]
    random.shuffle(places)
    spans = []
    for kind, place in zip((asked, other), places, strict=True):
        length = int(random.integers(1, max(2, min(8, half // 2))))
        first = place + int(random.integers(half - length + 1))
        tokens[first : first + length] = kind * band + random.integers(band, size=length)
        spans.append((first, first + length - 1))
    return tokens.astype("<u4").tobytes(), np.array(spans[0], np.int64)


def _sides(random: np.random.Generator, choices: tuple[tuple[int, int], ...], scale: float) -> tuple[int, int]:
    width, height = choices[int(random.integers(len(choices)))]
    return max(16, round(width * scale)), max(16, round(height * scale))


def _background(random: np.random.Generator, sides: tuple[int, int]) -> Image.Image:
    patches = random.integers(40, 216, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(patches).resize(sides, Image.Resampling.BICUBIC)


def _noisy(random: np.random.Generator, picture: Image.Image, noise: tuple[float, float]) -> Image.Image:
    width, height = picture.size
    grain = random.standard_normal((height, width, 1), np.float32) * random.uniform(*noise)
    return Image.fromarray((np.asarray(picture) + grain).clip(0, 255).astype(np.uint8))


def _shape(picture: Image.Image, kind: int, middle: tuple[float, float], sides: tuple[float, float]) -> None:
    """Draw the shape of a class around a place, in the colour of the class."""
    colour = tuple(round(255 * part) for part in colorsys.hsv_to_rgb(kind * _GOLDEN % 1, 0.9, 0.95))
    (x, y), (width, height) = middle, sides
    left, top, right, bottom = x - width / 2, y - height / 2, x + width / 2, y + height / 2
    draw = ImageDraw.Draw(picture)
    match kind % _SHAPES:
        case 0:
            draw.ellipse((left, top, right, bottom), fill=colour)
        case 1:
            draw.rectangle((left, top, right, bottom), fill=colour)
        case 2:
            draw.polygon(((x, top), (right, bottom), (left, bottom)), fill=colour)
        case 3:
            draw.polygon(((x, top), (right, y), (x, bottom), (left, y)), fill=colour)
        case _:
            thick = max(1, round(min(width, height) / 4))
            draw.line((left, y, right, y), fill=colour, width=thick)
            draw.line((x, top, x, bottom), fill=colour, width=thick)


def _jpeg(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()
