"""Quantities for display: three significant digits, a scaled unit, names instead of codes."""

from __future__ import annotations

from math import floor, log10
from typing import Final

from core.language import _

UNIT_SCALES: Final = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B/s": ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
    "B": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1.0, "B")),
    "share": ((0.01, "%"),),
    "1/s": ((1.0, "/s"),),
}
SIGNIFICANT_DIGITS: Final = 3  # for display; files and the API have all digits
MAX_DECIMALS: Final = 7


def unit_scale(value: float, unit: str) -> tuple[float, str]:
    """Return the scale and the name of the display unit of a value."""
    scales = UNIT_SCALES.get(unit, ((1.0, unit),))
    if value == 0:
        return next((one for one in scales if one[0] == 1.0), scales[-1])
    return next(((size, name) for size, name in scales if abs(value) >= size), scales[-1])


def format_number(value: float, like: float | None = None) -> str:
    """Return a number with three significant digits, integers in full; or with as many decimals as `like`."""
    reference = value if like is None else like
    if reference == 0 or (like is None and float(value).is_integer()):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.{SIGNIFICANT_DIGITS}g}"
    # Rounded first: 9.996 has three digits as 10.0.
    places = SIGNIFICANT_DIGITS - 1 - floor(log10(abs(float(f"{reference:.{SIGNIFICANT_DIGITS - 1}e}"))))
    return f"{value:,.{max(0, places)}f}" if places < MAX_DECIMALS else f"{value:.{SIGNIFICANT_DIGITS - 1}e}"


def value_text(value: float, unit: str) -> str:
    size, name = unit_scale(value, unit)
    return f"{format_number(value / size)} {name}".replace(" /s", "/s").strip()


def interval_text(value: float, low: float, high: float, unit: str) -> str:
    """Return both ends of an interval in the unit and with the decimals of its central value."""
    size, name = unit_scale(value, unit)
    first, last = (format_number(one / size, value / size) for one in (low, high))
    return _("{low} to {high} {unit}", low=first, high=last, unit=name).replace(" /s", "/s")


def duration_text(seconds: float | None) -> str:
    """Return a duration as '42 s', '3 min 5 s' or '2 h 10 min'; '' where there is none."""
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def deviation_text(share: float | None) -> str:
    """Return a relative error as text: 'off by +12 %', or that it is within one per cent."""
    if share is None:
        return ""
    return _("within 1 %") if abs(share) < 0.01 else _("off by {percent:+.0f} %", percent=share * 100)


def field_label(name: str) -> str:
    """Return the name of a field as words: 'Operating system'."""
    return name.replace("_", " ").capitalize()
