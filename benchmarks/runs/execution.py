"""A run on its host, by its agent: start, poll, stop, delete; and orphaned runs.

An orphaned run is stopped and deleted on its host, so that no process keeps a device that another run claims.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from benchmarks.runs.attachment import authorise_requester
from benchmarks.runs.claims import CLAIM_RENEWAL_SECONDS, RunClaim, RunFailed
from benchmarks.runs.models import Run
from benchmarks.runs.recording import run_update_store
from benchmarks.runs.rules import Composition
from benchmarks.runs.simulation import simulation_profile
from benchmarks.runs.topology import ADDRESSES_KEY, device_label, own_drive, recorded_topology
from core.clock import process_clock
from core.errors import Unavailable
from core.failpoints import failpoint
from core.threads import single_connection_thread
from fabric.agents.models import HostAgent
from fabric.agents.selectors import attached_devices, device_selector, is_agent_away, latest_report, match_device
from fabric.agents.services import agent_request
from fabric.inventory.models import Device, Host
from hostwire.protocol import (
    CommandAnswer,
    DeviceSelector,
    PciDevice,
    Request,
    TrainDeleteRequest,
    TrainPollRequest,
    TrainRequest,
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
DEVICE_VISIBLE_TIMEOUT: Final = 45.0  # for an attached device to appear in its host's report
LIMIT_TOLERANCE: Final = timedelta(seconds=60)  # beyond the time limit, which the host itself enforces
SETTLING_SECONDS: Final = 60.0  # for reports by the new time after the clock was set
MAX_POLLS: Final = 50  # in one step: the next step reads the rest
UNKNOWN_EXIT_SENTENCE: Final = "Its exit status is unknown: its supervisor on the host was killed."
State = Run.State
Result = TypeVar("Result")
_polled_since: dict[UUID, float] = {}  # when this process first polled a running run, in monotonic seconds


@dataclass(frozen=True)
class HostDevices:
    """The devices of a run as its host reports them.

    `devices` are the GPUs in the order of ranks, then the drive; `addresses` are PCI addresses by device id, `foreign`
    those of all chassis devices attached to the host. `drive` holds the data and may be the host's own.
    """

    devices: tuple[DeviceSelector, ...]
    addresses: Mapping[int, str]
    foreign: tuple[str, ...]
    drive: PciDevice | None


def start_on_host(claim: RunClaim) -> bool:
    """Request the start of a run on its host; return whether it started. Raises RunFailed if the host refuses."""
    run = claim.run
    if not _agent_reports(claim):
        return False
    if run.cancel_requested_at is not None:
        return _cancel_unstarted(claim)
    seen = _host_devices(claim)
    if seen is None:
        return False
    # An unreachable host may start minutes after its devices were attached: authorise as late as possible.
    authorise_requester(run)
    answer = _request_agent(claim, _train_request(run, seen), wait=START_TIMEOUT)
    failpoint("run.start.answered")
    match None if answer is None else answer.outcome:
        case "started":
            source = {**run.source, ADDRESSES_KEY: _device_labels(run, seen)}
            claim.transition(State.RUNNING, started_at=run.started_at or timezone.now(), source=source)
            failpoint("run.started")
            return True
        case None | "interrupted":
            # The agent restarted meanwhile: the next request returns the outcome.
            _fail_if_silent(claim, since=run.state_since)
            return False
        case _:
            raise RunFailed("refused", (answer and answer.sentence) or "Its host did not start it.")


def poll_host(claim: RunClaim) -> bool:
    """Store the events and log since the last poll; return whether the run has ended. Raises RunFailed."""
    run = claim.run
    if not _agent_reports(claim):
        return False
    if run.state == State.RUNNING and (run.cancel_requested_at is not None or _is_over_limit(run)):
        return _stop_on_host(claim)
    for _ in range(MAX_POLLS):
        answer = _request_agent(claim, TrainPollRequest(str(run.pk), run.next_event, run.next_byte))
        if answer is None or answer.news is None:
            claim.set_sentence(f"The agent of {_host_name(run)} reports, but does not answer. Retrying.")
            return False
        news = answer.news
        with transaction.atomic():
            claim.write(**run_update_store(run, news))
            failpoint("run.polled.uncommitted")
        failpoint("run.polled")
        continues = news.more or news.state == "running"
        if continues and run.state == State.STOPPING and claim.seconds_in_state > AGENT_LOST_AFTER.total_seconds():
            raise RunFailed("lost", f"{_host_name(run)} could not end its processes in {AGENT_LOST_MINUTES} minutes.")
        if news.more:
            continue
        if news.state == "running":
            claim.set_sentence("" if run.state == State.RUNNING else "Its host is stopping it.")
            return False
        _polled_since.pop(run.pk, None)
        _record_exit(claim, news)
        failpoint("run.outcome.stored")
        return True
    return False


def delete_from_host(claim: RunClaim) -> None:
    """Delete an ended run from its host, since everything is stored here. An unreachable host keeps its copy."""
    run = claim.run
    agent = HostAgent.objects.filter(host=run.host).first()
    if run.started_at is None or agent is None or is_agent_away(agent):
        return
    _request_agent(claim, TrainDeleteRequest(str(run.pk)))
    failpoint("run.deleted")


def _stop_on_host(claim: RunClaim) -> bool:
    run = claim.run
    answer = _request_agent(claim, TrainStopRequest(str(run.pk), GRACE_SECONDS), wait=STOP_TIMEOUT)
    if answer is None or answer.outcome == "interrupted":
        _fail_if_silent(claim, since=run.cancel_requested_at or _deadline(run) or run.state_since)
        return False
    sentence = "" if run.cancel_requested_at is not None else "It took longer than its time limit."
    claim.transition(
        State.STOPPING,
        **({"trouble": "limit", "error": sentence} if sentence and not run.trouble else {}),
        sentence="Its host is stopping it.",
    )
    return poll_host(claim)


def _record_exit(claim: RunClaim, news: RunUpdate) -> None:
    run = claim.run
    if news.state == "unknown":
        raise RunFailed("lost", f"{_host_name(run)} has no record of it: its state was lost there.")
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
        cause = run.error or news.sentence
        sentence = cause or (UNKNOWN_EXIT_SENTENCE if exit_code is None else f"It ended with exit code {exit_code}.")
        claim.record_outcome(State.FAILED, trouble=trouble, sentence=sentence, exit_code=exit_code)


def _cancel_unstarted(claim: RunClaim) -> bool:
    """Cancel a run that may or may not have started on its host."""
    run = claim.run
    if _request_agent(claim, TrainStopRequest(str(run.pk), GRACE_SECONDS), wait=STOP_TIMEOUT) is None:
        return False
    answer = _request_agent(claim, TrainPollRequest(str(run.pk), run.next_event, run.next_byte))
    if answer is None or answer.news is None:
        return False
    if answer.news.state == "unknown":
        claim.record_outcome(State.CANCELLED, sentence=f"{run.cancelled_by_name} cancelled it before it started.")
    else:
        claim.transition(State.STOPPING, started_at=timezone.now(), sentence="Its host is stopping it.")
    return True


def _agent_reports(claim: RunClaim) -> bool:
    """Return whether the host's agent reports; raises RunFailed after AGENT_LOST_AFTER without a report."""
    run = claim.run
    agent = HostAgent.objects.filter(host=run.host).first() if run.host_id is not None else None
    if agent is None:
        raise RunFailed("lost", "Its host no longer has an agent.")
    if not is_agent_away(agent):
        return True
    if _is_lost(max(agent.reported_at or run.state_since, run.state_since)):
        raise RunFailed("lost", f"The agent of {_host_name(run)} has not reported for {AGENT_LOST_MINUTES} minutes.")
    claim.set_sentence(
        f"The agent of {_host_name(run)} does not report. The run may continue there. Waiting for a report."
    )
    return False


