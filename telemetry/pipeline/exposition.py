"""The content of /metrics in the text format of Prometheus (version 0.0.4).

All samples of a metric have to be consecutive, and a thousand chassis are read one after the other: so the lines of
each metric are kept compressed until all are read (4 KB a chassis), and decompressed in pieces while they are sent.
"""

from __future__ import annotations

import contextlib
import math
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import redis
from django.conf import settings

from accounts.models import User
from core.errors import Invalid, NotFound, Unavailable
from fabric.bmc.readings import MAX_PERIOD
from fabric.inventory.models import Chassis
from telemetry.live.catalogue import StoredCatalogue
from telemetry.live.frames import Frame, recent_header, stored_catalogue, stored_counters, stored_frame
from telemetry.pipeline import metric_families as families
from telemetry.pipeline.site_metrics import site_metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CHASSIS_PER_BATCH = 20
STALE_SECONDS = 10.0  # readings older than this and than three periods are stale
PIECE_BYTES = 2**16
CHASSIS_UP = families.MetricFamily(
    "falconweb_chassis_up", "1 where the chassis answers; its readings are exported only then."
)
CHASSIS_INFO = families.MetricFamily("falconweb_chassis_info", "Model, serial number and firmware of a chassis.")
READ_AT = families.MetricFamily("falconweb_chassis_last_reading_timestamp_seconds", "Time of the newest readings.")
DEVICE_INFO = families.MetricFamily("falconweb_device_info", "Tenant, attachment and maximum link of a device.")
EXPECTED_LANES = families.MetricFamily("falconweb_port_link_expected_lanes", "Lanes that the link should use.")
OWN_FAMILIES = (CHASSIS_UP, CHASSIS_INFO, READ_AT, DEVICE_INFO, EXPECTED_LANES)
FAMILY_ORDER = [
    *OWN_FAMILIES,
    *sorted({family for family, _ in families.FAMILIES.values()}, key=lambda family: family.name),
]
FAMILY_PLACES = {family: place for place, family in enumerate(FAMILY_ORDER)}


# Catalogue, frame, counters and the frame before, undecoded.
RawReading = tuple[bytes | None, bytes | None, bytes | None, bytes | None]


def exposition(person: User, *, version: str, chassis: Sequence[str] = (), only: str = "") -> Iterator[bytes]:
    """Return the metrics that the person may see as text, in pieces.

    `version` is the site's; `chassis` selects names or ids, `only` the site's own metrics ('site', which belong to no
    chassis) or those of chassis ('chassis'). Raises Invalid, NotFound, and Unavailable without Redis, before the first
    piece.
    """
    if only not in {"", "site", "chassis"}:
        raise Invalid(f"'{only[:20]}' is no part of the metrics.", errors={"only": "site or chassis, or leave it out."})
    if only == "site" and chassis:
        sentence = "The site's own metrics are of no chassis: leave out 'chassis', or 'only'."
        raise Invalid(sentence, errors={"only": sentence})
    ids = _selected_chassis(person, chassis)
    begins: list[bytes] = []
    try:
        packs = _compressed_lines(person, ids) if only != "site" else []
        if only != "chassis" and not chassis:
            begins = [site_metrics(person, version)]
    except (redis.RedisError, OSError) as error:
        raise Unavailable("The newest readings are not available now: Redis does not answer.") from error
    return _decompressed(begins, packs)


