"""How entries come to be: in the transaction of the change they tell of, or, of what was refused, after it.

    with audited(Action.TENANT_EDIT, actor=by, target=target_of(tenant)) as act:
        act.before = {"name": tenant.name}
        ...
        act.after = {"name": tenant.name}

The lock of the log's end is the last that a transaction takes: entries are gathered while it runs and appended right
before it commits, so that who appends never waits for anything, and nobody waits long for who appends. Where a service
asks a BMC first, `attempt` goes around all of it and its `change()` around what is stored. Who takes several actions in
one transaction begins it by `together()`: each of them alone would append at its own end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from django.conf import settings
from django.db import DatabaseError, models, transaction
from django.utils import timezone

from accounts.audit import chain
from accounts.audit.actions import Action, Outcome
from accounts.audit.context import Origin, here
from accounts.audit.floods import one_by_one
from accounts.audit.models import AuditEntry, AuditHead
from accounts.models import User
from falconweb.errors import FalconWebError

logger = logging.getLogger(__name__)

OF_THE_SITE = "An error of the site stopped it."
SEAL_BROKEN = "The end of the log was not as the site had left it: entries before this one may be missing or replaced."


@dataclass(frozen=True)
class Target:
    """What an action is about."""

    kind: str
    id: str = ""
    name: str = ""


NOTHING = Target(kind="")


@dataclass(frozen=True)
class _Draft:
    """An entry that has no place in the chain yet."""

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


@dataclass
class Act:
    """An action that is going on: what is known of it so far."""

    action: Action
    actor: User | None
    target: Target = NOTHING
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None
    sentence: str = ""
    _refused: list[_Draft] = field(default_factory=list)

    @contextmanager
    def change(self) -> Iterator[None]:
        """Store what changes, and with it the entry that it was done: both, or none."""
        with _transaction(self._refused) as drafts:
            yield
            drafts.append(self.ended(Outcome.DONE, self.sentence))

    def ended(self, outcome: Outcome, sentence: str, status: int | None = None) -> _Draft:
        """Return the entry of how it ended."""
        after = self.after if outcome == Outcome.DONE else None
        return _Draft(self.action, outcome, self.actor, here(), self.target, self.before, after, sentence, status)


_gathered: ContextVar[list[_Draft] | None] = ContextVar("audit_gathered", default=None)


@contextmanager
def attempt(action: Action, *, actor: User | None, target: Target = NOTHING) -> Iterator[Act]:
    """Try something: a FalconWebError is kept as refused, any other as failed; `change()` keeps what is done."""
    act = Act(action=action, actor=actor, target=target)
    try:
        yield act
    except FalconWebError as error:
        outcome = Outcome.FAILED if error.status >= 500 else Outcome.REFUSED
        _keep_refused(act._refused, act.ended(outcome, error.sentence, error.status))  # noqa: SLF001 - of this module
        raise
    except Exception:
        _keep_refused(act._refused, act.ended(Outcome.FAILED, OF_THE_SITE, 500))  # noqa: SLF001
        raise


@contextmanager
def together() -> Iterator[None]:
    """Take several actions in one transaction, or in a part of one that may be undone by itself.

    Their entries are appended right before the outermost commits. Of what is undone those are kept that were refused.
    """
    refused: list[_Draft] = []
    try:
        with _transaction(refused):
            yield
    except Exception:
        _keep_refused(refused)
        raise


@contextmanager
def audited(action: Action, *, actor: User | None, target: Target = NOTHING) -> Iterator[Act]:
    """Try something in one transaction; its entry is appended right before the commit. See `attempt`."""
    with attempt(action, actor=actor, target=target) as act, act.change():
        yield act


def audit_record(
    *,
    action: Action,
    actor: User | None,
    target: Target = NOTHING,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    outcome: Outcome = Outcome.DONE,
    sentence: str = "",
    status: int | None = None,
    request_id: str = "",
) -> None:
    """Keep an entry in the caller's transaction: at its end inside of `audited` or `together`, else at once.

    Outside of them, call it as the last thing of a transaction: it locks the end of the log until the commit.
    `request_id` is that of the request which began what is carried out now, '' for the present one. Refusals of
    requests are bounded (see floods): over the limit they are counted. Raises DatabaseError.
    """
    draft = _Draft(action, outcome, actor, here(), target, before, after, sentence, status, request_id)
    if not _is_kept(draft):
        return
    gathered = _gathered.get()
    if gathered is None:
        _append([draft])
    else:
        gathered.append(draft)


def target_of(row: models.Model, name: str = "") -> Target:
    """Return a row as what an action is about: its kind is the name of its model in words, such as 'host port'."""
    kind = "person" if isinstance(row, User) else str(row._meta.verbose_name)  # noqa: SLF001 - Django's way
    return Target(kind=kind, id="" if row.pk is None else str(row.pk), name=name or str(getattr(row, "name", row)))


@contextmanager
def _transaction(refused: list[_Draft]) -> Iterator[list[_Draft]]:
    """Store something, the entries gathered meanwhile with it; where it is undone, `refused` gets what was refused."""
    with _gathering() as (drafts, outermost), transaction.atomic():
        mark = len(drafts)
        try:
            yield drafts
        except BaseException:
            # What was gathered inside is undone; what was refused inside was refused all the same.
            refused += [one for one in drafts[mark:] if one.outcome != Outcome.DONE]
            del drafts[mark:]
            raise
        if outermost:
            _append(drafts)


@contextmanager
def _gathering() -> Iterator[tuple[list[_Draft], bool]]:
    """Gather the entries of a transaction, and of those inside of it; tell whether it is the outermost."""
    outer = _gathered.get()
    if outer is not None:
        yield outer, False
        return
    drafts: list[_Draft] = []
    token = _gathered.set(drafts)
    try:
        yield drafts, True
    finally:
        _gathered.reset(token)


def _is_kept(draft: _Draft) -> bool:
    """Tell whether an entry is kept; a refused request over the limit is counted instead."""
    origin = draft.origin
    if origin.via not in {"page", "api"} or (draft.outcome == Outcome.DONE and draft.actor is not None):
        return True
    if one_by_one(draft.actor.pk if draft.actor else None, origin.address):
        return True
    origin.counted = True
    return False


def _keep_refused(inside: Sequence[_Draft], own: _Draft | None = None) -> None:
    """Keep what was refused: `inside`, which was counted there, and by itself.

    Nothing was changed, so that a log which cannot be written stands in nobody's way.
    """
    kept = [*inside, own] if own is not None and _is_kept(own) else [*inside]
    gathered = _gathered.get()
    if gathered is not None:
        gathered += kept
    elif kept:
        try:
            _append(kept)
        except DatabaseError:
            logger.exception("a refused '%s' of %s was not kept", kept[-1].action, kept[-1].origin.address)


def _append(drafts: Sequence[_Draft]) -> None:
    """Give entries their place in the chain."""
    if not drafts:
        return
    with transaction.atomic():
        head = _locked_head()
        if head.seal != chain.seal_of(settings.AUDIT_KEY, head.sequence, head.digest):
            # To seal a false end in silence would make it a true one.
            broken = _Draft(Action.AUDIT_SEAL_BROKEN, Outcome.FAILED, None, here(), NOTHING, sentence=SEAL_BROKEN)
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


def _locked_head() -> AuditHead:
    head = AuditHead.objects.select_for_update().filter(pk=1).first()
    if head is None:
        # The first entry ever; of a log that lost its end, the seal below does not fit.
        last = AuditEntry.objects.order_by("-sequence").first()
        new = AuditHead(pk=1, digest=last.digest if last else chain.BEGIN, sequence=last.sequence if last else 0)
        new.seal = "" if last else chain.seal_of(settings.AUDIT_KEY, 0, chain.BEGIN)
        AuditHead.objects.bulk_create([new], ignore_conflicts=True)  # two may come at once
        head = AuditHead.objects.select_for_update().get(pk=1)
    return head


def _entry(draft: _Draft, sequence: int, previous: str) -> AuditEntry:
    origin, actor, target = draft.origin, draft.actor, draft.target
    texts = {
        "sentence": draft.sentence, "actor_name": actor.username if actor else "",
        "actor_role": actor.role if actor else "", "actor_tenant": actor.tenant.name if actor and actor.tenant else "",
        "via": origin.via, "address": origin.address, "credential": _credential(draft), "method": origin.method,
        "path": origin.path, "request_id": draft.request_id or origin.request_id, "target_kind": target.kind,
        "target_id": target.id, "target_name": target.name,
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
        after=chain.clean_values(draft.after),
        **{name: chain.clean_text(text, LONGEST[name]) for name, text in texts.items()},
    )


def _credential(draft: _Draft) -> str:
    """Return what was shown: a token or a password by name, else, where somebody was signed in, the session."""
    origin = draft.origin
    return origin.credential or ("session" if draft.actor is not None and origin.via in {"page", "api"} else "")


LONGEST = {
    one.name: one.max_length or chain.LONGEST_TEXT
    for one in AuditEntry._meta.concrete_fields  # noqa: SLF001 - Django's way
    if isinstance(one, models.CharField)
}
