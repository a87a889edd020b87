"""The newest readings of the fleet and what runs on it, as rooms above report them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from accounts.models import User


@dataclass(frozen=True, kw_only=True)
class ChassisReadings:
    """The newest readings of what a person may see of a chassis; None where it reports none."""

    celsius: float | None = None  # of its hottest device
    utilisation: float | None = None  # mean of its devices, percent
    bytes_per_second: float | None = None  # both directions of its devices' ports
    watts: float | None = None  # of the chassis as a whole; for tenants the sum of their devices


@dataclass(frozen=True, kw_only=True)
class HotDevice:
    """One of the hottest devices; `limit` is that which it is beyond, or would be first, None where it has none.

    `level` is 'critical' or 'warning' beyond a limit, else ''.
    """

    chassis_id: int
    device_id: int
    celsius: float
    limit: float | None = None
    level: str = ""

    @property
    def key(self) -> str:
        """The key of its series."""
        return f"device/{self.device_id}/temperature_celsius"


@dataclass(frozen=True, kw_only=True)
class FleetReadings:
    """The newest readings by chassis, the hottest devices, and bytes/s of the last ten minutes, oldest first."""

    of: Mapping[int, ChassisReadings] = field(default_factory=dict)
    hottest: tuple[HotDevice, ...] = ()
    traffic: tuple[float | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunningWork:
    """Work of another room that runs now; `page` and `pk` link to it."""

    state: str
    title: str
    note: str
    page: str
    pk: object


ReadingSource = Callable[[User], FleetReadings]
WorkSource = Callable[[User], Iterable[RunningWork]]
_reading_sources: list[ReadingSource] = []
_work_sources: list[WorkSource] = []


def register_reading_source(source: ReadingSource) -> None:
    """Register where the newest readings of what a person may see come from."""
    _reading_sources[:] = [source]


def register_work_source(source: WorkSource) -> None:
    """Register a source of work that runs now: `source` returns what is visible to a user, oldest first."""
    if source not in _work_sources:
        _work_sources.append(source)


def fleet_readings(person: User) -> FleetReadings:
    """Return the newest readings of all that a person may see."""
    return next((source(person) for source in _reading_sources), FleetReadings())


def running_work(person: User) -> list[RunningWork]:
    """Return the work of rooms above that runs now, as far as a person may see it."""
    return [one for source in _work_sources for one in source(person)]
