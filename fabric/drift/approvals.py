"""The approved allocation, and drift from it: compared at the end of each walk, under the chassis' lock.

The state at the first discovery of a part is approved; so is the result of a successful operation, and every accepted
drift. A part with an operation that is open, or was when the walk began, is compared by a later walk: the walk may
have read it in the middle of a change. Values that a walk could not read are unchanged, and so no drift.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Final

from django.db import transaction
from django.db.models import Q
from django.dispatch import receiver
from django.utils import timezone

from core.database import CompiledQuery
from fabric.drift.approved_state import (
    FOUND_COLUMNS,
    KIND_OF_PART,
    approve_state,
    approved_state_of,
    drift_relations,
    found_state,
    operation_result,
    part_description,
    state_label,
)
from fabric.drift.models import Drift
from fabric.history.models import Attachment
from fabric.history.services import attachments_begin, attachments_record, is_attachment_changed
from fabric.inventory.labels import device_label
from fabric.inventory.models import Approvable, Chassis, Device, HostPort, Port
from fabric.inventory.sync import DeviceReplacement, MirroredWalk
from fabric.operations.models import SUBJECT_FIELDS, SUBJECTS, Operation, operation_subject_key
from fabric.signals import inventory_changed, walk_mirrored

logger = logging.getLogger(__name__)

Kind = Drift.Kind
# A walk that began before the end of an operation does not compare its parts: it may have been the newest walk.
SETTLE_TIME = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True)
class _PartComparison:
    """A part and its approved state; `found` is None where the BMC does not report it."""

    kind: Drift.Kind
    part: Approvable
    expected: str
    found: str | None

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the part within its chassis."""
        return self.kind.value, self.part.uri

    @property
    def differs(self) -> bool:
        """Whether it is known to differ from the approved state."""
        return self.found is not None and self.found != self.expected


OPEN_DRIFT_OF_PART: Final[CompiledQuery[Drift]] = CompiledQuery(
    lambda chassis, kind, uri, at: Drift.objects.open().filter(chassis=chassis, kind=kind, uri=uri, noticed_at__lte=at)
)


def operation_result_approve(operation: Operation) -> None:
    """Approve the result of a successful operation, and end the drift that it resolved.

    To be called in the transaction that ends the operation, with its chassis locked; harmless when repeated, and for
    one that failed.
    """
    if operation.state != Operation.State.DONE:
        return
    part, result = operation.subject, operation_result(operation)
    if part is None:
        return
    at = operation.finished_at or timezone.now()
    approved = {name: getattr(part, name) for name in approve_state(part, result, at)}
    rows: Any = type(part)._default_manager  # noqa: SLF001 - documented by Django
    if not rows.filter(pk=part.pk).exclude(approved_at__gt=at).update(**approved):
        return
    for drift in OPEN_DRIFT_OF_PART.objects(operation.chassis_id, KIND_OF_PART[type(part)], part.uri, at):
        _end_by_operation(drift, operation, result)


@receiver(walk_mirrored)
def walk_compare(*, chassis: Chassis, walk: MirroredWalk, begun_at: datetime | None, **kwargs: Any) -> None:
    """Approve newly discovered parts, record drift from the approved state, and keep the history.

    Runs in the transaction of a walk, with the chassis locked and `inventory_at` still of the previous walk.
    `begun_at` is when the walk began; None: nothing was changed meanwhile.
    """
    _WalkComparison(chassis, walk, begun_at).run()


