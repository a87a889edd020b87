"""Writing audit entries: in the transaction of the change, or after a refusal; summaries of counted refusals.

    with audited(Action.TENANT_EDIT, actor=by, target=target_of(tenant)) as act:
        act.before = {"name": tenant.name}
        ...
        act.after = {"name": tenant.name}

The lock of the log's end is the last that a transaction takes: entries are collected while it runs and appended right
before it commits, so that a writer that has the lock never waits for another. Where a service calls a BMC first,
`attempt` encloses all of it and its `change()` the database changes. Several actions in one transaction are enclosed by
`audit_batch()`: otherwise each would append at its own end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import redis
from django.conf import settings
from django.db import DatabaseError, models, transaction
from django.utils import timezone

from accounts.audit import chain, refusal_limits
from accounts.audit.actions import Action, Outcome
from accounts.audit.context import Origin, current_origin, second_person
from accounts.audit.models import AuditEntry, AuditHead
from accounts.audit.refusal_limits import refusal_admitted
from accounts.models import User
from core.database import CompiledQuery
from core.errors import FalconWebError
from core.language import english, gettext_noop

logger = logging.getLogger(__name__)

SITE_ERROR = gettext_noop("An error of the site stopped it.")
SEAL_BROKEN = gettext_noop(
    "The end of the log was not as the site had left it: entries before this one may be missing or replaced."
)


@dataclass(frozen=True)
class Target:
    """The object of an action."""

    kind: str
    id: str = ""
    name: str = ""


NO_TARGET = Target(kind="")


@dataclass(frozen=True)
class _DraftEntry:
    """An entry that is not yet in the chain."""

    action: str
    outcome: Outcome
    actor: User | None
    origin: Origin
    target: Target
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None
    sentence: str = ""
    status: int | None = None
    request_id: str = ""
    approver: str = field(default_factory=second_person.get)


@dataclass
class AuditedAction:
    """An action in progress, with the facts known so far."""

    action: Action
    actor: User | None
    target: Target = NO_TARGET
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None
    sentence: str = ""
    _refused: list[_DraftEntry] = field(default_factory=list)

    @contextmanager
    def change(self) -> Iterator[None]:
        """Store the changes together with the entry of the action, atomically."""
        with _transaction(self._refused) as drafts:
            yield
            drafts.append(self.ended(Outcome.DONE, self.sentence))

    def ended(self, outcome: Outcome, sentence: str, status: int | None = None) -> _DraftEntry:
        """Return the entry with the outcome."""
        after = self.after if outcome == Outcome.DONE else None
        return _DraftEntry(
            self.action, outcome, self.actor, current_origin(), self.target, self.before, after, sentence, status
        )


_gathered: ContextVar[list[_DraftEntry] | None] = ContextVar("audit_gathered", default=None)


@contextmanager
def attempt(action: Action, *, actor: User | None, target: Target = NO_TARGET) -> Iterator[AuditedAction]:
    """Record an attempt: a FalconWebError as refused, any other error as failed; `change()` records success."""
    act = AuditedAction(action=action, actor=actor, target=target)
    try:
        yield act
    except FalconWebError as error:
        outcome = Outcome.FAILED if error.status >= 500 else Outcome.REFUSED
        _append_refused(act._refused, act.ended(outcome, error.sentence, error.status))  # noqa: SLF001 - of this module
        raise
    except Exception:
        _append_refused(act._refused, act.ended(Outcome.FAILED, SITE_ERROR, 500))  # noqa: SLF001
        raise


@contextmanager
def audit_batch() -> Iterator[None]:
    """Enclose several actions in one transaction, or in a savepoint.

    Their entries are appended right before the outermost commits. After a rollback only the refusals are recorded.
    """
    refused: list[_DraftEntry] = []
    try:
        with _transaction(refused):
            yield
    except Exception:
        _append_refused(refused)
        raise


@contextmanager
def audited(action: Action, *, actor: User | None, target: Target = NO_TARGET) -> Iterator[AuditedAction]:
    """Record an attempt in one transaction; its entry is appended right before the commit. See `attempt`."""
    with attempt(action, actor=actor, target=target) as act, act.change():
        yield act


def audit_record(
    *,
    action: Action,
    actor: User | None,
    target: Target = NO_TARGET,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    outcome: Outcome = Outcome.DONE,
    sentence: str = "",
    status: int | None = None,
    request_id: str = "",
) -> None:
    """Record an entry in the caller's transaction: at its end inside `audited` or `audit_batch`, else immediately.

    Outside of them, call it last in a transaction: it locks the end of the log until the commit. `request_id` is that
    of the request that began the present work, '' for the current one. Refusals of requests are limited (see
    refusal_limits): over the limit they are counted. Raises DatabaseError.
    """
    draft = _DraftEntry(action, outcome, actor, current_origin(), target, before, after, sentence, status, request_id)
    if not _is_kept(draft):
        return
    gathered = _gathered.get()
    if gathered is None:
        _append([draft])
    else:
        gathered.append(draft)


def target_of(row: models.Model, name: str = "") -> Target:
    """Return a row as the object of an action; its kind is its model's verbose name, such as 'host port'."""
    kind = "person" if isinstance(row, User) else str(row._meta.verbose_name)  # noqa: SLF001 - documented by Django
    return Target(kind=kind, id="" if row.pk is None else str(row.pk), name=name or str(getattr(row, "name", row)))


