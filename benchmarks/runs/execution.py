"""A run on its hosts, by their agents: start, poll, stop, delete; and orphaned runs.

All hosts of a run start it, or none; where one ends it, fails or is lost, it ends on all of them.

An orphaned run is stopped and deleted on its host, so that no process keeps a device that another run claims.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from benchmarks.runs.attachment import authorise_requester
from benchmarks.runs.claims import CLAIM_RENEWAL_SECONDS, RunClaim, RunFailed
from benchmarks.runs.foreign_load import busy_gpus_record
from benchmarks.runs.models import Run, RunNode
from benchmarks.runs.nodes import address_labels, node_devices, train_requests
from benchmarks.runs.recording import PEER_TROUBLE, run_update_store, sentence_of_host
from benchmarks.runs.topology import ADDRESSES_KEY
from core.clock import process_clock
from core.errors import Unavailable
from core.failpoints import failpoint
from core.threads import single_connection_thread
from fabric.agents.models import HostAgent
from fabric.agents.selectors import is_agent_away, latest_report
from fabric.agents.services import agent_request
from fabric.inventory.models import Host
from hostwire.protocol import (
    CommandAnswer,
    Request,
    TrainDeleteRequest,
    TrainPollRequest,
    TrainStopRequest,
)
from hostwire.training import RunUpdate

logger = logging.getLogger(__name__)

# The runs of an unreachable agent continue, and it may restart. After this time they count as lost.
AGENT_LOST_AFTER: Final = timedelta(minutes=5)
AGENT_LOST_MINUTES: Final = round(AGENT_LOST_AFTER.total_seconds() / 60)
START_TIMEOUT: Final = 20.0  # for an agent to start a run
GRACE_SECONDS: Final = 10.0  # between SIGTERM and SIGKILL
STOP_TIMEOUT: Final = GRACE_SECONDS + 15.0  # for an agent to stop a run
LIMIT_TOLERANCE: Final = timedelta(seconds=60)  # beyond the time limit, which the host itself enforces
SETTLING_SECONDS: Final = 60.0  # for reports by the new time after the clock was set
MAX_POLLS: Final = 50  # in one step: the next step reads the rest
UNKNOWN_EXIT_SENTENCE: Final = "Its exit status is unknown: its supervisor on the host was killed."
State = Run.State
Result = TypeVar("Result")
_polled_since: dict[UUID, float] = {}  # when this process first polled a running run, in monotonic seconds


def start_on_hosts(claim: RunClaim) -> bool:
    """Request the start of a run on its hosts; return whether all started it. Raises RunFailed if one refuses."""
    run = claim.run
    nodes = run.all_nodes()
    if not all(_agent_reports(claim, node) for node in nodes):
        return False
    if run.cancel_requested_at is not None:
        return _cancel_unstarted(claim, nodes)
    seen = node_devices(claim, nodes)
    if seen is None:
        return False
    # An unreachable host may start minutes after its devices were attached: authorise as late as possible.
    authorise_requester(run)
    answers = _request_agents(claim, nodes, train_requests(run, nodes, seen), wait=START_TIMEOUT)
    failpoint("run.start.answered")
    for node, answer in zip(nodes, answers, strict=True):
        if answer is not None and answer.outcome not in {"started", "interrupted"}:
            raise RunFailed("refused", sentence_of_host(run, node, answer.sentence or "Its host did not start it."))
    # An agent that restarted meanwhile returns the outcome on the next request.
    if late := [node for node, answer in zip(nodes, answers, strict=True) if _is_unanswered(answer)]:
        _fail_if_silent(late[0], since=run.state_since)
        return False
    source = {**run.source, ADDRESSES_KEY: address_labels(nodes, seen)}
    claim.transition(State.RUNNING, started_at=run.started_at or timezone.now(), source=source)
    failpoint("run.started")
    return True


def poll_hosts(claim: RunClaim) -> bool:
    """Store the events and logs since the last poll; return whether the run has ended. Raises RunFailed."""
    run = claim.run
    nodes = run.all_nodes()
    there = [node for node in nodes if _agent_reports(claim, node)]
    if there and run.state == State.RUNNING and (run.cancel_requested_at is not None or _is_over_limit(run)):
        return _stop_on_hosts(claim, there)
    # What the other hosts have to say is read while one is away.
    found = [(node, _poll_node(claim, node)) for node in there]
    news = [(node, update) for node, update in found if update is not None]
    running = [node for node, update in news if update.state == "running"]
    if running and any(update.state != "running" and update.exit_code != 0 for _node, update in news):
        _stop_others(claim, running)
        return False
    if len(news) < len(nodes):
        return False
    if running:
        busy_gpus_record(claim)
        claim.set_sentence("" if run.state == State.RUNNING else "Its host is stopping it.")
        return False
    _polled_since.pop(run.pk, None)
    _record_exit(claim, news)
    failpoint("run.outcome.stored")
    return True


def _poll_node(claim: RunClaim, node: RunNode) -> RunUpdate | None:
    """Store what is new of one host, and return its last news; None while there is more, or no answer."""
    run = claim.run
    for _ in range(MAX_POLLS):
        request = TrainPollRequest(str(run.pk), node.next_event, node.next_byte)
        (answer,) = _request_agents(claim, [node], [request])
        if answer is None or answer.news is None:
            claim.set_sentence(f"The agent of {node.name} reports, but does not answer. Retrying.")
            return None
        news = answer.news
        with transaction.atomic():
            claim.write(**run_update_store(run, news, node))
            failpoint("run.polled.uncommitted")
        failpoint("run.polled")
        continues = news.more or news.state == "running"
        if continues and run.state == State.STOPPING and claim.seconds_in_state > AGENT_LOST_AFTER.total_seconds():
            raise RunFailed("lost", f"{node.name} could not end its processes in {AGENT_LOST_MINUTES} minutes.")
        if not news.more:
            return news
    return None


def delete_from_hosts(claim: RunClaim) -> None:
    """Delete an ended run from its hosts, since everything is stored here. An unreachable host keeps its copy."""
    there = _reporting(claim.run)
    if claim.run.started_at is None or not there:
        return
    _request_agents(claim, there, [TrainDeleteRequest(str(claim.run.pk))] * len(there))
    failpoint("run.deleted")


def end_on_all_hosts(claim: RunClaim) -> None:
    """Stop a failed run on all of its hosts that report, where they are several; what remains ends as an orphan."""
    run = claim.run
    if not run.is_on_several_hosts or run.state not in Run.ON_HOST:
        return
    there = _reporting(run)
    _request_agents(claim, there, [TrainStopRequest(str(run.pk), GRACE_SECONDS)] * len(there), wait=STOP_TIMEOUT)
    if run.started_at is None:
        _request_agents(claim, there, [TrainDeleteRequest(str(run.pk))] * len(there))


def _stop_others(claim: RunClaim, running: list[RunNode]) -> None:
    """Stop the hosts of a run that still run it, where another one has failed."""
    if claim.run.state == State.RUNNING:
        claim.transition(State.STOPPING, sentence="One of its hosts has ended it; the others are stopping.")
    stop = TrainStopRequest(str(claim.run.pk), GRACE_SECONDS)
    _request_agents(claim, running, [stop] * len(running), wait=STOP_TIMEOUT)


def _stop_on_hosts(claim: RunClaim, nodes: list[RunNode]) -> bool:
    run = claim.run
    stop = TrainStopRequest(str(run.pk), GRACE_SECONDS)
    answers = _request_agents(claim, nodes, [stop] * len(nodes), wait=STOP_TIMEOUT)
    if late := [node for node, answer in zip(nodes, answers, strict=True) if _is_unanswered(answer)]:
        _fail_if_silent(late[0], since=run.cancel_requested_at or _deadline(run) or run.state_since)
        return False
    sentence = "" if run.cancel_requested_at is not None else "It took longer than its time limit."
    claim.transition(
        State.STOPPING,
        **({"trouble": "limit", "error": sentence} if sentence and not run.trouble else {}),
        sentence="Its host is stopping it.",
    )
    return poll_hosts(claim)


def _record_exit(claim: RunClaim, found: Sequence[tuple[RunNode, RunUpdate]]) -> None:
    run = claim.run
    for node, update in found:
        if update.state == "unknown":
            raise RunFailed("lost", f"{node.name} has no record of it: its state was lost there.")
    if run.trouble == PEER_TROUBLE:  # no host has said more
        run.trouble = "crash"
    failed = [(node, update) for node, update in found if update.exit_code != 0]
    # Of several the one whose failure is the run's.
    failed.sort(key=lambda one: not run.error.startswith(f"{one[0].name}: "))
    node, news = (failed or found)[0]
    exit_code = None if news.exit_code is None else max(-(2**31), min(news.exit_code, 2**31 - 1))
    if run.cancel_requested_at is not None and (news.cancelled or exit_code != 0):
        by = f"{run.cancelled_by_name} cancelled it."
        # An exit by cancellation is not a failure.
        run.trouble = run.error = ""
        claim.record_outcome(State.CANCELLED, sentence=by, exit_code=exit_code)
    elif exit_code == 0 and not run.trouble:
        claim.record_outcome(State.COMPLETED, exit_code=exit_code)
    else:
        trouble = run.trouble or ("lost" if exit_code is None else "crash")
        cause = run.error or (news.sentence and sentence_of_host(run, node, news.sentence))
        sentence = cause or (UNKNOWN_EXIT_SENTENCE if exit_code is None else f"It ended with exit code {exit_code}.")
        claim.record_outcome(State.FAILED, trouble=trouble, sentence=sentence, exit_code=exit_code)


def _cancel_unstarted(claim: RunClaim, nodes: list[RunNode]) -> bool:
    """Cancel a run that may or may not have started on its hosts."""
    run = claim.run
    stop = TrainStopRequest(str(run.pk), GRACE_SECONDS)
    if None in _request_agents(claim, nodes, [stop] * len(nodes), wait=STOP_TIMEOUT):
        return False
    polls = [TrainPollRequest(str(run.pk), node.next_event, node.next_byte) for node in nodes]
    news = [answer and answer.news for answer in _request_agents(claim, nodes, polls)]
    if None in news:
        return False
    if all(one and one.state == "unknown" for one in news):
        claim.record_outcome(State.CANCELLED, sentence=f"{run.cancelled_by_name} cancelled it before it started.")
    else:
        claim.transition(State.STOPPING, started_at=timezone.now(), sentence="Its host is stopping it.")
    return True


def _agent_reports(claim: RunClaim, node: RunNode) -> bool:
    """Return whether a host's agent reports; raises RunFailed after AGENT_LOST_AFTER without a report."""
    run = claim.run
    agent = HostAgent.objects.filter(host=node.host).first() if node.host_id is not None else None
    if agent is None:
        raise RunFailed("lost", f"{node.name} no longer has an agent.")
    if not is_agent_away(agent):
        return True
    if _is_lost(max(agent.reported_at or run.state_since, run.state_since)):
        raise RunFailed("lost", f"The agent of {node.name} has not reported for {AGENT_LOST_MINUTES} minutes.")
    claim.set_sentence(f"The agent of {node.name} does not report. The run may continue there. Waiting for a report.")
    return False