def _host_devices(claim: RunClaim) -> HostDevices | None:
    """Return the devices of a run as its host reports them; None until all appear. Raises RunFailed."""
    run = claim.run
    composition = Composition.from_json(run.composition)
    agent = HostAgent.objects.filter(host=run.host).first()
    report = latest_report(agent)
    neighbours = attached_devices([run.host_id or 0]).get(run.host_id or 0, [])
    gpus: list[DeviceSelector] = []
    drives: list[DeviceSelector] = []
    addresses: dict[int, str] = {}
    drive = own_drive(report, neighbours) if composition.own_drive else None
    if composition.own_drive and drive is None:
        if claim.seconds_in_state > DEVICE_VISIBLE_TIMEOUT:
            raise RunFailed("refused", f"{_host_name(run)} no longer shows an NVMe drive of its own.")
        claim.set_sentence(f"Waiting for the NVMe drive of {_host_name(run)}, which it does not report.")
        return None
    for pk, device in _devices_in_order(composition).items():
        found = match_device(report, device, neighbours) if report is not None else None
        if found is None or found.seen is None:
            why = found.unsure if found is not None and found.unsure else "its host does not report it"
            if claim.seconds_in_state > DEVICE_VISIBLE_TIMEOUT:
                raise RunFailed("refused", f"{device.name} cannot be used: {why}.")
            claim.set_sentence(f"Waiting for {device.name}: {why}.")
            return None
        addresses[pk] = found.seen.address
        drive = found.seen if pk == composition.storage else drive
        (gpus if device.kind == Device.Kind.GPU else drives).append(device_selector(device, found.seen))
    others = [match_device(report, one, neighbours).seen for one in neighbours] if report is not None else []
    foreign = tuple(sorted({one.address for one in others if one is not None}))
    return HostDevices((*gpus, *drives), addresses, foreign, drive)


