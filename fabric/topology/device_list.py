"""The devices of all chassis as one table: filtered by words, sorted by any column, with values of now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.core.paginator import Page, Paginator
from django.db.models import Case, F, OuterRef, QuerySet, Subquery, When

from accounts.models import User
from core.database import natural
from core.errors import Unavailable
from core.language import _, english, gettext_noop
from fabric.agents.selectors import devices_on_hosts, holders_label
from fabric.inventory.device_filter import live_values
from fabric.inventory.labels import FOREIGN_HOST_PORT, host_port_name, slot_label
from fabric.inventory.models import Device, HostPort
from fabric.inventory.selectors import device_rows, downgraded
from fabric.leases.models import Lease, LeaseItem

DEVICES_A_PAGE = 40
MEASURES: Final = ("temp", "use", "traffic")


@dataclass(frozen=True)
class DeviceColumn:
    """A column that may be shown: its head in English, and by what the database sorts it (none: Python does)."""

    words: str
    order: tuple[Any, ...] = ()
    look: str = ""

    @property
    def label(self) -> str:
        """Its head."""
        return _(self.words)

    @property
    def is_number(self) -> bool:
        """Whether its cells are numbers."""
        return self.look == "number"


PLACE = (natural("chassis__name"), "slot__drawer__number", "slot__number", "uri")
COLUMNS: Final[Mapping[str, DeviceColumn]] = {
    "chassis": DeviceColumn(gettext_noop("Chassis"), PLACE),
    "slot": DeviceColumn(gettext_noop("Slot"), ("slot__drawer__number", "slot__number")),
    "kind": DeviceColumn(gettext_noop("Kind"), ("kind",)),
    "model": DeviceColumn(gettext_noop("Model"), (natural("model"),), "words"),
    "serial": DeviceColumn(gettext_noop("Serial number"), (natural("serial_number"),)),
    "firmware": DeviceColumn(gettext_noop("Firmware"), (natural("firmware_version"),)),
    "host": DeviceColumn(gettext_noop("Host"), (natural("seen_host"),)),
    "link": DeviceColumn(gettext_noop("Link"), ("lanes_in_use", "pcie_type")),
    "temp": DeviceColumn(gettext_noop("Temp. (°C)"), look="number"),
    "use": DeviceColumn(gettext_noop("Use (%)"), look="number"),
    "traffic": DeviceColumn(gettext_noop("Traffic (GB/s)"), look="number"),
    "tenant": DeviceColumn(gettext_noop("Tenant"), (natural("tenant__name"),), "words"),
    "users": DeviceColumn(gettext_noop("Used by"), look="words"),
    "lease_end": DeviceColumn(gettext_noop("Lease end"), ("lease_end",)),
}
DEFAULT_COLUMNS: Final = ("chassis", "slot", "kind", "host", "temp", "use", "traffic", "tenant", "lease_end")


@dataclass(frozen=True)
class DeviceRow:
    """A device in the table; what is not known is '' or None."""

    device: Device
    host: str
    values: Mapping[str, float | None]
    users: str

    @property
    def place(self) -> str:
        """Its drawer and slot."""
        return slot_label(self.device)

    @property
    def link(self) -> str:
        """Lanes and generation in use: 'x16 Gen3'."""
        lanes = f"x{self.device.lanes_in_use}" if self.device.lanes_in_use else ""
        return f"{lanes} {self.device.pcie_type}".strip()

    @property
    def downgraded(self) -> str:
        """How its link runs below its capability."""
        return downgraded(self.device)

    def cells(self) -> tuple[object, ...]:
        """Return the cells of a file, in the order of CSV_COLUMNS."""
        device = self.device
        lease_end: datetime | None = device.lease_end  # type: ignore[attr-defined]  # annotated
        return (
            device.name, device.chassis.name, self.place, device.kind, device.manufacturer, device.model,
            device.serial_number, device.firmware_version, english(self.host), self.link,
            english(self.downgraded),
            *(None if (value := self.values[name]) is None else round(value, 3) for name in MEASURES),
            device.tenant.name if device.tenant else "unassigned", english(self.users),
            f"{lease_end:%Y-%m-%d %H:%M}" if lease_end else "",
            "missing" if device.missing_since else "attached" if device.host_port_id else "detached",
        )  # fmt: skip


CSV_COLUMNS: Final = (
    "device", "chassis", "slot", "kind", "manufacturer", "model", "serial_number", "firmware", "host", "link",
    "below_capability", "temperature_celsius", "use_percent", "traffic_gigabytes_per_second", "tenant", "used_by",
    "lease_end_utc", "state",
)  # fmt: skip


class DeviceTable:
    """The devices that match the words of `search`, in the order of `sort` ('-temp': descending).

    `devices` (ids) keeps some of them. Raises Invalid for a wrong word, Unavailable where words need values of now.
    """

    def __init__(
        self, person: User, *, search: str = "", sort: str = "", devices: Collection[int] | None = None
    ) -> None:
        self.person = person
        self.sort = sort if sort.removeprefix("-") in {*COLUMNS, "name"} else "chassis"
        self.are_values_known = True
        held = LeaseItem.objects.filter(
            device=OuterRef("pk"), released_at=None, taken_at__isnull=False, lease__state__in=Lease.IN_EFFECT,
            lease__in=Lease.objects.visible_to(person),
        )  # fmt: skip
        seen = HostPort.objects.visible_to(person).order_by().values("pk")
        rows = device_rows(person, search=search).annotate(
            # By a host that the person may not see, nothing is sorted.
            seen_host=Case(When(host_port__in=seen, then=F("host_port__host__name"))),
            lease_end=Subquery(held.values("lease__ends_at")[:1]),
            lease_id=Subquery(held.values("lease")[:1]),
        )
        self.rows: QuerySet[Any] = rows if devices is None else rows.filter(pk__in=devices)

    def page(self, number: str | None) -> Page[Any]:
        """Return a page of DeviceRows."""
        page: Page[Any] = Paginator(self._sorted(), DEVICES_A_PAGE).get_page(number)
        page.object_list = self._shown(list(page.object_list))
        return page

    def all(self) -> Iterable[DeviceRow]:
        """Return all of it, in order."""
        return self._shown(list(self._sorted()))

    def _sorted(self) -> QuerySet[Any] | list[Device]:
        name, is_descending = self.sort.removeprefix("-"), self.sort.startswith("-")
        by = COLUMNS[name].order if name in COLUMNS else (natural("name"),)
        if by:
            fields = [F(one) if isinstance(one, str) else one for one in by]
            order = [one.desc(nulls_last=True) if is_descending else one.asc(nulls_last=True) for one in fields]
            return self.rows.order_by(*order, *PLACE, "pk")
        rows = list(self.rows.order_by(*PLACE, "pk"))
        keys: Mapping[int, Any] = _users(rows) if name == "users" else self._measured(rows)[name]
        known = sorted((row for row in rows if row.pk in keys), key=lambda row: keys[row.pk], reverse=is_descending)
        # What has no value comes last, in either order.
        return [*known, *(row for row in rows if row.pk not in keys)]

    def _shown(self, rows: Sequence[Device]) -> list[DeviceRow]:
        measured, users = self._measured(rows), _users(rows)
        return [
            DeviceRow(
                device=row,
                host=host_port_name(row.host_port)
                if row.host_port
                else _(FOREIGN_HOST_PORT)
                if row.host_port_id
                else "",
                values={name: measured[name].get(row.pk) for name in MEASURES},
                users=users.get(row.pk, ""),
            )
            for row in rows
        ]

    def _measured(self, rows: Sequence[Device]) -> dict[str, dict[int, float]]:
        """Return the values of devices by measure and id; none, and `are_values_known` False, without Redis."""
        try:
            values = live_values({row.chassis_id for row in rows})
        except Unavailable:
            self.are_values_known = False
            return {name: {} for name in MEASURES}
        found: dict[str, dict[int, float]] = {}
        for name in MEASURES:
            # Traffic is that of the slot's port.
            keys = {row.pk: (row.slot.port_id if row.slot else 0) if name == "traffic" else row.pk for row in rows}
            found[name] = {pk: values[name][key] for pk, key in keys.items() if key and key in values[name]}
        return found


def _users(rows: Sequence[Device]) -> dict[int, str]:
    """Return who uses devices, by their ids: of those whose host the person may see, and whose agent knows."""
    sides = devices_on_hosts([row for row in rows if row.host_port is not None])
    return {
        pk: holders_label(side.holders) or _("nobody")
        for pk, side in sides.items()
        if side.reported and not side.unsure
    }
