"""A run on its host, by its agent: start, poll, stop, delete; and orphaned runs.

What such a host reports is ended there and forgotten, so that no process keeps a device that another run is given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from benchmarks.runs.attachment import authorise_requester
from benchmarks.runs.claims import RunClaim, RunFailed
from benchmarks.runs.models import Run
from benchmarks.runs.recording import run_update_store
from benchmarks.runs.rules import Composition
from benchmarks.runs.simulation import simulation_profile
from benchmarks.runs.topology import ADDRESSES_KEY, device_label, own_drive, recorded_topology
from core.errors import Unavailable
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

# An agent that is away may be started again: its runs go on meanwhile. After so long they count as lost.
AGENT_LOST_AFTER: Final = timedelta(minutes=5)
AGENT_LOST_MINUTES: Final = round(AGENT_LOST_AFTER.total_seconds() / 60)
START_TIMEOUT: Final = 20.0  # that an agent may take to begin a run
GRACE_SECONDS: Final = 10.0  # that processes have between being asked to end and being killed
STOP_TIMEOUT: Final = GRACE_SECONDS + 15.0  # that an agent may take to end a run
DEVICE_VISIBLE_TIMEOUT: Final = 45.0  # for a device that was attached to show in its host's report
LIMIT_TOLERANCE: Final = timedelta(seconds=60)  # over the time limit, which the host itself sees to
MAX_POLLS: Final = 50  # at a time: what is left is read in the next turn
UNKNOWN_EXIT_SENTENCE: Final = "Nobody knows how it ended: what watched over it on its host was killed."
State = Run.State


@dataclass(frozen=True)
class HostDevices:
    """The devices of a run as its host shows them.

    `devices` are the GPUs in the order of ranks, then the drive; `addresses` are by the devices' ids, `foreign` those
    of all that a chassis has given to the host. `drive` is what data is read from, the host's own included.
    """

    devices: tuple[DeviceSelector, ...] = ()
    addresses: Mapping[int, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    drive: PciDevice | None = None


def start_on_host(turn: RunClaim) -> bool:
    """Ask the host to begin a run; tell whether it has. Raises RunFailed where the host refuses it."""
    run = turn.run
    if not _agent_reports(turn):
        return False
    if run.cancel_requested_at is not None:
        return _cancel_unstarted(turn)
    seen = _host_devices(turn)
    if seen is None:
        return False
    # A host that was away may be asked minutes after its devices came: whose they are by now is looked at last.
    authorise_requester(run)
    answer = _request_agent(turn, _train_request(run, seen), wait=START_TIMEOUT)
    match None if answer is None else answer.outcome:
        case "started":
            source = {**run.source, ADDRESSES_KEY: _device_labels(run, seen)}
            turn.transition(State.RUNNING, started_at=run.started_at or timezone.now(), source=source)
            return True
        case None | "interrupted":
            # Its agent was started again meanwhile: asked once more, it says what became of it.
            _fail_if_silent(turn, since=run.state_since)
            return False
        case _:
            raise RunFailed("refused", (answer and answer.sentence) or "Its host did not begin it.")


def poll_host(turn: RunClaim) -> bool:
    """Keep what a run on its host has told since the last time; tell whether it has ended. Raises RunFailed."""
    run = turn.run
    if not _agent_reports(turn):
        return False
    if run.state == State.RUNNING and (run.cancel_requested_at is not None or _is_over_limit(run)):
        return _stop_on_host(turn)
    for _ in range(MAX_POLLS):
        answer = _request_agent(turn, TrainPollRequest(str(run.pk), run.next_event, run.next_byte))
        if answer is None or answer.news is None:
            turn.say(f"The agent of {_host_name(run)} reports, and does not answer. It is asked again.")
            return False
        news = answer.news
        with transaction.atomic():
            turn.write(**run_update_store(run, news))
        goes_on = news.more or news.state == "running"
        if goes_on and run.state == State.STOPPING and turn.waits > AGENT_LOST_AFTER.total_seconds():
            raise RunFailed("lost", f"{_host_name(run)} could not end its processes in {AGENT_LOST_MINUTES} minutes.")
        if news.more:
            continue
        if news.state == "running":
            turn.say("" if run.state == State.RUNNING else "Its host ends it.")
            return False
        _record_exit(turn, news)
        return True
    return False


def delete_from_host(turn: RunClaim) -> None:
    """Let the host delete what it kept of a run that has ended: all of it is here. One that is away keeps it."""
    run = turn.run
    agent = HostAgent.objects.filter(host=run.host).first()
    if run.started_at is None or agent is None or is_agent_away(agent):
        return
    _request_agent(turn, TrainDeleteRequest(str(run.pk)))


def _stop_on_host(turn: RunClaim) -> bool:
    """Ask the host to end a run; what became of it is looked at after that."""
    run = turn.run
    answer = _request_agent(turn, TrainStopRequest(str(run.pk), GRACE_SECONDS), wait=STOP_TIMEOUT)
    if answer is None or answer.outcome == "interrupted":
        _fail_if_silent(turn, since=run.cancel_requested_at or _deadline(run) or run.state_since)
        return False
    sentence = "" if run.cancel_requested_at is not None else "It took longer than its time limit."
    turn.transition(
        State.STOPPING,
        **({"trouble": "limit", "error": sentence} if sentence and not run.trouble else {}),
        sentence="Its host ends it.",
    )
    return poll_host(turn)


def _record_exit(turn: RunClaim, news: RunUpdate) -> None:
    run = turn.run
    if news.state == "unknown":
        raise RunFailed("lost", f"{_host_name(run)} knows nothing of it any more: its state was lost there.")
    exit_code = None if news.exit_code is None else max(-(2**31), min(news.exit_code, 2**31 - 1))
    if run.cancel_requested_at is not None and (news.cancelled or exit_code != 0):
        by = f"{run.cancelled_by_name} cancelled it."
        # That its processes were ended is no trouble of theirs.
        run.trouble = run.error = ""
        turn.ends(State.CANCELLED, sentence=by, exit_code=exit_code)
    elif exit_code == 0 and not run.trouble:
        turn.ends(State.COMPLETED, exit_code=exit_code)
    else:
        trouble = run.trouble or ("lost" if exit_code is None else "crash")
        told = run.error or news.sentence
        sentence = told or (UNKNOWN_EXIT_SENTENCE if exit_code is None else f"It ended with exit code {exit_code}.")
        turn.ends(State.FAILED, trouble=trouble, sentence=sentence, exit_code=exit_code)


def _cancel_unstarted(turn: RunClaim) -> bool:
    """End a run of which nobody knows whether its host has begun it."""
    run = turn.run
    if _request_agent(turn, TrainStopRequest(str(run.pk), GRACE_SECONDS), wait=STOP_TIMEOUT) is None:
        return False
    answer = _request_agent(turn, TrainPollRequest(str(run.pk), run.next_event, run.next_byte))
    if answer is None or answer.news is None:
        return False
    if answer.news.state == "unknown":
        turn.ends(State.CANCELLED, sentence=f"{run.cancelled_by_name} cancelled it before it began.")
    else:
        turn.transition(State.STOPPING, started_at=timezone.now(), sentence="Its host ends it.")
    return True


def _agent_reports(turn: RunClaim) -> bool:
    """Tell whether the agent of the host reports; raises RunFailed where it has been away for long."""
    run = turn.run
    agent = HostAgent.objects.filter(host=run.host).first() if run.host_id is not None else None
    if agent is None:
        raise RunFailed("lost", "Its host has no agent any more.")
    if not is_agent_away(agent):
        return True
    since = max(agent.reported_at or run.state_since, run.state_since)
    if timezone.now() - since > AGENT_LOST_AFTER:
        raise RunFailed("lost", f"The agent of {_host_name(run)} has not reported for {AGENT_LOST_MINUTES} minutes.")
    turn.say(f"The agent of {_host_name(run)} does not report. The run may go on there: it is waited for.")
    return False


def _host_devices(turn: RunClaim) -> HostDevices | None:
    """Return the devices of a run as its host shows them; None where they are waited for. Raises RunFailed."""
    run = turn.run
    composition = Composition.from_json(run.composition)
    agent = HostAgent.objects.filter(host=run.host).first()
    report = latest_report(agent)
    neighbours = attached_devices([run.host_id or 0]).get(run.host_id or 0, [])
    gpus: list[DeviceSelector] = []
    drives: list[DeviceSelector] = []
    addresses: dict[int, str] = {}
    drive = own_drive(report, neighbours) if composition.own_drive else None
    if composition.own_drive and drive is None:
        if turn.waits > DEVICE_VISIBLE_TIMEOUT:
            raise RunFailed("refused", f"{_host_name(run)} shows no NVMe drive of its own any more.")
        turn.say(f"Waits for the NVMe drive of {_host_name(run)}, which it does not show now.")
        return None
    for pk, device in _devices_in_order(composition).items():
        found = match_device(report, device, neighbours) if report is not None else None
        if found is None or found.seen is None:
            why = found.unsure if found is not None and found.unsure else "its host does not show it"
            if turn.waits > DEVICE_VISIBLE_TIMEOUT:
                raise RunFailed("refused", f"{device.name} cannot be used: {why}.")
            turn.say(f"Waits for {device.name}: {why}.")
            return None
        addresses[pk] = found.seen.address
        drive = found.seen if pk == composition.storage else drive
        (gpus if device.kind == Device.Kind.GPU else drives).append(device_selector(device, found.seen))
    others = [match_device(report, one, neighbours).seen for one in neighbours] if report is not None else []
    foreign = tuple(sorted({one.address for one in others if one is not None}))
    return HostDevices((*gpus, *drives), addresses, foreign, drive)


def _devices_in_order(composition: Composition) -> dict[int, Device]:
    rows = Device.objects.select_related("chassis", "slot").in_bulk(list(composition.devices))
    return {pk: rows[pk] for pk in composition.devices if pk in rows}


def _device_labels(run: Run, seen: HostDevices) -> dict[str, str]:
    """Return how the devices of a run are called in its topology, by their addresses on the host."""
    devices = _devices_in_order(Composition.from_json(run.composition))
    return {seen.addresses[pk]: device_label(device) for pk, device in devices.items()}


def _train_request(run: Run, seen: HostDevices) -> TrainRequest:
    composition = Composition.from_json(run.composition)
    spec = run.specification()
    profile = None
    if run.executor == "simulated":
        topology = recorded_topology(run)
        if topology is None:
            raise RunFailed("refused", "Nobody knows what it would run on.")
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


def _request_agent(turn: RunClaim, request: Request, *, wait: float = 0.0) -> CommandAnswer | None:
    """Ask the agent of a run's host; None where no answer comes for now."""

    host = turn.run.host
    if host is None:
        return None

    async def ask() -> CommandAnswer | None:
        async with turn.keep_renewed():
            return await agent_request(host, request, wait=wait)

    try:
        with single_connection_thread():
            return asyncio.run(ask())
    except Unavailable as error:
        logger.info("run %s: %s", turn.run.pk, error.sentence)
        return None


