"""Drift as a user sees it: the parts that differ from the approved state, since when, by whom, and the actions.

Rows of drift contain words that may name hosts. Only this module discloses them, to users who may see the hosts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from django.db.models import Q, QuerySet

from accounts.models import User
from core.language import _, gettext_noop
from core.zones import local_words
from fabric.drift.models import Drift
from fabric.inventory.labels import FOREIGN_HOST_PORT, host_port_name
from fabric.inventory.models import Device, Drawer, Host, HostPort, Port
from fabric.inventory.selectors import drawers_changeable, may_move_cable, ports_configurable
from fabric.operations.models import Operation
from fabric.operations.rules import MODE_VALUE_LABELS, port_type_label

Kind = Drift.Kind
DriftNotes = dict[tuple[str, int], str]
FOREIGN_HOST: Final = gettext_noop("another host")
# Columns of a drift that whoever sees it may read as they are.
COLUMNS = (
    "id", "kind", "chassis_id", "device_id", "what", "not_before", "noticed_at", "cause", "changed_at", "originator",
    "ended_at", "end", "ended_by_name",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DriftView:
    """A drift as a user may read it; `page` and `part_id` link to its part."""

    id: int
    kind: str
    kind_label: str
    chassis_id: int
    chassis_name: str
    device_id: int | None
    what: str
    page: str
    part_id: int | None
    expected: str
    found: str
    sentence: str
    not_before: datetime | None
    noticed_at: datetime
    cause: str
    because: str
    changed_at: datetime | None
    originator: str
    operation_id: UUID | None
    ended_at: datetime | None
    end: str
    end_words: str
    ended_by_name: str
    ended_in_id: UUID | None
    may_accept: bool
    may_reapply: bool


@dataclass(frozen=True, kw_only=True)
class DriftVisibility:
    """The host ports, hosts and operations of some drifts that a user may see, and the parts they may change."""

    person: User
    host_ports: dict[int, str]  # to their present labels
    hosts: dict[int, str]
    operations: frozenset[UUID]
    drawers: frozenset[int]  # whose mode the user may change
    ports: frozenset[int]  # that the user may configure

    def words(self, drift: Drift, state: str, words: str) -> str:
        """Return one side of a drift in words that the user may read; of an open one, with present names."""
        match drift.kind:
            case Kind.ATTACHMENT | Kind.CABLE if not state:
                return _("no host")
            case Kind.ATTACHMENT | Kind.CABLE:
                attached = drift.kind == Kind.ATTACHMENT
                known = (self.host_ports if attached else self.hosts).get(int(state))
                if known is None:
                    return _(FOREIGN_HOST_PORT if attached else FOREIGN_HOST)
                return known if drift.is_open else words
            case Kind.MODE:
                return _(MODE_VALUE_LABELS.get(words, words))
            case Kind.PORT:
                kind, _slash, width = words.partition("/")
                return f"{port_type_label(kind)}{f', x{width}' if width else ''}"
        return words

    def is_theirs(self, drift: Drift) -> bool:
        """Return whether the user may decide on the state of the part."""
        if self.person.is_administrator:
            return True
        if not self.person.may_compose:
            return False
        match drift.kind:
            case Kind.ATTACHMENT:
                return not drift.found or int(drift.found) in self.host_ports
            case Kind.MODE:
                return drift.drawer_id in self.drawers
            case Kind.PORT:
                return drift.port_id in self.ports
            case Kind.CABLE:
                return may_move_cable(self.person)
        return False

    def may_reapply(self, drift: Drift) -> bool:
        """Return whether the user may re-apply the approved state; a replaced device cannot be re-applied.

        Drift of a chassis that is only monitored must be corrected in the lab, too.
        """
        if drift.kind == Kind.DEVICE or not drift.chassis.is_composable or not self.is_theirs(drift):
            return False
        if drift.kind == Kind.ATTACHMENT and not self.person.is_administrator:
            return not drift.expected or int(drift.expected) in self.host_ports
        return True


def drift_rows(
    person: User, *, chassis: int | None = None, device: int | None = None, is_open: bool | None = None
) -> QuerySet[Drift]:
    """Return drift, newest first: open, ended (`is_open` False), or both."""
    rows: QuerySet[Drift] = Drift.objects.visible_to(person).select_related("chassis", "operation", "host_port")
    if chassis is not None:
        rows = rows.filter(chassis=chassis)
    if device is not None:
        rows = rows.filter(device=device)
    if is_open is not None:
        rows = rows.filter(ended_at__isnull=is_open)
    return rows if is_open is not False else rows.order_by("-ended_at", "-pk")


def drift_views(person: User, rows: Iterable[Drift]) -> list[DriftView]:
    """Return rows of `drift_rows` as the user may read them, in at most seven queries."""
    rows = list(rows)
    visibility = drift_visibility(person, rows)
    return [_view(row, visibility) for row in rows]


def part_drifts(person: User, part: Device | Drawer | Port) -> list[DriftView]:
    """Return the drift of a part: of a drawer its mode and the cables of its host ports."""
    rows = drift_rows(person, chassis=part.chassis_id, is_open=True)
    match part:
        case Device():
            rows = rows.filter(device=part)
        case Drawer():
            rows = rows.filter(Q(drawer=part) | Q(host_port__drawer=part, kind=Kind.CABLE))
        case _:
            rows = rows.filter(Q(port=part) | Q(host_port__port=part, kind=Kind.CABLE))
    return drift_views(person, rows)


def drift_visibility(person: User, rows: Collection[Drift]) -> DriftVisibility:
    """Return the visibility of these rows for the user."""
    states = [(row.kind, state) for row in rows for state in (row.expected, row.found) if state]
    ports = [int(state) for kind, state in states if kind == Kind.ATTACHMENT]
    hosts = [int(state) for kind, state in states if kind == Kind.CABLE]
    operations = [pk for row in rows for pk in (row.operation_id, row.ended_in_id) if pk is not None]
    return DriftVisibility(
        person=person,
        host_ports={row.pk: host_port_name(row) for row in _visible(HostPort, person, ports).select_related("host")},
        hosts={row.pk: row.name for row in _visible(Host, person, hosts)},
        operations=frozenset(row.pk for row in _visible(Operation, person, operations)),
        drawers=frozenset(drawers_changeable(person, _ids(rows, Kind.MODE))),
        ports=frozenset(ports_configurable(person, _ids(rows, Kind.PORT))),
    )


def _ids(rows: Iterable[Drift], kind: Drift.Kind) -> set[int]:
    """Return the ids of the drawers, or of the ports, that rows of a kind are about."""
    pks = (row.drawer_id if kind == Kind.MODE else row.port_id for row in rows if row.kind == kind)
    return {pk for pk in pks if pk is not None}


def _visible(model: Any, person: User, pks: list[Any]) -> QuerySet[Any]:
    rows: QuerySet[Any] = model.objects.visible_to(person)
    return rows.filter(pk__in=pks) if pks else rows.none()


def drift_notes(person: User, chassis: Collection[int]) -> DriftNotes:
    """Return the approved state, in words, of each device, drawer and host port ('device', id) that differs from it."""
    rows = list(Drift.objects.visible_to(person).open().filter(chassis__in=chassis).exclude(kind=Kind.PORT))
    if not rows:
        return {}
    visibility = drift_visibility(person, rows)
    notes: DriftNotes = {}
    for row in sorted(rows, key=lambda row: row.kind == Kind.DEVICE):
        for name, pk in (("device", row.device_id), ("drawer", row.drawer_id), ("host-port", row.host_port_id)):
            if pk is not None:
                notes[name, pk] = visibility.words(row, row.expected, row.expected_words)
    return notes


def _sentence(row: Drift, found: str, expected: str) -> str:
    """Return an open drift in one sentence."""
    values = {"part": row.what, "found": found, "approved": expected}
    match row.kind:
        case Kind.ATTACHMENT:
            return _("{part} is attached to {found}, approved is {approved}.", **values)
        case Kind.DEVICE:
            return _("{part} was replaced: found is {found}, approved is {approved}.", **values)
        case Kind.MODE:
            return _("{part} is in mode ‘{found}’, approved is ‘{approved}’.", **values)
        case Kind.CABLE:
            return _("{part} is cabled to {found}, approved is {approved}.", **values)
    return _("Port {part} is configured as {found}, approved is {approved}.", **values)


def _view(row: Drift, visibility: DriftVisibility) -> DriftView:
    page, part_id = _page_of(row)
    expected = visibility.words(row, row.expected, row.expected_words)
    found = visibility.words(row, row.found, row.found_words)
    return DriftView(
        **{name: getattr(row, name) for name in COLUMNS},
        kind_label=row.get_kind_display(),
        chassis_name=row.chassis.name,
        page=page,
        part_id=part_id,
        expected=expected,
        found=found,
        sentence=_sentence(row, found, expected),
        because=_cause_sentence(row, visibility),
        operation_id=row.operation_id if row.operation_id in visibility.operations else None,
        end_words=_end_label(row),
        ended_in_id=row.ended_in_id if row.ended_in_id in visibility.operations else None,
        may_accept=row.is_open and visibility.is_theirs(row),
        may_reapply=row.is_open and visibility.may_reapply(row),
    )


def _page_of(row: Drift) -> tuple[Literal["fabric:device", "fabric:drawer", "fabric:port", ""], int | None]:
    match row.kind:
        case Kind.ATTACHMENT | Kind.DEVICE:
            return "fabric:device", row.device_id
        case Kind.MODE:
            return "fabric:drawer", row.drawer_id
        case Kind.CABLE:
            port = row.host_port.port_id if row.host_port is not None else None
            return ("fabric:port", port) if port is not None else ("", None)
    return "fabric:port", row.port_id


def _cause_sentence(row: Drift, visibility: DriftVisibility) -> str:
    """Return who changed it and when, as far as that is known and the user may know."""
    at = _(" at {time}", time=local_words(row.changed_at)) if row.changed_at is not None else ""
    match row.cause:
        case Drift.Cause.OPERATION:
            operation = row.operation if row.operation_id in visibility.operations else None
            if operation is None:
                return _("An operation that did not finish left it so{at}.", at=at)
            return _(
                "‘{operation}’, requested by {name}, did not finish and left it so{at}.",
                operation=operation.summary,
                name=operation.requested_by_name,
                at=at,
            )
        case Drift.Cause.LOG:
            who = _account_label(row, visibility.person)
            if who:
                return _("{account} changed it{at}, according to the chassis’ log.", account=who, at=at)
            return _("It happened{at}, according to the chassis’ log, which names no account.", at=at)
    if row.log_asked_at is None and row.is_open:
        return _("The chassis’ log is being read for the account that changed it.")
    return _("It was changed outside FalconWeb; the chassis does not report by whom.")


def _account_label(row: Drift, person: User) -> str:
    if not row.originator:
        return ""
    own = row.originator == row.chassis.username
    # The site's own account, and the network of its operators, are not disclosed to tenants.
    if not person.is_administrator:
        return _("An account of the site’s operators")
    values = {"account": row.originator, "address": row.origin_address}
    if own and row.origin_address:
        return _("The account ‘{account}’, which FalconWeb uses too, from {address}", **values)
    if own:
        return _("The account ‘{account}’, which FalconWeb uses too,", **values)
    if row.origin_address:
        return _("The account ‘{account}’ from {address}", **values)
    return _("The account ‘{account}’", **values)


def _end_label(row: Drift) -> str:
    by = row.ended_by_name
    match row.end:
        case Drift.End.ACCEPTED:
            return _("Accepted by {name}", name=by) if by else _("Accepted")
        case Drift.End.REAPPLIED:
            return _("Re-applied by {name}", name=by) if by else _("Re-applied")
        case Drift.End.WENT_AWAY:
            return _("It is as approved again")
        case Drift.End.SUPERSEDED:
            return _("Changed again by {name}", name=by) if by else _("Something else by now")
    return ""
