"""The site for `perf.fanout`, whose sockets do not recheck what their persons may see during a measurement.

A recheck is a few queries each half minute, whatever is sent. Of those of two thousand sockets, a window of ten seconds
has a part that depends on how long the sockets took to open.
"""

from __future__ import annotations

from falconweb.asgi import application
from telemetry.live import consumers

__all__ = ["application"]

consumers.RECHECK_SECONDS = 3600.0