class _WalkComparison:
    """The comparison of one walk of a chassis; its number of queries is constant, apart from new findings."""

    def __init__(self, chassis: Chassis, walked: MirroredWalk, begun_at: datetime | None) -> None:
        self.chassis = chassis
        self.walked = walked
        self.now = timezone.now()
        self.busy = _PartsInChange(chassis, walked.drawer_of, begun_at or self.now, has_none=walked.is_first)
        open_drifts = () if walked.is_first else Drift.objects.open().filter(chassis=chassis).order_by()
        self.drifts = {(one.kind, one.uri): one for one in open_drifts}
        self.causes: dict[int, Operation] = {}  # the operation that caused the state of a device
        self.changed = False

    def run(self) -> None:
        for replacement in self.walked.replacements:
            self._record_replacement(replacement)
        self._approve_first()
        comparisons = [
            one
            for one in self._comparisons()
            if (one.key in self.drifts or one.differs) and not self.busy.is_about(one.part) and self._is_news(one)
        ]
        operations = self._operations(comparisons)
        for comparison in comparisons:
            self._compare(comparison, operations.get(comparison.key))
        self._record_history()
        if self.changed:
            pk = self.chassis.pk
            transaction.on_commit(partial(inventory_changed.send, Chassis, chassis_id=pk), robust=True)

    def _comparisons(self) -> Iterator[_PartComparison]:
        for part in chain(self.walked.drawers, self.walked.ports, self.walked.host_ports, self.walked.devices):
            if part.approved_at is None:
                continue
            found = found_state(part)
            if isinstance(part, HostPort | Device) and part.missing_since is not None:
                # A missing part is reported as missing; it is compared again when it is back.
                found = approved_state_of(part)
            elif part.missing_since is not None:
                found = None
            yield _PartComparison(
                kind=KIND_OF_PART[type(part)], part=part, expected=approved_state_of(part), found=found
            )

    def _is_news(self, comparison: _PartComparison) -> bool:
        drift = self.drifts.get(comparison.key)
        if drift is None:
            return comparison.differs
        return comparison.found is not None and (drift.expected, drift.found) != (comparison.expected, comparison.found)

    def _approve_first(self) -> None:
        """Approve the found state of newly discovered parts."""
        for rows in (self.walked.drawers, self.walked.ports, self.walked.host_ports, self.walked.devices):
            first: list[Any] = []
            for row in rows:
                found = found_state(row)
                is_known = found is not None and row.missing_since is None
                if _is_first_sight(row) and is_known and not self.busy.is_about(row):
                    approve_state(row, found or "", self.now)
                    first.append(row)
            if first:
                ids = [row.pk for row in first]
                type(first[0]).objects.filter(pk__in=ids).update(approved_at=self.now, **FOUND_COLUMNS[type(first[0])])

    def _record_replacement(self, replacement: DeviceReplacement) -> None:
        """Record that another device is in a slot; its state is approved, but not the replacement."""
        device, known = replacement.device, self.drifts.get((Kind.DEVICE.value, replacement.device.uri))
        expected, words = (known.expected, known.expected_words) if known else (replacement.identity, replacement.label)
        found = device.identity
        device.save(update_fields=approve_state(device, found_state(device) or "", self.now))
        attachment = self.drifts.pop((Kind.ATTACHMENT.value, device.uri), None)
        if attachment is not None:
            self._end(attachment, Drift.End.SUPERSEDED)
        if known is not None and known.found == found:
            return
        if known is not None:
            self._end(known, Drift.End.WENT_AWAY if found == expected else Drift.End.SUPERSEDED)
        if found != expected:
            self._begin(
                Kind.DEVICE, device, expected=expected[:450], found=found[:450], expected_words=words[:450],
                found_words=device_label(device)[:450],
            )  # fmt: skip

    def _operations(self, comparisons: Sequence[_PartComparison]) -> dict[tuple[str, str], Operation]:
        """Return the newest ended operation of each part that may have caused its state."""
        times = [comparison.part.approved_at for comparison in comparisons if comparison.part.approved_at is not None]
        if not times:
            return {}
        ids: dict[type[Approvable], list[int]] = defaultdict(list)
        for comparison in comparisons:
            ids[type(comparison.part)].append(comparison.part.pk)
        condition = Q(device__in=ids[Device])
        for kind, (model, column) in SUBJECTS.items():
            condition |= Q(("kind", kind), (f"{column}__in", ids[model]))
        ended = Operation.objects.filter(
            condition, chassis=self.chassis, finished_at__gt=min(times), started_at__isnull=False
        )
        by_part = {(type(comparison.part), comparison.part.pk): comparison for comparison in comparisons}
        newest: dict[tuple[str, str], Operation] = {}
        for operation in ended.order_by("finished_at").select_related("device", "drawer", "source", "port"):
            part = operation.subject
            about = by_part.get((type(part), part.pk)) if part is not None else None
            if about is not None and operation.finished_at > about.part.approved_at:
                newest[about.key] = operation
        return newest

    def _compare(self, comparison: _PartComparison, operation: Operation | None) -> None:
        drift = self.drifts.get(comparison.key)
        if operation is not None and operation.state == Operation.State.DONE:
            # Its end was not recorded here: the worker died in between.
            result = operation_result(operation)
            comparison.part.save(
                update_fields=approve_state(comparison.part, result, operation.finished_at or self.now)
            )
            if drift is not None:
                _end_by_operation(drift, operation, result)
                self.changed, drift = True, None
            comparison = replace(comparison, expected=result)
            if comparison.kind == Kind.ATTACHMENT and not comparison.differs:
                self.causes[comparison.part.pk] = operation
        if drift is not None:
            away = comparison.found == comparison.expected and comparison.part.missing_since is None
            self._end(drift, Drift.End.WENT_AWAY if away else Drift.End.SUPERSEDED)
        if comparison.differs:
            self._begin(
                comparison.kind,
                comparison.part,
                expected=comparison.expected,
                found=comparison.found or "",
                expected_words=state_label(comparison.part, comparison.expected),
                found_words=state_label(comparison.part, comparison.found or ""),
                **self._cause(comparison, operation),
            )

    def _cause(self, comparison: _PartComparison, operation: Operation | None) -> dict[str, Any]:
        """Return the known cause: an operation that failed may have left the part in this state."""
        if operation is None or operation.finished_at is None or operation.state == Operation.State.DONE:
            return {}
        before = self.chassis.inventory_at
        left = {operation_result(operation)} | ({""} if comparison.kind == Kind.ATTACHMENT else set())
        if comparison.found not in left or (before is not None and operation.finished_at < before - SETTLE_TIME):
            return {}
        if comparison.kind == Kind.ATTACHMENT:
            self.causes[comparison.part.pk] = operation
        return {"cause": Drift.Cause.OPERATION, "operation": operation, "changed_at": operation.finished_at}

    def _begin(self, kind: Drift.Kind, part: Approvable, **values: Any) -> None:
        drift = Drift.objects.create(
            chassis=self.chassis, kind=kind, uri=part.uri, what=part_description(part)[:300],
            not_before=self.chassis.inventory_at, noticed_at=self.now, **drift_relations(part), **values,
        )  # fmt: skip
        logger.warning("%s: %s", self.chassis.name, drift)
        self.changed = True

    def _end(self, drift: Drift, end: Drift.End) -> None:
        drift.ended_at, drift.end = self.now, end
        drift.save(update_fields=["ended_at", "end"])
        self.changed = True

    def _record_history(self) -> None:
        """Keep the history of the parts that this walk may compare."""
        if self.walked.is_first:
            attachments_begin(self.walked.devices)
            return
        held = Attachment.objects.filter(chassis=self.chassis, until=None).order_by()
        current = {one.device_id: one for one in held}
        news = [
            one
            for one in self.walked.devices
            if is_attachment_changed(one, current.get(one.pk)) and not self.busy.is_about(one)
        ]
        attachments_record([one.pk for one in news], operations=self.causes)


