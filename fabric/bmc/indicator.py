"""The LED that shows people which part of a rack is meant: LocationIndicatorActive, and the older IndicatorLED."""

from __future__ import annotations

from typing import Any

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import CompositionRefused, RequestRefused
from fabric.bmc.hardware import is_lit
from fabric.bmc.values import boolean

# A resource whose ETag covers a clock changes between read and write.
MAX_ATTEMPTS = 4


async def set_indicator(bmc: BmcClient, uri: str, *, lit: bool) -> None:
    """Switch the LED of a resource and read it back.

    Raises CompositionRefused where the BMC has none, refuses, or does not do it; TaskFailed or another BmcError.
    """
    for attempt in range(1, MAX_ATTEMPTS + 1):
        before = await bmc.get(uri)
        if (was := is_lit(before.body)) is None:
            raise CompositionRefused("Its BMC offers no location LED.")
        if was is lit:
            return
        change: dict[str, Any] = {"LocationIndicatorActive": lit}
        if boolean(before.body, "LocationIndicatorActive") is None:
            change = {"IndicatorLED": "Blinking" if lit else "Off"}
        try:
            await bmc.finish(await bmc.patch(uri, change, etag=before.etag))
            break
        except RequestRefused as error:
            if error.answered != 412 or attempt == MAX_ATTEMPTS:
                raise CompositionRefused(error.reason or "Its BMC refused it.", answered=error.answered) from error
    if is_lit((await bmc.get(uri)).body) is not lit:
        raise CompositionRefused("Its BMC accepted it, but the LED is as before.")
