"""A plan as a picture: the slots of each drawer that it changes, before and after, by the letters of host ports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final

from accounts.models import User
from core.database import natural
from core.language import _, gettext_noop
from fabric.inventory.models import Device, Drawer, Slot
from fabric.operations.models import Plan
from fabric.plans.rules import DesiredState
from fabric.plans.serialization import host_port_names, visible_rows

DRAWERS_DRAWN: Final = 12
DETACHED: Final = "–"
OTHERS: Final = gettext_noop("others’")  # of another tenant, or of nobody, as in the legend of the fleet


@dataclass(frozen=True, kw_only=True)
class StripCell:
    """A slot: the letters of its device's host port before and after ('' for an empty slot), and both in words."""

    number: int
    before: str
    after: str
    before_words: str
    after_words: str

    @property
    def is_changed(self) -> bool:
        """Whether the plan moves its device."""
        return self.before_words != self.after_words


@dataclass(frozen=True, kw_only=True)
class DrawerStrip:
    """A drawer's slots in order, and what the letters stand for."""

    name: str
    cells: tuple[StripCell, ...]
    legend: tuple[tuple[str, str], ...]


def drawer_strips(person: User, plan: Plan) -> tuple[DrawerStrip, ...]:
    """Return the drawers whose devices a plan moves, as the person may see them: the first of many, in four queries."""
    wanted, base = DesiredState.from_json(plan.wanted), DesiredState.from_json(plan.base).attachments
    moved = {pk for pk, to in wanted.attachments.items() if pk in base and base[pk] != to}
    seen = visible_rows(Device.objects.select_related("slot"), person, set(base))
    drawers = sorted({row.slot.drawer_id for pk, row in seen.items() if pk in moved and row.slot is not None} - {None})
    names = host_port_names({*base.values(), *wanted.attachments.values()}, person)
    slots: dict[int | None, list[Slot]] = defaultdict(list)
    shown = drawers[:DRAWERS_DRAWN]
    for slot in Slot.objects.filter(drawer__in=shown, missing_since=None).select_related("device").order_by("number"):
        slots[slot.drawer_id].append(slot)
    found = Drawer.objects.select_related("chassis").filter(pk__in=shown).order_by(natural("chassis__name"), "number")
    after = {**base, **{pk: wanted.attachments[pk] for pk in moved}}
    return tuple(_strip(drawer, slots[drawer.pk], (base, after), names, set(seen)) for drawer in found)


def _strip(
    drawer: Drawer,
    slots: list[Slot],
    attached: tuple[Mapping[int, int | None], Mapping[int, int | None]],
    names: Mapping[int | None, str],
    seen: Collection[int],
) -> DrawerStrip:
    """Return one drawer; a device that the person may not see is that of others, wherever it is."""
    no_host, others = names[None], _(OTHERS)
    words: list[tuple[int, str, str]] = []
    for slot in slots:
        device = getattr(slot, "device", None)
        if device is None:
            words.append((slot.number, "", ""))
        elif device.pk not in seen:
            words.append((slot.number, others, others))
        else:
            before, after = (names.get(one.get(device.pk), no_host) for one in attached)
            words.append((slot.number, before, after))
    used = {place for _slot, *both in words for place in both}
    places = sorted(used - {"", no_host, others})
    letters = {"": "", no_host: DETACHED, others: "×", **dict(zip(places, ascii_uppercase, strict=False))}
    return DrawerStrip(
        name=f"{drawer.chassis.name} {drawer.name}",
        cells=tuple(
            StripCell(
                number=number,
                before=letters.get(before, "?"),
                after=letters.get(after, "?"),
                before_words=before or _("empty"),
                after_words=after or _("empty"),
            )
            for number, before, after in words
        ),
        legend=tuple((letters[one], one) for one in (*places, no_host, others) if one in used and one in letters),
    )
