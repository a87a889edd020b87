"""Named points at the boundaries of work that must survive any fault: a row changed, a request sent, an answer there.

In a site they do nothing, and nothing can make them do anything: no setting, and no code besides the tests, sets a
handler. Tests let a process die or hang there, lose an answer or the database (tests/failpoints). A name that ends with
'.uncommitted' is inside a transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, get_args

Failpoint = Literal[
    # An operation: its request, a worker's claim, its steps, its end.
    "operation.requested.uncommitted",
    "operation.requested",
    "operation.cancelled.uncommitted",
    "operation.claim",
    "operation.claimed.uncommitted",
    "operation.claimed",
    "operation.claim.renewed",
    "operation.begun",
    "operation.step.begin",
    "operation.step.begun",
    "operation.step.done",
    "operation.host.claimed",
    "operation.host.released",
    "operation.proof.begun",
    "operation.read",
    "operation.mirrored",
    "operation.proof.ended",
    "operation.end",
    "operation.end.uncommitted",
    "operation.ended",
    "operation.announced",
    "operation.next",
    # What it asks of the BMC.
    "bmc.attach.request",
    "bmc.attach.answered",
    "bmc.detach.request",
    "bmc.detach.answered",
    "bmc.mode.request",
    "bmc.mode.answered",
    "bmc.port.request",
    "bmc.port.answered",
    # A command to the agent of a host.
    "agent.command.stored",
    "agent.command.sent",
    "agent.command.answered",
    # A plan: applied, advanced, replanned from the hardware, cancelled.
    "plan.created.uncommitted",
    "plan.apply",
    "plan.applied.uncommitted",
    "plan.applied",
    "plan.step.failed.uncommitted",
    "plan.advance",
    "plan.settled.uncommitted",
    "plan.settled",
    "plan.read",
    "plan.replanned.uncommitted",
    "plan.replanned",
    "plan.cancelled.uncommitted",
    # A lease: started, handed over, ended, its parts detached and released.
    "lease.started.uncommitted",
    "lease.started",
    "lease.acquired.uncommitted",
    "lease.acquired",
    "lease.ended",
    "lease.read",
    "lease.released.uncommitted",
    "lease.released",
    "lease.detaching.uncommitted",
    "lease.detaching",
    # An export: into a file, or in batches to a receiver.
    "export.requested.uncommitted",
    "export.claimed",
    "export.begun",
    "export.page.written",
    "export.progress.stored",
    "export.rename",
    "export.renamed",
    "export.ended",
    "export.file.deleted",
    "export.batch.chosen",
    "export.batch.sent",
    "export.batch.stored",
    # A run of a benchmark: its devices, its host, its results.
    "run.created.uncommitted",
    "run.held.uncommitted",
    "run.held",
    "run.claimed",
    "run.attaching.uncommitted",
    "run.attaching",
    "run.start.answered",
    "run.started",
    "run.polled.uncommitted",
    "run.polled",
    "run.outcome.stored",
    "run.results.stored",
    "run.deleted",
    "run.restoring.uncommitted",
    "run.restoring",
    "run.finished.uncommitted",
    "run.finished",
    "run.orphan.stopped",
]
FAILPOINTS: Final[tuple[Failpoint, ...]] = get_args(Failpoint)

Handler = Callable[[Failpoint, object], None]
_handler: Handler | None = None


def failpoint(name: Failpoint, about: object = None) -> None:
    """Do nothing, or what a test has asked for at this point; `about` tells one of its kind from the others."""
    if _handler is not None:
        _handler(name, about)


def set_failpoint_handler(handler: Handler | None) -> None:
    """Have `handler` called with each failpoint that this process reaches; None for nothing. For tests."""
    global _handler  # noqa: PLW0603 - one for the process; a check of one name is all that a site pays
    _handler = handler
