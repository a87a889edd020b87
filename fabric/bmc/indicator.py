"""The LED that shows people which part of a rack is meant: LocationIndicatorActive, and the older IndicatorLED."""

from __future__ import annotations

from typing import Any

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import CompositionRefused, RequestRefused
from fabric.bmc.hardware import is_lit
from fabric.bmc.values import boolean

# Nothing of others is overwritten by one property, and the ETag of a resource with a clock never lasts until the write.
# Services that ask for one take any.
CONDITIONS = ("", "*")


async def set_indicator(bmc: BmcClient, uri: str, *, lit: bool) -> None:
    """Switch the LED of a resource and read it back.

    Raises CompositionRefused where the BMC has none, refuses, or does not do it; TaskFailed or another BmcError.
    """
    before = (await bmc.get(uri)).body
    if (was := is_lit(before)) is None:
        raise CompositionRefused("Its BMC offers no location LED.")
    if was is lit:
        return
    change: dict[str, Any] = {"LocationIndicatorActive": lit}
    if boolean(before, "LocationIndicatorActive") is None:
        change = {"IndicatorLED": "Blinking" if lit else "Off"}
    for condition in CONDITIONS:
        try:
            await bmc.finish(await bmc.patch(uri, change, etag=condition))
            break
        except RequestRefused as error:
            if error.answered not in {412, 428} or condition == CONDITIONS[-1]:
                raise CompositionRefused(error.reason or "Its BMC refused it.", answered=error.answered) from error
    if is_lit((await bmc.get(uri)).body) is not lit:
        raise CompositionRefused("Its BMC accepted it, but the LED is as before.")
