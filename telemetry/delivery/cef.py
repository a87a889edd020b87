"""Lines of the Common Event Format, versions 0 and 1: a header of seven fields and an extension of keys and values."""

from __future__ import annotations

from collections.abc import Mapping

from telemetry.delivery.syslog import one_line

# What the site calls severity, on CEF's scale of 0 to 10: low, high, very high.
SEVERITIES = {"OK": 2, "Warning": 6, "Critical": 9}


def cef(
    *,
    vendor: str,
    product: str,
    version: str,
    signature: str,
    name: str,
    severity: int | str,
    extension: Mapping[str, object],
    cef_version: int = 0,
) -> str:
    """Return one line; `severity` is 0 to 10 or a word of SEVERITIES, an extension's empty values are left out.

    Pipes and backslashes are escaped in the header, equals signs and backslashes in values, line ends there become
    backslash n and r; everything else is as `one_line` has it. Raises ValueError for a key that is none.
    """
    number = SEVERITIES[severity] if isinstance(severity, str) else severity
    if not 0 <= number <= 10 or cef_version not in {0, 1}:
        raise ValueError("severity is 0 to 10, the version 0 or 1")
    header = "|".join(_of_header(part) for part in (vendor, product, version, signature, name))
    texts = {_key(key): "" if value is None else _value(str(value)) for key, value in extension.items()}
    pairs = " ".join(f"{key}={text}" for key, text in texts.items() if text)
    return f"CEF:{cef_version}|{header}|{number}|{pairs}"


def _of_header(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|")


def _value(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("=", "\\=")
    return one_line(escaped.replace("\r", "\\r").replace("\n", "\\n"))


def _key(text: str) -> str:
    if not (text.isascii() and text.isalnum()):
        raise ValueError(f"'{text}' is no key of CEF")
    return text
