"""Data sets as files: generated once in a folder, and used by every later run of the same kind and sizes.

A folder holds either a JPEG file for each picture, or texts as shards of 32-bit tokens (little-endian, one text after
another), `labels.npy`, and `manifest.json`. The last files are for validation. A data set appears whole or not at all:
it is written beside its place under a lock, and renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np

from trainer.processes import die_with_parent
from trainer.reporting import RunRefused, format_bytes, logger
from trainer.storage import require_own

VERSION: Final = 1  # of the content and its format: another one is another data set
DATA_SEED: Final = 20260101  # of all data sets: a run's seed orders its samples
TEXTS_A_SHARD: Final = 4096
FREE_SPACE_FACTOR: Final = 1.1  # times the estimated size
UNUSED_SECONDS: Final = 31 * 86400.0  # after which a data set may make room: no run lasts as long
VALIDATION_SHARE: Final = 8  # one file for validation to so many for training
PREFIX: Final = "falcon-data-"
MANIFEST: Final = "manifest.json"
LABELS: Final = "labels.npy"
_SAMPLES_A_TASK: Final = 128
_MOST_WRITERS: Final = 16

Kind = Literal["images", "scenes", "digits", "texts"]
# Side of the input and bytes of a file at it; a file grows with the pixels. Digits have headers, mostly.
_FILE_BYTES: Final[Mapping[str, tuple[int, float]]] = {"images": (224, 110e3), "scenes": (640, 165e3)}
_DIGIT_BYTES: Final = (700, 0.4)  # at least, and for each pixel


class DataSetManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a data set is: its first `samples` are for training, the `validation` that follow for validation.

    `bytes` are those of the pictures or shards, `sha256` the hash of the hashes of all samples in order.
    """

    version: int
    kind: Kind
    seed: int
    samples: int
    validation: int
    sizes: dict[str, int]
    bytes: int = 0
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class StoredDataSet:
    """A data set that was found or written: its folder, its manifest, and the labels of all samples."""

    folder: Path
    manifest: DataSetManifest
    labels: np.ndarray[Any, Any]

    def read(self, number: int) -> bytes:
        """Return a sample as stored, and have the host's cache forget it: a later epoch reads the drive again."""
        if self.manifest.kind != "texts":
            return _read_uncached(picture_path(self.folder, number), 0, 0)
        size = text_bytes(self.manifest)
        shard, row = divmod(number, TEXTS_A_SHARD)
        return _read_uncached(shard_path(self.folder, shard), row * size, size)


def picture_path(folder: Path, number: int) -> Path:
    """Return the file of a picture; a folder has a thousand."""
    return folder / f"{number // 1000:04}" / f"{number:07}.jpg"


def shard_path(folder: Path, number: int) -> Path:
    return folder / f"texts-{number:05}.tokens"


def text_bytes(manifest: DataSetManifest) -> int:
    return 4 * manifest.sizes["sequence"]


