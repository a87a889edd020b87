"""Metric reports as services send them, valid or not."""

from __future__ import annotations

import json
import math

import msgspec

from fabric.bmc.errors import Malformed
from fabric.bmc.json_bounds import count_values
from fabric.bmc.series import LINK_STATUSES

MAX_REPORT_VALUES = 2_000_000  # values and names in a report: 200,000 readings with their units and times


class MetricValue(msgspec.Struct, rename="pascal", gc=False):
    """One value of a MetricReport; some services give numbers where the schema requires strings."""

    metric_property: str = ""
    metric_value: str | float | bool | None = None


class MetricReport(msgspec.Struct, rename="pascal"):
    """The part of a MetricReport that is read each second."""

    metric_values: list[MetricValue]
    timestamp: str | None = None


DECODER = msgspec.json.Decoder(MetricReport)


def parse_report(raw: bytes, host: str) -> MetricReport:
    """Return the report in these bytes; an entry that violates the schema is dropped alone. Raises Malformed."""
    # A report of fewer bytes cannot have so many values, and what the schema does not know is skipped, however deep.
    if len(raw) > MAX_REPORT_VALUES:
        count_values(raw, where=host, most=MAX_REPORT_VALUES)
    try:
        return DECODER.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _parse_report_leniently(raw, host)


def _parse_report_leniently(raw: bytes, host: str) -> MetricReport:
    """Return the usable part of a report with NaN, Infinity, objects or other invalid values.

    An entry without a name is left out; a value that is neither text nor number is None.
    """
    count_values(raw, where=host, most=MAX_REPORT_VALUES)
    try:
        # Accepts NaN and Infinity, which JSON does not have, and numbers of any size.
        found = json.loads(raw.decode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{host} sent a metric report that cannot be read.") from error
    entries = found.get("MetricValues") if isinstance(found, dict) else None
    named = [
        MetricValue(entry["MetricProperty"], _scalar(entry.get("MetricValue")))
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("MetricProperty"), str) and entry["MetricProperty"]
    ]
    if not named:
        raise Malformed(f"{host} sent a metric report that cannot be read.")
    at = found.get("Timestamp")
    return MetricReport(named, at if isinstance(at, str) else None)


def _scalar(value: object) -> str | float | None:
    """Return a JSON value if it is a text, or a finite number that fits into 64 bits."""
    if isinstance(value, str):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def metric_number(value: object) -> float:
    """Return a metric value as a number: link states by their index in LINK_STATUSES, NaN if it is not a number."""
    if isinstance(value, str):
        known = LINK_STATUSES.get(value)
        if known is not None:
            return known
        try:
            number = float(value)
        except ValueError:
            return math.nan
        return number if math.isfinite(number) else math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return math.nan
