"""The parts of all chassis, and who is affected where one of them is reset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from django.core.paginator import Page, Paginator
from django.db.models import Count, F, Q, QuerySet

from accounts.approvals.models import Danger
from accounts.approvals.services import Proposal
from accounts.audit.services import target_of
from accounts.models import User
from core.database import natural
from core.language import gettext_noop, join_words
from fabric.agents.selectors import DeviceOnHost, devices_on_hosts, holders_label
from fabric.bmc.update_service import RedfishUpdateService
from fabric.inventory.labels import host_port_name, slot_label
from fabric.inventory.models import Device, ManagedPart, Walk
from fabric.inventory.selectors import interrupted_devices
from fabric.leases.models import Lease, LeaseItem
from fabric.maintenance.models import FirmwareImage
from fabric.operations.models import Plan
from fabric.operations.rules import RESET_LABELS, reset_label
from fabric.operations.services import DEVICE_HOLD_SOURCES
from fabric.plans.rules import DesiredState

PARTS_A_PAGE: Final = 50
DRAIN_ORIGIN: Final = "firmware"
SORTED_BY: Final = {
    "name": (natural("chassis__name"), "kind", natural("uri")), "kind": ("kind",), "model": (natural("model"),),
    "version": (natural("version"),),
}  # fmt: skip
CSV_COLUMNS: Final = (
    gettext_noop("Chassis"), gettext_noop("Part"), gettext_noop("Kind"), gettext_noop("Manufacturer"),
    gettext_noop("Model"), gettext_noop("Serial number"), gettext_noop("Version"),
    gettext_noop("Version of most like it"), gettext_noop("Location LED"), gettext_noop("Power"),
)  # fmt: skip
LikeParts = tuple[str, str, str]  # kind, manufacturer and model


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """A part; `usual` is the version of most parts like it where its own differs, else ''."""

    part: ManagedPart
    usual: str

    def cells(self) -> tuple[object, ...]:
        """Return the cells of a file, in the order of CSV_COLUMNS."""
        one = self.part
        led = "" if one.is_lit is None else "on" if one.is_lit else "off"
        return (
            one.chassis.name, one.name, one.kind, one.manufacturer, one.model, one.serial_number, one.version,
            self.usual, led, one.power_state,
        )  # fmt: skip


def managed_part_rows(person: User) -> QuerySet[ManagedPart]:
    """Return the parts that the person may see, with what their labels need."""
    return ManagedPart.objects.visible_to(person).select_related("chassis", "device__slot__drawer")


class PartTable:
    """The parts that match: `search` in their texts, `kind`, `differing` from most of their like."""

    def __init__(
        self, person: User, *, search: str = "", kind: str = "", differing: bool = False, sort: str = "name",
        chassis: int | None = None,
    ) -> None:  # fmt: skip
        rows = managed_part_rows(person).filter(missing_since=None)
        self.usual = _usual_versions(rows)
        for word in search.split():
            texts = ("name", "chassis__name", "model", "manufacturer", "serial_number", "version")
            match = Q()
            for name in texts:
                match |= Q((f"{name}__icontains", word))
            rows = rows.filter(match)
        if kind:
            rows = rows.filter(kind=kind)
        if chassis is not None:
            rows = rows.filter(chassis=chassis)
        if differing:
            found = rows.select_related(None).only("kind", "manufacturer", "model", "version")
            rows = rows.filter(pk__in=[one.pk for one in found if self._usual_of(one)])
        self.sort = sort if sort.removeprefix("-") in SORTED_BY else "name"
        order = [F(one) if isinstance(one, str) else one for one in SORTED_BY[self.sort.removeprefix("-")]]
        self.rows = rows.order_by(*(one.desc() if self.sort.startswith("-") else one.asc() for one in order), "pk")

    def page(self, number: str | None) -> Page[Any]:
        """Return a page of PartRows."""
        page: Page[Any] = Paginator(self.rows, PARTS_A_PAGE).get_page(number)
        page.object_list = self.shown(list(page.object_list))
        return page

    def shown(self, rows: Iterable[ManagedPart]) -> list[PartRow]:
        """Return rows as they are shown."""
        return [PartRow(part=one, usual=self._usual_of(one)) for one in rows]

    def _usual_of(self, one: ManagedPart) -> str:
        usual = self.usual.get((one.kind, one.manufacturer, one.model), one.version)
        return usual if one.version and usual != one.version else ""


def _usual_versions(rows: QuerySet[ManagedPart]) -> dict[LikeParts, str]:
    """Return the version of most parts of a kind and model; the newest-named of several that are as many."""
    counts: dict[LikeParts, Counter[str]] = {}
    like = rows.exclude(Q(version="") | Q(model="")).order_by()
    for kind, manufacturer, model, version, count in like.values_list(
        "kind", "manufacturer", "model", "version"
    ).annotate(count=Count("pk")):
        counts.setdefault((kind, manufacturer, model), Counter())[version] = count
    return {key: max(found, key=lambda version: (found[version], version)) for key, found in counts.items()}


@dataclass(frozen=True, kw_only=True)
class AffectedDevice:
    """An attached device that a reset of a part may interrupt: whose it is, where it is, and who uses it."""

    device: Device
    tenant: str
    host: str
    users: str

    @property
    def sentence(self) -> str:
        """Say it in one line, for the API and the audit log."""
        who = ", ".join(one for one in (self.tenant, self.users) if one)
        return f"{self.device.name} ({slot_label(self.device)}) on {self.host}" + (f": {who}" if who else "")


def affected_devices(part: ManagedPart, *, by_update: bool = False) -> list[AffectedDevice]:
    """Return the attached devices that a reset, or an update, of a part may interrupt, whoever has them.

    What a new firmware of a BMC does is not known: it may interrupt everything of its chassis.
    """
    devices = interrupted_devices(part)
    if by_update and part.kind == ManagedPart.Kind.BMC:
        devices = Device.objects.filter(chassis=part.chassis_id)
    attached = devices.filter(host_port__isnull=False)
    rows = list(attached.select_related("tenant", "host_port__host", "slot__drawer").order_by("pk"))
    sides = devices_on_hosts(rows)
    held: dict[int, list[str]] = {row.pk: [] for row in rows}
    for claims in DEVICE_HOLD_SOURCES if rows else ():
        for pk, sentence in claims(list(held), "").items():
            held[pk].append(sentence)
    return [
        AffectedDevice(
            device=row,
            tenant=row.tenant.name if row.tenant is not None else "",
            host=host_port_name(row.host_port),
            users=join_words(names) if (names := [*held[row.pk], *_holders(sides[row.pk])]) else "",
        )
        for row in rows
    ]


def undrained_devices(part: ManagedPart) -> list[AffectedDevice]:
    """Return the attached devices that keep a part from an update: those of a BMC can be confirmed instead."""
    return [] if part.kind == ManagedPart.Kind.BMC else affected_devices(part, by_update=True)


def update_service(part: ManagedPart) -> RedfishUpdateService | None:
    """Return how the service of a part takes images, as of the newest walk; None where it updates no such part."""
    found = Walk.objects.filter(chassis=part.chassis_id).values_list("found__update_service", flat=True).first()
    if not found or not part.software_uri or not part.is_updateable or part.missing_since is not None:
        return None
    service = msgspec.convert(found, RedfishUpdateService)
    return service if service.simple_update_target or service.takes_pushes else None


def drain_plan(part: ManagedPart) -> Plan | None:
    """Return the newest plan that detached devices of a part for an update; None where nothing of it is detached."""
    plans = Plan.objects.filter(origin=DRAIN_ORIGIN, title=drain_title(part)).exclude(state=Plan.State.DRAFT)
    plan = plans.order_by("-created_at").first()
    drained = DesiredState.from_json(plan.wanted).attachments if plan is not None else ()
    return plan if Device.objects.filter(pk__in=drained, missing_since=None, host_port=None).exists() else None


def drain_title(part: ManagedPart) -> str:
    """Return the title of a plan that detaches the devices of a part."""
    return f"Drain {part.label} for an update"[:200]


def lease_holds(devices: Collection[int]) -> list[LeaseItem]:
    """Return what leases in effect hold of these devices (ids)."""
    held = LeaseItem.objects.filter(
        device__in=devices, released_at=None, taken_at__isnull=False, lease__state__in=Lease.IN_EFFECT
    )
    return list(held.select_related("lease", "device").order_by("device"))


def _holders(side: DeviceOnHost) -> list[str]:
    return [label] if (label := holders_label(side.holders)) else []


def reset_choices(part: ManagedPart) -> list[tuple[str, str]]:
    """Return the resets that a part's service offers, with their labels; all where it lists none."""
    if not part.reset_uri:
        return []
    return [(one, reset_label(one)) for one in RESET_LABELS if not part.reset_types or one in part.reset_types]


def reset_proposal(*, part: ManagedPart, reset_type: str, **_: Any) -> Proposal:
    """Return what a requested reset would do, and to whom."""
    return Proposal(
        dangers=[Danger.POWER],
        target=target_of(part, part.label),
        sentence=f"Reset {part.label} ({reset_type}).",
        facts={"power": part.power_state, "affected": [one.sentence for one in affected_devices(part)]},
    )


def firmware_proposal(
    *, part: ManagedPart, image_uri: str = "", image: FirmwareImage | None = None, **_: Any
) -> Proposal:
    """Return what a requested update would do."""
    source = f"{image.name} (SHA-256 {image.sha256})" if image is not None else image_uri
    return Proposal(
        dangers=[Danger.FIRMWARE],
        target=target_of(part, part.label),
        sentence=f"Update the firmware of {part.label} from {source}.",
        facts={"version": part.version, "attached": [one.sentence for one in affected_devices(part, by_update=True)]},
    )