def _is_first_sight(part: Approvable) -> bool:
    """Return whether a part has no approved state yet, or no approved lanes of a port that did not report them."""
    if not isinstance(part, Port) or part.approved_at is None:
        return part.approved_at is None
    return part.approved_width is None and part.configured_width is not None and part.port_type == part.approved_type


class _PartsInChange:
    """The parts of operations that are open, or were when the walk began; queried only when needed."""

    def __init__(
        self, chassis: Chassis, drawer_of: dict[int, int | None], begun_at: datetime, *, has_none: bool
    ) -> None:
        self._chassis = chassis
        self._drawer_of = drawer_of
        self._begun_at = begun_at
        self._parts: set[tuple[type[Approvable], int | None]] | None = set() if has_none else None
        self._shaken: set[int | None] = set()

    def is_about(self, part: Approvable) -> bool:
        """Return whether a part may have been read in the middle of a change."""
        if self._parts is None:
            self._parts = self._load()
        if isinstance(part, Device) and part.slot_id is not None and self._drawer_of.get(part.slot_id) in self._shaken:
            return True
        return (type(part), part.pk) in self._parts

    def _load(self) -> set[tuple[type[Approvable], int | None]]:
        going_on = ~Q(state__in=Operation.FINAL) | Q(finished_at__gte=self._begun_at)
        rows = list(Operation.objects.filter(going_on, chassis=self._chassis).order_by().values(*SUBJECT_FIELDS))
        # A change of a mode, a cable or a port may disconnect devices in its drawer.
        self._shaken = {row["drawer"] for row in rows if row["device"] is None and row["drawer"] is not None}
        return {operation_subject_key(row) for row in rows}


def _end_by_operation(drift: Drift, operation: Operation, result: str) -> None:
    drift.ended_at = operation.finished_at or timezone.now()
    drift.end = Drift.End.REAPPLIED if result == drift.expected else Drift.End.SUPERSEDED
    drift.ended_in, drift.ended_by = operation, operation.requested_by
    drift.ended_by_name = operation.requested_by_name
    drift.save(update_fields=["ended_at", "end", "ended_in", "ended_by", "ended_by_name"])
