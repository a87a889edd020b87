"""Guarding services by the policy, and deciding what waits.

    @two_people(removal_proposal)
    def chassis_remove(*, person: User, chassis: Chassis) -> None: ...

A request of a page or of the API for a guarded service whose danger is in the policy is tried out and rolled back, so
that what is forbidden or impossible is refused at once as ever; then it is stored, and ApprovalNeeded raised. Another
administrator's approval calls the service with the same parameters, as the person who asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial, wraps
from inspect import signature
from typing import Any, ClassVar, Final, ParamSpec, TypeVar, cast

from django.conf import settings
from django.db import IntegrityError, models
from django.db.models import Q
from django.dispatch import Signal
from django.utils import timezone

from accounts.access import require_administrator
from accounts.approvals.models import CHOSEN_DANGERS, ApprovalPolicy, ApprovalRequest, Danger
from accounts.approvals.parameters import opened_parameters, plain_facts, sealed_parameters
from accounts.approvals.selectors import administrators_but, chosen_dangers, guarded_dangers
from accounts.audit.actions import Action, Outcome
from accounts.audit.context import current_origin, second_person
from accounts.audit.models import AuditEntry
from accounts.audit.services import Target, attempt, audit_batch, audited, target_of
from accounts.models import User
from core.database import lock_rows
from core.errors import Conflict, FalconWebError, Forbidden, Invalid, NotFound
from core.idempotency import find_replayed, request_digest
from core.language import _, english, gettext_noop

logger = logging.getLogger(__name__)
Given = ParamSpec("Given")
Returned = TypeVar("Returned")
State = ApprovalRequest.State

MAX_WAITING: Final = 50  # of a person
MAX_REASON_LENGTH: Final = 1000
# Whoever was given an account, a role, a password or a link so shortly before may be the other person in disguise.
STRANGER_FOR: Final = timedelta(days=1)
ACCOUNT_ACTIONS: Final = (
    Action.PERSON_ADD, Action.SERVICE_ADD, Action.PERSON_EDIT, Action.PERSON_PASSWORD, Action.SECOND_FACTOR_RESET,
    Action.IDENTITY_LINK,
)  # fmt: skip

ENDS: Final = {
    State.DONE: gettext_noop("approved and carried out"),
    State.FAILED: gettext_noop("approved, but not possible any more"),
    State.REFUSED: gettext_noop("refused"),
    State.WITHDRAWN: gettext_noop("withdrawn"),
    State.EXPIRED: gettext_noop("expired"),
}

approval_changed = Signal()  # approval: ApprovalRequest; within the transaction in which it began to wait or ended


class ApprovalNeeded(FalconWebError):
    """Nothing was changed yet: the act waits for another administrator."""

    status: ClassVar[int] = 202
    code: ClassVar[str] = "approval_needed"

    def __init__(self, approval: ApprovalRequest) -> None:
        super().__init__(
            _("Nothing was changed yet: another administrator has to approve it."), approval_id=approval.pk
        )
        self.approval = approval


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """An act before it is carried out: its dangers, its object, what it does, and the facts on which it was asked."""

    dangers: Collection[Danger]
    target: Target
    sentence: str
    facts: Mapping[str, object]


@dataclass(frozen=True)
class _GuardedService:
    call: Callable[..., Any]
    propose: Callable[..., Proposal]
    requester: str


class _TriedOut(Exception):
    """Rolls a trial back."""


_guarded_services: dict[str, _GuardedService] = {}
_deciding: ContextVar[bool] = ContextVar("approval_deciding", default=False)


def two_people(
    propose: Callable[..., Proposal], *, requester: str = "person"
) -> Callable[[Callable[Given, Returned]], Callable[Given, Returned]]:
    """Return a decorator of a service that the policy may guard: `propose` gets its parameters, the person's included.

    The service changes rows alone, and does the rest after the commit, since it is tried out and rolled back first.
    """

    def decorate(service: Callable[Given, Returned]) -> Callable[Given, Returned]:
        name = service.__name__
        _guarded_services[name] = _GuardedService(service, propose, requester)

        @wraps(service)
        def guarded(*args: Given.args, **values: Given.kwargs) -> Returned:
            person = cast("User | None", values.get(requester))
            # Commands are the operator's, and workers carry out what was decided.
            if _deciding.get() or person is None or current_origin().via not in {"page", "api"}:
                return service(*args, **values)
            with _within_decision():
                policy = guarded_dangers()
                proposal = propose(**values) if policy else None
                if proposal is None or policy.isdisjoint(proposal.dangers):
                    return service(*args, **values)
                dangers = sorted(policy & set(proposal.dangers))
                approval = _approval_of(name, person, values, proposal, dangers, partial(service, *args, **values))
            raise ApprovalNeeded(approval)

        return guarded

    return decorate


def approval_approve(*, by: User, approval: ApprovalRequest) -> ApprovalRequest:
    """Carry out what waits, once, as the person who asked; the row says whether that was still possible.

    Repeated by the same administrator it returns the row. Raises Forbidden for the person who asked, and Conflict
    where it no longer waits.
    """
    with attempt(Action.APPROVAL_APPROVE, actor=by, target=_target(approval)) as act:
        _check_second(by, approval)
        with act.change():
            row = _locked(approval)
            if row.state in {State.DONE, State.FAILED} and row.decided_by_id == by.pk:
                return row
            _check_waiting(row)
            row.decided_by, row.decided_by_name = by, by.username
            try:
                with audit_batch():
                    result = _carry_out(row, by)
            except FalconWebError as error:
                row.reason = english(error.sentence)[:MAX_REASON_LENGTH]
                _end(row, State.FAILED)
            else:
                if isinstance(result, models.Model) and result.pk is not None:
                    made = target_of(result)
                    row.result_kind, row.result_id = made.kind, made.id
                _end(row, State.DONE)
            act.sentence = f"{row.get_state_display()}. {row.reason}".strip()
            act.after = _audit_values(row)
    return row


def approval_refuse(*, by: User, approval: ApprovalRequest, reason: str) -> ApprovalRequest:
    """Refuse what waits, with a reason; raises as `approval_approve` does, and Invalid without one."""
    with audited(Action.APPROVAL_REFUSE, actor=by, target=_target(approval)) as act:
        _check_second(by, approval)
        row = _locked(approval)
        if row.state == State.REFUSED and row.decided_by_id == by.pk:
            return row
        reason = " ".join(reason.replace("\0", " ").split())
        if not reason or len(reason) > MAX_REASON_LENGTH:
            sentence = _("Give a reason of at most {most} characters.", most=MAX_REASON_LENGTH)
            raise Invalid(sentence, errors={"reason": sentence})
        _check_waiting(row)
        row.decided_by, row.decided_by_name, row.reason = by, by.username, reason
        _end(row, State.REFUSED)
        act.sentence, act.after = reason, _audit_values(row)
    return row


def approval_withdraw(*, by: User, approval: ApprovalRequest) -> ApprovalRequest:
    """Withdraw one's own request; raises Forbidden for another's, and Conflict where it no longer waits."""
    with audited(Action.APPROVAL_WITHDRAW, actor=by, target=_target(approval)) as act:
        if by.pk != approval.requested_by_id:
            raise Forbidden(
                _(
                    "Only {person}, who asked for it, can withdraw it.",
                    person=approval.requested_by_name,
                )
            )
        row = _locked(approval)
        if row.state == State.WITHDRAWN:
            return row
        _check_waiting(row)
        _end(row, State.WITHDRAWN)
        act.after = _audit_values(row)
    return row


def approvals_expire() -> int:
    """End requests that nobody decided in time, and those of people who may no longer sign in; returns how many."""
    late = Q(expires_at__lte=timezone.now()) | Q(requested_by__is_active=False)
    found = ApprovalRequest.objects.filter(late, state=State.WAITING).select_related("requested_by")
    ended = 0
    for one in found:
        with audited(Action.APPROVAL_EXPIRE, actor=None, target=_target(one)) as act:
            row = _locked(one)
            if row.state == State.WAITING:
                away = not one.requested_by.is_active
                row.reason = (
                    f"{one.requested_by_name} may no longer sign in."
                    if away
                    else gettext_noop("Nobody decided in time.")
                )
                _end(row, State.EXPIRED)
                ended += 1
            act.sentence, act.after = row.reason, _audit_values(row)
    return ended


def policy_proposal(*, by: User, dangers: Collection[str]) -> Proposal:
    """Return the change of the policy; only taking something out of it is dangerous."""
    now = chosen_dangers()
    loosened = [Danger(one).label for one in sorted(now - set(dangers))]
    return Proposal(
        dangers=[Danger.POLICY] if loosened else [],
        target=Target(kind="policy", name="Acts that need two people"),
        sentence=f"Let one person alone: {'; '.join(loosened)}.",
        facts={"policy": sorted(now)},
    )


@two_people(policy_proposal, requester="by")
def policy_set(*, by: User, dangers: Collection[str]) -> ApprovalPolicy:
    """Set the dangers that need a second administrator; raises Conflict for any where there is only one."""
    with audited(
        Action.APPROVAL_POLICY, actor=by, target=Target(kind="policy", name="Acts that need two people")
    ) as act:
        require_administrator(by)
        if unknown := set(dangers) - set(CHOSEN_DANGERS):
            raise Invalid(
                _("There is no such danger."),
                errors={"dangers": _("Unknown: {names}.", names=", ".join(sorted(unknown))[:200])},
            )
        if dangers and not administrators_but(by).exists():
            raise Conflict(
                _("You are the only active administrator: nobody could approve anything. Add another one first.")
            )
        ApprovalPolicy.objects.get_or_create(pk=1)
        row = ApprovalPolicy.objects.select_for_update().get(pk=1)
        act.before = {"need two people": sorted(row.dangers)}
        row.dangers = sorted(set(dangers))
        row.save(update_fields=["dangers"])
        act.after = {"need two people": row.dangers}
        return row


@contextmanager
def _within_decision() -> Iterator[None]:
    """Let guarded services that are called inside be carried out: the outermost one was decided on."""
    token = _deciding.set(True)
    try:
        yield
    finally:
        _deciding.reset(token)


def _approval_of(  # noqa: PLR0917 - what a request consists of
    service: str,
    person: User,
    given: Mapping[str, Any],
    proposal: Proposal,
    dangers: list[str],
    trial: Callable[[], Any],
) -> ApprovalRequest:
    """Return the stored request of a guarded act, or that of a former copy of it; raises what the act itself raises."""
    parameters = {name: sealed_parameters(one) for name, one in given.items() if one is not person}
    key = str(given.get("idempotency_key", ""))
    digest = request_digest(service, sorted((name, repr(one)) for name, one in parameters.items()))
    waiting = ApprovalRequest.objects.filter(requested_by=person, state=State.WAITING)
    known = find_replayed(ApprovalRequest, person, key, digest) or (
        None if key else waiting.filter(request_digest=digest, facts=plain_facts(proposal.facts)).first()
    )
    if known is not None:
        return known
    try:
        with audit_batch():
            trial()
            raise _TriedOut  # noqa: TRY301 - it rolls back
    except _TriedOut:
        pass
    now = timezone.now()
    try:
        with audited(Action.APPROVAL_REQUEST, actor=person, target=proposal.target) as act:
            if waiting.count() >= MAX_WAITING:
                raise Conflict(
                    _(
                        "{count} of your requests wait for an approval. Withdraw one first.",
                        count=MAX_WAITING,
                    )
                )
            row = ApprovalRequest.objects.create(
                dangers=dangers,
                sentence=proposal.sentence[:1000],
                target_kind=proposal.target.kind[:30],
                target_id=proposal.target.id[:100],
                target_name=proposal.target.name[:200],
                service=service,
                parameters=parameters,
                facts=plain_facts(proposal.facts),
                requested_by=person,
                requested_by_name=person.username,
                requested_at=now,
                expires_at=now + timedelta(hours=settings.CONFIG.approval_hours),
                idempotency_key=key,
                request_digest=digest,
            )
            act.sentence, act.after = row.sentence, _audit_values(row)
            approval_changed.send(ApprovalRequest, approval=row)
    except IntegrityError:  # of two copies at once, the other was first
        if known := find_replayed(ApprovalRequest, person, key, digest):
            return known
        raise
    return row


def _carry_out(row: ApprovalRequest, by: User) -> Any:
    """Call the service as the person who asked; raises Conflict where what it was asked on has changed."""
    guarded = _guarded_services.get(row.service)
    person = User.objects.get(pk=row.requested_by_id)
    if guarded is None:
        raise Conflict(_("This version of the site has no such act any more."))
    if not person.is_active:
        raise Conflict(_("{person}, who asked for it, may no longer sign in.", person=person.username))
    values = {name: opened_parameters(one) for name, one in row.parameters.items()} | {guarded.requester: person}
    token = second_person.set(by.username)
    try:
        with _within_decision():
            try:
                for service in (guarded.call, guarded.propose):
                    signature(service).bind(**values)
            except TypeError:  # it was requested before an upgrade
                raise Conflict(_("This version of the site does that in another way. Request it again.")) from None
            proposal = guarded.propose(**values)
            unapproved = guarded_dangers() & set(proposal.dangers) - set(row.dangers)
            if unapproved or plain_facts(proposal.facts) != row.facts:
                raise Conflict(_("What it is about has changed since it was requested. Request it again."))
            return guarded.call(**values)
    finally:
        second_person.reset(token)


def _check_second(by: User, approval: ApprovalRequest) -> None:
    """Raise unless this is an administrator other than the person who asked, and no account of one person's making.

    Whoever changed an account does not matter: one that was made just now, or a provider, may have done it for another.
    """
    require_administrator(by)
    if by.pk == approval.requested_by_id:
        raise Forbidden(_("You asked for it yourself: another administrator decides."))
    since = approval.requested_at - STRANGER_FOR
    if _is_changed_since(by.pk, since):
        raise Forbidden(
            _(
                "Somebody changed your account or its provider within the day before this was requested, or since: "
                "others decide."
            )
        )
    if _is_changed_since(approval.requested_by_id, since):
        raise Forbidden(
            _(
                "Somebody changed the account of {person} or its provider within the day before this was requested, or "
                "since: others ask for it.",
                person=approval.requested_by_name,
            )
        )


def _is_changed_since(person_id: int, since: datetime) -> bool:
    """Return whether an account or the identity provider of it was made or changed by anybody since then."""
    providers = User.objects.filter(pk=person_id, external_identity__isnull=False)
    provider_ids = [str(pk) for pk in providers.values_list("external_identity__provider", flat=True)]
    # Who says which certificate and which names of a directory count may sign in as each of its people.
    changes = Q(action__in=ACCOUNT_ACTIONS, target_id=str(person_id)) | Q(
        action=Action.PROVIDER_EDIT, target_id__in=provider_ids
    )
    return AuditEntry.objects.filter(changes, outcome=Outcome.DONE, at__gte=since).exists()


def _locked(approval: ApprovalRequest) -> ApprovalRequest:
    row: ApprovalRequest | None = lock_rows(ApprovalRequest.objects.filter(pk=approval.pk)).first()
    if row is None:
        raise NotFound(_("There is no such approval."))
    return row


def _check_waiting(row: ApprovalRequest) -> None:
    if row.state != State.WAITING:
        state = _(ENDS[State(row.state)])
        if row.decided_by_name:
            raise Conflict(_("It no longer waits: {state} by {person}.", state=state, person=row.decided_by_name))
        raise Conflict(_("It no longer waits: {state}.", state=state))
    if row.expires_at <= timezone.now():
        raise Conflict(_("Its time is over. Who asked for it can ask again."))


def _end(row: ApprovalRequest, state: State) -> None:
    row.state, row.ended_at = state, timezone.now()
    row.save()
    approval_changed.send(ApprovalRequest, approval=row)


def _target(approval: ApprovalRequest) -> Target:
    return target_of(approval, approval.sentence)


def _audit_values(row: ApprovalRequest) -> dict[str, object]:
    return {
        "approval": str(row.pk), "state": row.state, "asked for by": row.requested_by_name, "dangers": row.dangers,
        "act": row.service, "parameters": row.parameters, "facts": row.facts, "decided by": row.decided_by_name or None,
    }  # fmt: skip