def _devices_in_order(composition: Composition) -> dict[int, Device]:
    rows = Device.objects.select_related("chassis", "slot").in_bulk(composition.devices)
    return {pk: rows[pk] for pk in composition.devices if pk in rows}


def _device_labels(run: Run, seen: HostDevices) -> dict[str, str]:
    devices = _devices_in_order(Composition.from_json(run.composition))
    return {seen.addresses[pk]: device_label(device) for pk, device in devices.items()}


def _train_request(run: Run, seen: HostDevices) -> TrainRequest:
    composition = Composition.from_json(run.composition)
    spec = run.specification()
    profile = None
    if run.executor == "simulated":
        topology = recorded_topology(run)
        if topology is None:
            raise RunFailed("refused", "Its topology is not recorded.")
        named = {name: address for address, name in _device_labels(run, seen).items()}
        drive = seen.drive.address if seen.drive is not None else ""
        profile = simulation_profile(spec, topology, named, drive=drive, exercise=run.exercise)
    return TrainRequest(
        run=str(run.pk),
        spec=spec,
        executor="simulated" if run.executor == "simulated" else "torch",
        limit=run.limit_seconds,
        devices=seen.devices,
        local=composition.local_gpus,
        foreign=seen.foreign if composition.local_gpus else (),
        drive=DeviceSelector(address=seen.drive.address, serial=seen.drive.serial) if seen.drive is not None else None,
        profile=profile,
    )


def _request_agent(claim: RunClaim, request: Request, *, wait: float = 0.0) -> CommandAnswer | None:
    """Send a request to the agent of a run's host; None while it is unavailable."""
    host = claim.run.host
    if host is None:
        return None

    async def send() -> CommandAnswer | None:
        async with claim.keep_renewed(CLAIM_RENEWAL_SECONDS):
            return await agent_request(host, request, wait=wait)

    return _run_if_available(send(), claim.run.pk)


def _run_if_available(work: Coroutine[Any, Any, Result], run: object) -> Result | None:
    try:
        with single_connection_thread():
            return asyncio.run(work)
    except Unavailable as error:
        logger.info("run %s: %s", run, error.sentence)
        return None


def _fail_if_silent(claim: RunClaim, *, since: datetime) -> None:
    """Raise RunFailed if a reporting host has not answered since `since`, so that its devices are released."""
    if _is_lost(since):
        raise RunFailed(
            "lost", f"The agent of {_host_name(claim.run)} has not answered for {AGENT_LOST_MINUTES} minutes."
        )


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


def _host_name(run: Run) -> str:
    return run.host.name if run.host is not None else "Its host"


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