def _fail_if_silent(turn: RunClaim, *, since: datetime) -> None:
    """Raise RunFailed where a host that reports has answered nothing for long: its devices are not kept for that."""
    if timezone.now() - since > AGENT_LOST_AFTER:
        raise RunFailed(
            "lost", f"The agent of {_host_name(turn.run)} has not answered for {AGENT_LOST_MINUTES} minutes."
        )


def _is_over_limit(run: Run) -> bool:
    end = _deadline(run)
    return end is not None and timezone.now() > end


def _deadline(run: Run) -> datetime | None:
    """Return when a run is ended from here, should its host not have seen to its time limit; None before it began."""
    return (
        run.started_at + timedelta(seconds=run.limit_seconds) + LIMIT_TOLERANCE if run.started_at is not None else None
    )


def _host_name(run: Run) -> str:
    return run.host.name if run.host is not None else "Its host"


ORPHAN_GRACE_SECONDS = 10.0


def orphaned_runs_end() -> list[str]:
    """End what hosts run of runs that have ended here, or that this site never had; returns the runs' ids."""
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
            continue  # nothing that this site could have asked for
    there = Run.objects.open().filter(pk__in=known).values_list("pk", flat=True)
    return [name for pk, name in known.items() if pk not in set(there)]


def _end_orphan(host: Host, run: str) -> bool:
    """Ask a host to end and forget a run; False where it does not answer now: it is asked again."""

    async def ask() -> bool:
        stopped = await agent_request(
            host, TrainStopRequest(run, ORPHAN_GRACE_SECONDS), wait=ORPHAN_GRACE_SECONDS + 15.0
        )
        return stopped is not None and await agent_request(host, TrainDeleteRequest(run)) is not None

    try:
        with single_connection_thread():
            done = asyncio.run(ask())
    except Unavailable as error:
        logger.info("%s: run %s: %s", host.name, run, error.sentence)
        return False
    logger.warning("%s still ran %s, which has ended here: %s", host.name, run, "ended" if done else "no answer")
    return done
