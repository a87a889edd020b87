"""Verification of the log: all entries unchanged and in order, the end as sealed and as last verified."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain as one_after_another
from pathlib import Path
from typing import Any

from django.conf import settings
from kombu.exceptions import OperationalError

from accounts.access import require_administrator
from accounts.audit import chain
from accounts.audit.actions import Action, Outcome
from accounts.audit.models import AuditEntry, AuditHead
from accounts.audit.services import Target, attempt, audit_record
from accounts.models import User
from core.enqueue import enqueue
from core.errors import Unavailable
from core.language import _, gettext_noop

VERIFIED_BATCH_ROWS = 2000
AUDIT_LOG_TARGET = Target(kind="audit", name="The audit log")


@dataclass(frozen=True)
class VerificationResult:
    """The number of checked entries, the first broken one (None: the log is intact), and a sentence."""

    entries: int
    digest: str
    broken: int | None
    sentence: str


def chain_check(*, expected: tuple[int, str] | None = None) -> VerificationResult:
    """Check every entry; `expected` is the number and digest of one that was noted elsewhere. Read-only."""
    head = AuditHead.objects.filter(pk=1).first() or AuditHead(
        digest=chain.GENESIS_DIGEST, seal=chain.seal_of(settings.AUDIT_KEY, 0, chain.GENESIS_DIGEST)
    )
    noted = [one for one in (_read_anchor(), expected) if one is not None]
    walk = _ChainWalk(head, dict(noted))
    first = next(one_after_another(chain.chain_breaks(walk.records()), walk.end_breaks()), None)
    if first is None:
        return VerificationResult(walk.count, walk.digest, None, f"The log is whole: {_entries(walk.count)}.")
    return VerificationResult(walk.count, walk.digest, first.sequence, first.sentence)


def verification_request(*, by: User) -> None:
    """Have a worker verify the log, which is slow for a long log; raises Forbidden, and Unavailable."""
    with attempt(Action.AUDIT_VERIFY_REQUEST, actor=by, target=AUDIT_LOG_TARGET) as act:
        require_administrator(by)
        try:
            enqueue("accounts.verify_audit", by.pk)
        except (OperationalError, OSError) as error:
            raise Unavailable(
                _("The workers cannot be reached now, so nothing verifies the log. Try again.")
            ) from error
        with act.change():
            pass  # only the entry: waiting for an unreachable broker must be outside of a transaction


def audit_verify(*, actor: User | None, expected: tuple[int, str] | None = None) -> VerificationResult:
    """Verify the log, record the result as an entry, and store the verified end outside the database.

    `expected` is as in `chain_check`.
    """
    verdict = chain_check(expected=expected)
    whole = verdict.broken is None
    audit_record(
        action=Action.AUDIT_VERIFY,
        actor=actor,
        target=AUDIT_LOG_TARGET,
        after={"entries": verdict.entries, "first broken": verdict.broken},
        outcome=Outcome.DONE if whole else Outcome.FAILED,
        sentence=verdict.sentence,
    )
    if whole:
        _write_anchor(verdict.entries, verdict.digest)
    return verdict


def audit_reseal(*, actor: User | None, reason: str) -> None:
    """Accept a broken seal, or a log that is shorter than before, with the reason in the log.

    A restored backup and a lost key are such reasons. Changed or missing entries stay broken.
    """
    audit_record(action=Action.AUDIT_RESEAL, actor=actor, target=AUDIT_LOG_TARGET, sentence=reason)
    anchor_path().unlink(missing_ok=True)


def last_verification() -> AuditEntry | None:
    """Return the entry of the last verification."""
    return AuditEntry.objects.filter(action=Action.AUDIT_VERIFY).order_by("-sequence").first()


def anchor_path() -> Path:
    """Return the file with the end of the log as last verified; it is outside the database."""
    path: Path = settings.CONFIG.data / "secrets" / "audit_anchor"
    return path


class _ChainWalk:
    """One pass over all entries up to the end that the head had at its start."""

    def __init__(self, head: AuditHead, noted: dict[int, str]) -> None:
        self.head = head
        self.noted = noted
        self.count = 0
        self.last = 0
        self.digest = chain.GENESIS_DIGEST
        self.seal_broken = 0

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the entries."""
        rows = AuditEntry.objects.filter(sequence__lte=self.head.sequence).order_by("sequence")
        for row in rows.iterator(chunk_size=VERIFIED_BATCH_ROWS):
            yield row.record()
            self.count, self.last, self.digest = self.count + 1, row.sequence, row.digest
            if self.noted.get(row.sequence) == row.digest:
                del self.noted[row.sequence]
            if row.action == Action.AUDIT_SEAL_BROKEN:
                self.seal_broken = self.seal_broken or row.sequence
            elif row.action == Action.AUDIT_RESEAL:
                self.seal_broken = 0

    def end_breaks(self) -> Iterator[chain.ChainBreak]:
        """Yield the breaks that only the complete log shows."""
        head = self.head
        if self.last < head.sequence:
            sentence = f"The log is cut off: it ends at entry {self.last}, and its end was sealed at {head.sequence}."
            yield chain.ChainBreak(self.last + 1, sentence)
        if self.digest != head.digest:
            yield chain.ChainBreak(self.last, f"Entry {self.last} is not the one that was sealed as the last.")
        if head.seal != chain.seal_of(settings.AUDIT_KEY, head.sequence, head.digest):
            sentence = gettext_noop("The seal of the end is not the site's: the end was replaced, or the key was.")
            yield chain.ChainBreak(self.last, sentence)
        if self.seal_broken:
            sentence = f"Entry {self.seal_broken} records that the end of the log had been replaced before it."
            yield chain.ChainBreak(self.seal_broken, sentence)
        for sequence in sorted(self.noted):
            if sequence > self.last:
                sentence = f"The log is cut off: it ends at entry {self.last}, and had {_entries(sequence)} before."
                yield chain.ChainBreak(self.last + 1, sentence)
            else:
                sentence = f"Entry {sequence} differs from the one at the last verification of the log."
                yield chain.ChainBreak(sequence, sentence)
        newest = AuditEntry.objects.order_by("-sequence").values_list("sequence", flat=True).first() or 0
        now = AuditHead.objects.filter(pk=1).values_list("sequence", flat=True).first() or 0
        if newest > now:
            yield chain.ChainBreak(now + 1, f"Entry {now + 1} is after the end of the log.")


def _read_anchor() -> tuple[int, str] | None:
    try:
        kept = json.loads(anchor_path().read_text())
        return int(kept["sequence"]), str(kept["digest"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _write_anchor(sequence: int, digest: str) -> None:
    if sequence == 0:
        return
    path = anchor_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps({"sequence": sequence, "digest": digest}))
    new.chmod(0o600)
    new.replace(path)


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"