@contextmanager
def _transaction(refused: list[_DraftEntry]) -> Iterator[list[_DraftEntry]]:
    """Run a transaction with the entries collected in it and in nested ones; the outermost appends them.

    After a rollback, `refused` gets the refusals.
    """
    outer = _gathered.get()
    drafts = [] if outer is None else outer
    token = _gathered.set(drafts)
    try:
        with transaction.atomic():
            mark = len(drafts)
            try:
                yield drafts
            except BaseException:
                # The entries collected inside are rolled back, except the refusals.
                refused += [one for one in drafts[mark:] if one.outcome != Outcome.DONE]
                del drafts[mark:]
                raise
            if outer is None:
                _append(drafts)
    finally:
        _gathered.reset(token)


def _is_kept(draft: _DraftEntry) -> bool:
    """Return whether an entry is recorded; a refused request over the limit is counted instead."""
    origin = draft.origin
    if origin.via not in {"page", "api"} or (draft.outcome == Outcome.DONE and draft.actor is not None):
        return True
    if refusal_admitted(draft.actor.pk if draft.actor else None, origin.address):
        return True
    origin.counted = True
    return False


def _append_refused(inside: Sequence[_DraftEntry], own: _DraftEntry | None = None) -> None:
    """Record refusals in a transaction of their own; those from `inside` were counted there.

    Nothing was changed, so an unwritable log is not an error here.
    """
    kept = [*inside, own] if own is not None and _is_kept(own) else [*inside]
    gathered = _gathered.get()
    if gathered is not None:
        gathered += kept
    elif kept:
        try:
            _append(kept)
        except DatabaseError:
            logger.exception("a refused '%s' of %s was not recorded", kept[-1].action, kept[-1].origin.address)


def _append(drafts: Sequence[_DraftEntry]) -> None:
    """Append entries to the chain."""
    if not drafts:
        return
    with transaction.atomic():
        head = _locked_head()
        if head.seal != chain.seal_of(settings.AUDIT_KEY, head.sequence, head.digest):
            # Sealing a forged end silently would legitimise it.
            broken = _DraftEntry(
                Action.AUDIT_SEAL_BROKEN, Outcome.FAILED, None, current_origin(), NO_TARGET, sentence=SEAL_BROKEN
            )
            drafts = [broken, *drafts]
        rows = []
        for draft in drafts:
            head.sequence += 1
            row = _entry(draft, head.sequence, head.digest)
            row.digest = head.digest = chain.digest_of(row.record())
            rows.append(row)
        AuditEntry.objects.bulk_create(rows, batch_size=200)
        head.seal = chain.seal_of(settings.AUDIT_KEY, head.sequence, head.digest)
        head.save(update_fields=["sequence", "digest", "seal"])
    for draft in drafts:
        draft.origin.appended = True


LOCKED_HEAD: Final[CompiledQuery[AuditHead]] = CompiledQuery(
    lambda pk: AuditHead.objects.select_for_update().filter(pk=pk).order_by()
)