def data_set(
    folder: Path, kind: Kind, samples: int, sizes: dict[str, int], report: Callable[[str], None]
) -> StoredDataSet:
    """Return a data set of a folder, which is written first where it is not there; `report` is told of progress.

    Raises RunRefused where it does not fit, or cannot be written.
    """
    wanted = DataSetManifest(
        version=VERSION, kind=kind, seed=DATA_SEED, samples=samples,
        validation=max(1, samples // VALIDATION_SHARE), sizes=sizes,
    )  # fmt: skip
    key = hashlib.sha256(msgspec.json.encode(wanted, order="sorted")).hexdigest()[:16]
    place = folder / f"{PREFIX}{kind}-{key}"
    try:
        with _locked(folder / f".{place.name}.lock"):
            require_own(place)
            if (found := _found(place, wanted)) is None:
                _write(place, wanted, report)
                found = _found(place, wanted)
    except OSError as error:
        raise RunRefused(f"The data set cannot be written to {folder}: {error.strerror or error}.") from error
    if found is None:
        raise RunRefused(f"The data set in {place} changes while it is written: something else writes there.")
    with contextlib.suppress(OSError):
        os.utime(place / MANIFEST)  # it is in use
    logger.info("Data: %d files of %s in %s.", samples, format_bytes(found.manifest.bytes / len(found.labels)), place)
    return found


def expected_bytes(manifest: DataSetManifest) -> float:
    """Return the estimated size of a data set on the drive."""
    count = manifest.samples + manifest.validation
    if manifest.kind == "texts":
        return float(count * text_bytes(manifest))
    side = manifest.sizes["image"]
    if manifest.kind == "digits":
        least, each = _DIGIT_BYTES
        return count * (least + each * side**2)
    usual, size = _FILE_BYTES[manifest.kind]
    return count * max(1000.0, size * (side / usual) ** 2)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock over the context; another process of this host waits until then."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _found(place: Path, wanted: DataSetManifest) -> StoredDataSet | None:
    """Return the data set of a folder; None where it is not there, or not whole."""
    try:
        manifest = msgspec.json.decode((place / MANIFEST).read_bytes(), type=DataSetManifest)
        labels = np.load(place / LABELS, allow_pickle=False)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
    is_wanted = msgspec.structs.replace(manifest, bytes=0, sha256="") == wanted
    if not is_wanted or len(labels) != wanted.samples + wanted.validation or _stored_bytes(place) != manifest.bytes:
        return None
    return StoredDataSet(folder=place, manifest=manifest, labels=labels)


def _stored_bytes(place: Path) -> int:
    return sum(file.stat().st_size for file in [*place.glob("*/*.jpg"), *place.glob("*.tokens")])


def _write(place: Path, wanted: DataSetManifest, report: Callable[[str], None]) -> None:
    """Write a data set beside its place, and put it there."""
    size, free = expected_bytes(wanted), shutil.disk_usage(place.parent).free
    if free < size * FREE_SPACE_FACTOR and _delete_unused(place.parent):
        free = shutil.disk_usage(place.parent).free
    if free < size * FREE_SPACE_FACTOR:
        raise RunRefused(
            f"{place.parent} has {format_bytes(free)} free; the data set takes about {format_bytes(size)}. "
            "Use fewer samples, or another drive."
        )
    new = place.with_name(f".{place.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # of a process that was killed
    try:
        new.mkdir(mode=0o755)
        labels, digests = _write_samples(new, wanted, report)
        np.save(new / LABELS, labels)
        manifest = msgspec.structs.replace(
            wanted, bytes=_stored_bytes(new), sha256=hashlib.sha256(b"".join(digests)).hexdigest()
        )
        (new / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        shutil.rmtree(place, ignore_errors=True)  # not whole
        new.rename(place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _delete_unused(folder: Path) -> int:
    """Delete the data sets of a folder that no run has used for UNUSED_SECONDS; returns how many."""
    limit = time.time() - UNUSED_SECONDS
    unused = [place.parent for place in folder.glob(f"{PREFIX}*/{MANIFEST}") if place.stat().st_mtime < limit]
    for place in unused:
        logger.info("Data: %s is deleted: it was not used for a month.", place)
        shutil.rmtree(place, ignore_errors=True)
    return len(unused)


def _write_samples(
    place: Path, wanted: DataSetManifest, report: Callable[[str], None]
) -> tuple[np.ndarray[Any, Any], list[bytes]]:
    """Write all samples with one process for each core; returns their labels and hashes."""
    count = wanted.samples + wanted.validation
    step = TEXTS_A_SHARD if wanted.kind == "texts" else _SAMPLES_A_TASK
    tasks = [(place, wanted, first, min(first + step, count)) for first in range(0, count, step)]
    for number in range(0 if wanted.kind == "texts" else math.ceil(count / 1000)):
        picture_path(place, number * 1000).parent.mkdir()
    labels: list[Any] = []
    digests: list[bytes] = []
    writers = min(len(os.sched_getaffinity(0)), len(tasks), _MOST_WRITERS)
    with contextlib.ExitStack() as stack:
        spread: Any = map
        if writers > 1:
            pool = ProcessPoolExecutor(writers, multiprocessing.get_context("fork"), die_with_parent)
            spread = stack.enter_context(pool).map
        for more_labels, more_digests in spread(_write_part, tasks):
            labels += more_labels
            digests += more_digests
            report(f"{len(digests)} of {count} samples are written.")
    return np.stack(labels), digests


def _write_part(task: tuple[Path, DataSetManifest, int, int]) -> tuple[list[Any], list[bytes]]:
    """Write the samples from one number to another; returns their labels and hashes."""
    from trainer.drawing import draw_digit, draw_image, draw_scene, write_text

    place, manifest, first, end = task
    draw = {"images": draw_image, "scenes": draw_scene, "digits": draw_digit, "texts": write_text}[manifest.kind]
    drawn = [draw(np.random.default_rng((manifest.seed, number)), manifest.sizes) for number in range(first, end)]
    if manifest.kind == "texts":
        _write_file(shard_path(place, first // TEXTS_A_SHARD), b"".join(content for content, _label in drawn))
    else:
        for number, (content, _label) in enumerate(drawn, first):
            _write_file(picture_path(place, number), content)
    return [label for _content, label in drawn], [hashlib.sha256(content).digest() for content, _label in drawn]


def _write_file(file: Path, content: bytes) -> None:
    """Write a file to the drive: the cache only forgets what has arrived there."""
    with file.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_uncached(file: Path, first: int, size: int) -> bytes:
    """Return a file, or `size` bytes of it, past the host's cache as far as it lets go. Raises OSError."""
    with file.open("rb", buffering=0) as stream:
        content = os.pread(stream.fileno(), size, first) if size else stream.read()
        if size and len(content) != size:
            raise OSError(f"{file} is shorter than expected.")
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return content