def gzip_pieces(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces as one gzip file."""
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
    for piece in pieces:
        if part := compressor.compress(piece):
            yield part
    yield compressor.flush()


def _selected_chassis(person: User, names: Sequence[str]) -> list[int]:
    rows = dict(Chassis.objects.visible_to(person).filter(enabled=True).values_list("name", "pk"))
    if not names:
        return list(rows.values())
    by_id = {str(pk): pk for pk in rows.values()}
    found = {text: rows.get(text, by_id.get(text)) for text in names}
    if missing := [text for text, pk in found.items() if pk is None]:
        raise NotFound(f"There is no chassis '{missing[0][:100]}' that is polled.")
    return list(dict.fromkeys(pk for pk in found.values() if pk is not None))


def _compressed_lines(person: User, ids: Sequence[int]) -> list[list[bytes]]:
    """Return the compressed text of each metric with samples, in FAMILY_ORDER."""
    packs: list[tuple[Any, list[bytes]] | None] = [None] * len(FAMILY_ORDER)
    with redis.Redis.from_url(settings.REDIS_URL, **settings.REDIS_TIMEOUTS) as client:
        for begin in range(0, len(ids), CHASSIS_PER_BATCH):
            block = ids[begin : begin + CHASSIS_PER_BATCH]
            labels, newest = families.chassis_labels(person, block), _newest(client, block)
            lines: list[list[str]] = [[] for _ in FAMILY_ORDER]
            now = time.time()
            for pk in block:
                if pk in labels:
                    _append_chassis(labels[pk], newest[pk], now, lines)
            for place, some in enumerate(lines):
                if some:
                    text = "".join(some)
                    if (pack := packs[place]) is None:
                        pack = packs[place] = zlib.compressobj(1), []
                        text = FAMILY_ORDER[place].header() + text
                    pack[1].append(pack[0].compress(text.encode()))
    return [[*parts, pack.flush()] for pack, parts in filter(None, packs)]


def _decompressed(begins: list[bytes], packs: list[list[bytes]]) -> Iterator[bytes]:
    yield from begins
    for parts in packs:
        unpack = zlib.decompressobj()
        for part in parts:
            text = unpack.decompress(part, PIECE_BYTES)
            while text:
                yield text
                text = unpack.decompress(unpack.unconsumed_tail, PIECE_BYTES)


def _newest(client: Any, ids: Sequence[int]) -> dict[int, RawReading]:
    """Return the newest readings of chassis undecoded: decoded, they take ten times the memory."""
    pipe = client.pipeline(transaction=False)
    for pk in ids:
        pipe.get(f"live:catalogue:{pk}").get(f"live:frame:{pk}").get(f"live:counted:{pk}")
        pipe.lindex(f"live:recent:{pk}", -2)
    # A value of another type than it should have is not there.
    results = [one if isinstance(one, bytes) else None for one in pipe.execute(raise_on_error=False)]
    readings = zip(results[::4], results[1::4], results[2::4], results[3::4], strict=True)
    return dict(zip(ids, readings, strict=True))


def _max_age(frame: Frame, before: bytes | None) -> float:
    """Return how old a frame may be, s: three periods, which some chassis learn (fabric.bmc.readings)."""
    period = settings.CONFIG.reading_period
    if before is not None:
        with contextlib.suppress(ValueError):
            period = max(period, min(frame.at - recent_header(before)[1], MAX_PERIOD))
    return max(STALE_SECONDS, 3 * period)


def _append_chassis(labels: families.ChassisLabels, newest: RawReading, now: float, lines: list[list[str]]) -> None:
    name = families.format_labels(chassis=labels.name)
    catalogue, frame = stored_catalogue(newest[0]), stored_frame(newest[1])
    if catalogue is None or frame is None or frame.revision != catalogue.revision:
        frame = None  # the catalogue may change between reading the two keys
    elif len(frame.values) != len(catalogue.series):
        frame = None
    fresh = frame is not None and now - frame.at <= _max_age(frame, newest[3])
    # For a chassis without readings, its walks determine whether it answers.
    up = fresh if catalogue is not None and catalogue.series else labels.is_answering
    lines[FAMILY_PLACES[CHASSIS_UP]].append(f"{CHASSIS_UP.name}{{{name}}} {int(up)}\n")
    lines[FAMILY_PLACES[CHASSIS_INFO]].append(f"{CHASSIS_INFO.name}{{{labels.about}}} 1\n")
    if frame is not None:
        lines[FAMILY_PLACES[READ_AT]].append(f"{READ_AT.name}{{{name}}} {frame.at:.3f}\n")
    if not up:
        return
    lines[FAMILY_PLACES[DEVICE_INFO]].extend(f"{DEVICE_INFO.name}{{{text}}} 1\n" for text in labels.devices)
    lines[FAMILY_PLACES[EXPECTED_LANES]].extend(f"{EXPECTED_LANES.name}{{{text}}} {n}\n" for text, n in labels.lanes)
    if frame is not None and catalogue is not None:
        # In the order of the catalogue's byte counters.
        counters = stored_counters(newest[2], catalogue.revision)
        _append_readings(labels, catalogue, frame, counters, lines)


def _append_readings(
    labels: families.ChassisLabels,
    catalogue: StoredCatalogue,
    frame: Frame,
    counters: list[float],
    lines: list[list[str]],
) -> None:
    found: list[tuple[families.MetricFamily, float]] = []
    texts: list[tuple[int, str, str]] = []
    counted = iter(counters)
    for series, live in zip(catalogue.series, frame.values.tolist(), strict=True):
        known = families.FAMILIES.get((series["object"], series["quantity"]))
        # Consume each byte counter, also of series that are not visible: they are in order.
        value = next(counted, math.nan) if known is not None and known[1].is_counted else live
        text = labels.objects.get((series["object"], series["id"]))
        if known is None or text is None or not math.isfinite(value):
            continue
        family, measured = known
        before = labels.counted.get(series["key"], 0)
        found.append((family, _scaled(value - before if value >= before else value, measured)))
        texts.append((FAMILY_PLACES[family], text + families.distinguishing_label(series, measured), series["key"]))
    for (family, value), (place, _, _), text in zip(found, texts, families.unique_labels(texts), strict=True):
        lines[place].append(f"{family.name}{{{text}}} {value!r}\n")


def _scaled(value: float, measured: families.MeasuredQuantity) -> float:
    if measured.is_link_status:
        return 1.0 if value == families.LINK_UP_VALUE else 0.0
    return value if measured.factor == 1.0 else value * measured.factor