def _reporting(run: Run) -> list[RunNode]:
    nodes = run.all_nodes()
    agents = {one.host_id: one for one in HostAgent.objects.filter(host__in=[node.host_id for node in nodes])}
    return [node for node in nodes if node.host_id in agents and not is_agent_away(agents[node.host_id])]


def _request_agents(
    claim: RunClaim, nodes: Sequence[RunNode], requests: Sequence[Request], *, wait: float = 0.0
) -> list[CommandAnswer | None]:
    """Send a request to the agent of each of these hosts, at once; None of one that is unavailable."""

    async def ask(host: Host | None, request: Request) -> CommandAnswer | None:
        try:
            return None if host is None else await agent_request(host, request, wait=wait)
        except Unavailable as error:
            logger.info("run %s: %s", claim.run.pk, error.sentence)
            return None

    async def send() -> list[CommandAnswer | None]:
        async with claim.keep_renewed(CLAIM_RENEWAL_SECONDS):
            asked = (ask(node.host, request) for node, request in zip(nodes, requests, strict=True))
            return await asyncio.gather(*asked)

    return _run_if_available(send(), claim.run.pk) or [None] * len(nodes)


def _run_if_available(work: Coroutine[Any, Any, Result], run: object) -> Result | None:
    try:
        with single_connection_thread():
            return asyncio.run(work)
    except Unavailable as error:
        logger.info("run %s: %s", run, error.sentence)
        return None