def _locked_head() -> AuditHead:
    head = LOCKED_HEAD.first(1)
    if head is None:
        # The first entry ever; if the log lost its end, the seal below does not match.
        last = AuditEntry.objects.order_by("-sequence").first()
        new = AuditHead(
            pk=1, digest=last.digest if last else chain.GENESIS_DIGEST, sequence=last.sequence if last else 0
        )
        new.seal = "" if last else chain.seal_of(settings.AUDIT_KEY, 0, chain.GENESIS_DIGEST)
        AuditHead.objects.bulk_create([new], ignore_conflicts=True)  # two may be concurrent
        head = AuditHead.objects.select_for_update().get(pk=1)
    return head


def _entry(draft: _DraftEntry, sequence: int, previous: str) -> AuditEntry:
    origin, actor, target = draft.origin, draft.actor, draft.target
    by_session = "session" if actor is not None and origin.via in {"page", "api"} else ""
    texts = {
        "sentence": draft.sentence, "actor_name": actor.username if actor else "",
        "actor_role": actor.role if actor else "", "actor_tenant": actor.tenant.name if actor and actor.tenant else "",
        "via": origin.via, "address": origin.address, "credential": origin.credential or by_session,
        "method": origin.method, "path": origin.path, "request_id": draft.request_id or origin.request_id,
        "target_kind": target.kind, "target_id": target.id, "target_name": target.name,
    }  # fmt: skip
    return AuditEntry(
        sequence=sequence,
        previous=previous,
        at=timezone.now(),
        action=draft.action,
        outcome=draft.outcome,
        status=draft.status,
        actor_id=actor.pk if actor else None,
        before=chain.clean_values(draft.before),
        after=chain.clean_values(
            {**(draft.after or {}), "approved by": draft.approver} if draft.approver else draft.after
        ),
        **{name: chain.clean_text(english(text), MAX_LENGTHS[name]) for name, text in texts.items()},
    )


MAX_LENGTHS = {
    one.name: one.max_length or chain.MAX_TEXT_LENGTH
    for one in AuditEntry._meta.concrete_fields  # noqa: SLF001 - documented by Django
    if isinstance(one, models.CharField)
}

MAX_SUMMARISED_SENDERS = 50


def refusals_summarise(*, now: float | None = None) -> int:
    """Record the counts of the ended periods; returns the number of refusals."""
    total = 0
    try:
        for period, counts in refusal_limits.ended_period_counts(time.time() if now is None else now).items():
            # If a worker dies between the two steps, the next one finds the entries and only deletes the counts.
            if counts and not AuditEntry.objects.filter(target_kind="refusals", target_id=str(period)).exists():
                _write_refusal_summary(period, counts)
                total += sum(counts.values())
            refusal_limits.period_delete(period)
    except (redis.RedisError, OSError) as error:
        logger.warning("counts of refused requests cannot be read now: %r", error)
    return total


def _write_refusal_summary(period: int, counts: dict[tuple[int | None, str], int]) -> None:
    begin, end = (datetime.fromtimestamp(one * refusal_limits.PERIOD_SECONDS, UTC) for one in (period, period + 1))
    span = f"between {begin:%Y-%m-%d %H:%M} and {end:%H:%M} UTC"
    ordered = sorted(counts.items(), key=lambda one: -one[1])
    named = [one for one in ordered if one[0] != (None, "")][:MAX_SUMMARISED_SENDERS]
    rest = sum(counts.values()) - sum(count for _, count in named)
    people = User.objects.in_bulk([person for (person, _), _ in named if person is not None])
    target = Target(kind="refusals", id=str(period), name=span)
    total = sum(counts.values())
    with audited(Action.AUDIT_MORE_REFUSALS, actor=None, target=target) as act:
        act.sentence = f"{total} further refused requests came {span}; they were counted, not recorded individually."
        act.after = {"requests": total, "from others": rest}
        for (person, address), count in named:
            who = people[person].username if person in people else "nobody who was signed in"
            audit_record(
                action=Action.AUDIT_MORE_REFUSALS,
                actor=people.get(person) if person is not None else None,
                target=target,
                after={"requests": count, "address": address},
                outcome=Outcome.REFUSED,
                sentence=f"{count} further refused requests of {who} came from {address or 'somewhere'} {span}.",
            )
