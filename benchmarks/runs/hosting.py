"""A run on its host: its agent is asked to begin it, what became of it, to end it, and to forget it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from benchmarks.runs.composing import person_allowed
from benchmarks.runs.composition import Composition
from benchmarks.runs.drives import own_drive
from benchmarks.runs.models import Run
from benchmarks.runs.naming import ADDRESSES
from benchmarks.runs.observing import topology_kept
from benchmarks.runs.placing import name_of_device
from benchmarks.runs.recording import news_keep
from benchmarks.runs.simulated import profile_of
from benchmarks.runs.turn import RunFails, Turn
from fabric.hostside import neighbours_on, seen_by, wanted_of
from fabric.models import Device, HostAgent
from fabric.services.agents import agent_ask, is_away, report_of
from falconweb.errors import Unavailable
from falconweb.threads import one_connection
from hostwire.shapes import Answer, DeviceWanted, PciDevice, Request, Train, TrainForget, TrainLook, TrainStop
from hostwire.training import News

logger = logging.getLogger(__name__)

# An agent that is away may be started again: its runs go on meanwhile. After so long they count as lost.
LOST_AFTER: Final = timedelta(minutes=5)
LOST_MINUTES: Final = round(LOST_AFTER.total_seconds() / 60)
BEGIN_SECONDS: Final = 20.0  # that an agent may take to begin a run
GRACE_SECONDS: Final = 10.0  # that processes have between being asked to end and being killed
STOP_SECONDS: Final = GRACE_SECONDS + 15.0  # that an agent may take to end a run
SEEN_SECONDS: Final = 45.0  # for a device that was attached to show in its host's report
OVERTIME: Final = timedelta(seconds=60)  # over the time limit, which the host itself sees to
MOST_LOOKS: Final = 50  # at a time: what is left is read in the next turn
UNKNOWN_EXIT: Final = "Nobody knows how it ended: what watched over it on its host was killed."
State = Run.State


@dataclass(frozen=True)
class Seen:
    """The devices of a run as its host shows them.

    `devices` are the GPUs in the order of ranks, then the drive; `addresses` are by the devices' ids, `foreign` those
    of all that a chassis has given to the host. `drive` is what data is read from, the host's own included.
    """

    devices: tuple[DeviceWanted, ...] = ()
    addresses: Mapping[int, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    drive: PciDevice | None = None


def begin(turn: Turn) -> bool:
    """Ask the host to begin a run; tell whether it has. Raises RunFails where the host refuses it."""
    run = turn.run
    if not _there(turn):
        return False
    if run.cancel_requested_at is not None:
        return _called_off(turn)
    seen = _seen(turn)
    if seen is None:
        return False
    # A host that was away may be asked minutes after its devices came: whose they are by now is looked at last.
    person_allowed(run)
    answer = _ask(turn, _order(run, seen), wait=BEGIN_SECONDS)
    match None if answer is None else answer.outcome:
        case "started":
            source = {**run.source, ADDRESSES: _named(run, seen)}
            turn.turn_to(State.RUNNING, started_at=run.started_at or timezone.now(), source=source)
            return True
        case None | "interrupted":
            # Its agent was started again meanwhile: asked once more, it says what became of it.
            _refuse_silence(turn, since=run.state_since)
            return False
        case _:
            raise RunFails("refused", (answer and answer.sentence) or "Its host did not begin it.")


def look(turn: Turn) -> bool:
    """Keep what a run on its host has told since the last time; tell whether it has ended. Raises RunFails."""
    run = turn.run
    if not _there(turn):
        return False
    if run.state == State.RUNNING and (run.cancel_requested_at is not None or _is_over(run)):
        return _stop(turn)
    for _ in range(MOST_LOOKS):
        answer = _ask(turn, TrainLook(str(run.pk), run.next_event, run.next_byte))
        if answer is None or answer.news is None:
            turn.say(f"The agent of {_host(run)} reports, and does not answer. It is asked again.")
            return False
        news = answer.news
        with transaction.atomic():
            turn.write(**news_keep(run, news))
        goes_on = news.more or news.state == "running"
        if goes_on and run.state == State.STOPPING and turn.waits > LOST_AFTER.total_seconds():
            raise RunFails("lost", f"{_host(run)} could not end its processes in {LOST_MINUTES} minutes.")
        if news.more:
            continue
        if news.state == "running":
            turn.say("" if run.state == State.RUNNING else "Its host ends it.")
            return False
        _ended(turn, news)
        return True
    return False


def forget(turn: Turn) -> None:
    """Let the host delete what it kept of a run that has ended: all of it is here. One that is away keeps it."""
    run = turn.run
    agent = HostAgent.objects.filter(host=run.host).first()
    if run.started_at is None or agent is None or is_away(agent):
        return
    _ask(turn, TrainForget(str(run.pk)))


def _stop(turn: Turn) -> bool:
    """Ask the host to end a run; what became of it is looked at after that."""
    run = turn.run
    answer = _ask(turn, TrainStop(str(run.pk), GRACE_SECONDS), wait=STOP_SECONDS)
    if answer is None or answer.outcome == "interrupted":
        _refuse_silence(turn, since=run.cancel_requested_at or _ends_at(run) or run.state_since)
        return False
    sentence = "" if run.cancel_requested_at is not None else "It took longer than its time limit."
    turn.turn_to(
        State.STOPPING,
        **({"trouble": "limit", "error": sentence} if sentence and not run.trouble else {}),
        sentence="Its host ends it.",
    )
    return look(turn)


def _ended(turn: Turn, news: News) -> None:
    run = turn.run
    if news.state == "unknown":
        raise RunFails("lost", f"{_host(run)} knows nothing of it any more: its state was lost there.")
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
        sentence = told or (UNKNOWN_EXIT if exit_code is None else f"It ended with exit code {exit_code}.")
        turn.ends(State.FAILED, trouble=trouble, sentence=sentence, exit_code=exit_code)


def _called_off(turn: Turn) -> bool:
    """End a run of which nobody knows whether its host has begun it."""
    run = turn.run
    if _ask(turn, TrainStop(str(run.pk), GRACE_SECONDS), wait=STOP_SECONDS) is None:
        return False
    answer = _ask(turn, TrainLook(str(run.pk), run.next_event, run.next_byte))
    if answer is None or answer.news is None:
        return False
    if answer.news.state == "unknown":
        turn.ends(State.CANCELLED, sentence=f"{run.cancelled_by_name} cancelled it before it began.")
    else:
        turn.turn_to(State.STOPPING, started_at=timezone.now(), sentence="Its host ends it.")
    return True


def _there(turn: Turn) -> bool:
    """Tell whether the agent of the host reports; raises RunFails where it has been away for long."""
    run = turn.run
    agent = HostAgent.objects.filter(host=run.host).first() if run.host_id is not None else None
    if agent is None:
        raise RunFails("lost", "Its host has no agent any more.")
    if not is_away(agent):
        return True
    since = max(agent.reported_at or run.state_since, run.state_since)
    if timezone.now() - since > LOST_AFTER:
        raise RunFails("lost", f"The agent of {_host(run)} has not reported for {LOST_MINUTES} minutes.")
    turn.say(f"The agent of {_host(run)} does not report. The run may go on there: it is waited for.")
    return False


def _seen(turn: Turn) -> Seen | None:
    """Return the devices of a run as its host shows them; None where they are waited for. Raises RunFails."""
    run = turn.run
    composition = Composition.from_json(run.composition)
    agent = HostAgent.objects.filter(host=run.host).first()
    report = report_of(agent)
    neighbours = neighbours_on([run.host_id or 0]).get(run.host_id or 0, [])
    gpus: list[DeviceWanted] = []
    drives: list[DeviceWanted] = []
    addresses: dict[int, str] = {}
    drive = own_drive(report, neighbours) if composition.own_drive else None
    if composition.own_drive and drive is None:
        if turn.waits > SEEN_SECONDS:
            raise RunFails("refused", f"{_host(run)} shows no NVMe drive of its own any more.")
        turn.say(f"Waits for the NVMe drive of {_host(run)}, which it does not show now.")
        return None
    for pk, device in _in_order(composition).items():
        found = seen_by(report, device, neighbours) if report is not None else None
        if found is None or found.seen is None:
            why = found.unsure if found is not None and found.unsure else "its host does not show it"
            if turn.waits > SEEN_SECONDS:
                raise RunFails("refused", f"{device.name} cannot be used: {why}.")
            turn.say(f"Waits for {device.name}: {why}.")
            return None
        addresses[pk] = found.seen.address
        drive = found.seen if pk == composition.storage else drive
        (gpus if device.kind == Device.Kind.GPU else drives).append(wanted_of(device, found.seen))
    others = [seen_by(report, one, neighbours).seen for one in neighbours] if report is not None else []
    foreign = tuple(sorted({one.address for one in others if one is not None}))
    return Seen((*gpus, *drives), addresses, foreign, drive)


def _in_order(composition: Composition) -> dict[int, Device]:
    rows = Device.objects.select_related("chassis", "slot").in_bulk(list(composition.devices))
    return {pk: rows[pk] for pk in composition.devices if pk in rows}


def _named(run: Run, seen: Seen) -> dict[str, str]:
    """Return how the devices of a run are called in its topology, by their addresses on the host."""
    devices = _in_order(Composition.from_json(run.composition))
    return {seen.addresses[pk]: name_of_device(device) for pk, device in devices.items()}


def _order(run: Run, seen: Seen) -> Train:
    composition = Composition.from_json(run.composition)
    spec = run.specification()
    profile = None
    if run.executor == "simulated":
        topology = topology_kept(run)
        if topology is None:
            raise RunFails("refused", "Nobody knows what it would run on.")
        named = {name: address for address, name in _named(run, seen).items()}
        drive = seen.drive.address if seen.drive is not None else ""
        profile = profile_of(spec, topology, named, drive=drive, exercise=run.exercise)
    return Train(
        run=str(run.pk),
        spec=spec,
        executor="simulated" if run.executor == "simulated" else "torch",
        limit=run.limit_seconds,
        devices=seen.devices,
        local=composition.local_gpus,
        foreign=seen.foreign if composition.local_gpus else (),
        drive=DeviceWanted(address=seen.drive.address, serial=seen.drive.serial) if seen.drive is not None else None,
        profile=profile,
    )


def _ask(turn: Turn, request: Request, *, wait: float = 0.0) -> Answer | None:
    """Ask the agent of a run's host; None where no answer comes for now."""

    host = turn.run.host
    if host is None:
        return None

    async def ask() -> Answer | None:
        async with turn.renewed():
            return await agent_ask(host, request, wait=wait)

    try:
        with one_connection():
            return asyncio.run(ask())
    except Unavailable as error:
        logger.info("run %s: %s", turn.run.pk, error.sentence)
        return None


def _refuse_silence(turn: Turn, *, since: datetime) -> None:
    """Raise RunFails where a host that reports has answered nothing for long: its devices are not kept for that."""
    if timezone.now() - since > LOST_AFTER:
        raise RunFails("lost", f"The agent of {_host(turn.run)} has not answered for {LOST_MINUTES} minutes.")


def _is_over(run: Run) -> bool:
    end = _ends_at(run)
    return end is not None and timezone.now() > end


def _ends_at(run: Run) -> datetime | None:
    """Return when a run is ended from here, should its host not have seen to its time limit; None before it began."""
    return run.started_at + timedelta(seconds=run.limit_seconds) + OVERTIME if run.started_at is not None else None


def _host(run: Run) -> str:
    return run.host.name if run.host is not None else "Its host"