def _is_unanswered(answer: CommandAnswer | None) -> bool:
    return answer is None or answer.outcome == "interrupted"


def _fail_if_silent(node: RunNode, *, since: datetime) -> None:
    """Raise RunFailed if a reporting host has not answered since `since`, so that its devices are released."""
    if _is_lost(since):
        raise RunFailed("lost", f"The agent of {node.name} has not answered for {AGENT_LOST_MINUTES} minutes.")


def _is_lost(since: datetime) -> bool:
    """Return whether a host has been silent since then for too long; after the clock was set it first has to report."""
    return timezone.now() - since > AGENT_LOST_AFTER and not process_clock.was_set_within(SETTLING_SECONDS)


def _is_over_limit(run: Run) -> bool:
    """Return whether this process has seen a run for longer than its limit, which its host should have enforced."""
    watched = time.monotonic() - _polled_since.setdefault(run.pk, time.monotonic())
    return watched > run.limit_seconds + LIMIT_TOLERANCE.total_seconds()


def _deadline(run: Run) -> datetime | None:
    """Return when the site stops a run whose host has not enforced the time limit; None before it started."""
    if run.started_at is None:
        return None
    return run.started_at + timedelta(seconds=run.limit_seconds) + LIMIT_TOLERANCE


def orphaned_runs_end() -> list[str]:
    """Stop runs that hosts report and that have ended here or are unknown to this site; return their ids."""
    ended = []
    for agent in HostAgent.objects.select_related("host"):
        report = None if is_agent_away(agent) else latest_report(agent)
        running = report.trainer.running if report is not None else ()
        ended += [run for run in _orphaned_runs(running) if _end_orphan(agent.host, run)]
    return ended


def _orphaned_runs(running: tuple[str, ...]) -> list[str]:
    known = {}
    for one in running:
        try:
            known[UUID(one)] = one
        except ValueError:
            continue  # not started by this site
    there = set(Run.objects.open().filter(pk__in=known).values_list("pk", flat=True))
    return [name for pk, name in known.items() if pk not in there]


def _end_orphan(host: Host, run: str) -> bool:
    """Stop and delete a run on a host; False if it does not answer, so that the next call retries."""

    async def stop() -> bool:
        stopped = await agent_request(host, TrainStopRequest(run, GRACE_SECONDS), wait=STOP_TIMEOUT)
        failpoint("run.orphan.stopped")
        return stopped is not None and await agent_request(host, TrainDeleteRequest(run)) is not None

    done = _run_if_available(stop(), run)
    if done is None:
        return False  # the host is away, which was logged
    logger.warning("%s still ran %s, which has ended here: %s", host.name, run, "ended" if done else "no answer")
    return done
