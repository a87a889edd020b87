"""Runs of benchmarks on a host: real keepers, real executors, and what becomes of them when something dies."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from falconweb.testing import AgentProcess
from falconweb.testing.hosts import folder_of_hosts
from falconweb.testing.processes import SimulatorProcess
from hostwire.protocol import (
    DeviceSelector,
    DrainRequest,
    TrainDeleteRequest,
    TrainPollRequest,
    TrainRequest,
    TrainStopRequest,
)
from hostwire.training import (
    DeviceProfile,
    PhaseStarted,
    RunEvent,
    RunFailed,
    RunReading,
    RunResult,
    RunStarted,
    RunUpdate,
    SharedResource,
    SimulationProfile,
    Spec,
    StepsCompleted,
)
from tests.agent.conftest import Lab
from tests.simulator.conftest import PORTS
from tests.turns import at_night
from tests.waiting import eventually, wait_for
from tests.without import needs_torch

pytestmark = pytest.mark.process

SPEED = 20.0
SPEC = Spec(workload="resnet50", devices=1, steps=40, warmup=5, batch=128)
BYTES = 4e9


@pytest.fixture(scope="module")
def lab_of_module() -> Iterator[Lab]:
    """A lab whose agent soon takes a silent run for a hanging one."""
    folder = folder_of_hosts()
    with (
        SimulatorProcess("--hosts-root", str(folder / "hosts"), "--speed", str(SPEED)) as falcon,
        AgentProcess(
            folder / "hosts/node-a",
            state=folder / "agent",
            period=1.0,
            AGENT_HANG_SECONDS="4",
            AGENT_SAMPLE_SECONDS="0.3",
            AGENT_MOST_RUNS="2",
        ) as agent,
    ):
        yield Lab(falcon, folder / "hosts", agent)


@pytest.fixture
def lab(lab_of_module: Lab) -> Iterator[Lab]:
    """The lab, as earlier tests left it: runs have names of their own, and end with their test where that failed."""
    yield lab_of_module
    while lab_of_module.runs:
        lab_of_module.agent.ask(TrainStopRequest(lab_of_module.runs.pop(), grace=0))


def train(
    lab: Lab, *slots: str, step: float = 1.0, spec: Spec = SPEC, limit: float = 60.0, **profile: object
) -> TrainRequest:
    """Return a simulated run on the devices of these slots; a step is of simulated seconds."""
    shown = lab.shown
    devices = tuple(
        DeviceProfile(address=shown[slot], share=0.9, memory_share=0.5, to_device=BYTES, from_device=BYTES / 2)
        for slot in slots
    )
    lab.runs.append(f"run-{secrets.token_hex(4)}")
    return TrainRequest(
        run=lab.runs[-1],
        spec=spec,
        executor="simulated",
        limit=limit,
        devices=tuple(DeviceSelector(shown[slot]) for slot in slots),
        profile=SimulationProfile(step_seconds=step, devices=devices, **profile),  # type: ignore[arg-type]
    )


def look(lab: Lab, run: str, event: int = 0, byte: int = 0) -> RunUpdate:
    """Return what is new of a run."""
    news = lab.agent.ask(TrainPollRequest(run, event, byte)).news
    assert news is not None
    return news


def followed(lab: Lab, run: str) -> tuple[RunUpdate, list[RunEvent], str]:
    """Follow a run to its end, as the site does; return the last news, all events and the whole log."""
    events: list[RunEvent] = []
    log, byte = "", 0

    def ended() -> RunUpdate | None:
        nonlocal log, byte
        news = look(lab, run, len(events), byte)
        assert news.first_event == len(events)
        events.extend(news.events)
        log, byte = log + news.log, news.next_byte
        return news if news.state == "ended" and not news.more else None

    return wait_for(ended, lambda: f"{events[-3:]} {log[-500:]}"), events, log


def begun(lab: Lab, request: TrainRequest) -> TrainRequest:
    """Begin a run, wait for its first timed steps, and return it."""
    assert lab.agent.ask(request).outcome == "started"
    wait_for(lambda: any(isinstance(event, StepsCompleted) for event in look(lab, request.run).events))
    return request


def processes_of(run: str) -> list[int]:
    """Return the processes of a run, and its keeper."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                lives = (place / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
                said = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
            except OSError:
                continue
            if lives and run.encode() in said:
                found.append(int(place.name))
    return found


def keeper_of(run: str) -> int:
    """Return the number of a run's keeper."""
    return next(
        pid for pid in processes_of(run) if b"agent.runs.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


def trouble_of(events: list[RunEvent]) -> list[tuple[str, str]]:
    """Return what went wrong, by its name, and in words."""
    return [(event.what, event.sentence) for event in events if isinstance(event, RunFailed)]


def test_a_simulated_run_reports_its_steps_its_loss_its_readings_and_its_result(lab: Lab) -> None:
    spec = msgspec.structs.replace(SPEC, steps=160)  # some seconds, for meters that look once a second
    request = train(
        lab, "drawer1slot1", spec=spec, first_loss=7.0, last_loss=2.0, host_cpu_share=0.4,
        result={"bandwidth": [1.0, 2.0]},
    )  # fmt: skip
    assert lab.agent.ask(request).outcome == "started"
    news, events, log = followed(lab, request.run)
    assert (news.exit_code, news.cancelled, trouble_of(events)) == (0, False, [])
    # On a full machine the meters may be the first to say something.
    assert isinstance(next(event for event in events if not isinstance(event, RunReading)), RunStarted)
    phases = [event.name for event in events if isinstance(event, PhaseStarted)]
    assert phases == ["build", "warmup", "timed", "finish"]
    steps = [event for event in events if isinstance(event, StepsCompleted) and event.phase == "timed"]
    seconds = [one for event in steps for one in event.seconds]
    assert len(seconds) == spec.steps
    assert [event.first for event in steps] == [
        sum(len(before.seconds) for before in steps[:number]) for number in range(len(steps))
    ]
    assert 0.9 < sorted(seconds)[20] < 1.1
    losses = [one for event in steps for one in event.loss if one is not None]
    assert len(losses) == spec.steps
    assert losses[-1] < losses[0] < 7.5
    assert [event.values for event in events if isinstance(event, RunResult)] == [{"bandwidth": [1.0, 2.0]}]
    readings = [event for event in events if isinstance(event, RunReading)]
    assert {event.source for event in readings} == {"simulated"}
    names = {name for event in readings for name in event.values}
    gpu = f"gpu/{lab.shown['drawer1slot1']}"
    assert names >= {"cpu", "memory", "disk_read", f"{gpu}/utilisation", f"{gpu}/pcie_to", f"{gpu}/temperature"}
    assert max(event.values.get("cpu", 0.0) for event in readings) > 0.3
    assert "The simulated run has ended" in log
    # What the site has is forgotten, and known no more.
    assert lab.agent.ask(TrainDeleteRequest(request.run)).outcome == "done"
    assert look(lab, request.run).state == "unknown"


def test_a_run_is_begun_once_and_a_repetition_differs_by_its_noise(lab: Lab) -> None:
    request = train(lab, "drawer1slot1", step=0.2)
    assert [lab.agent.ask(request).outcome for _ in range(2)] == ["started", "started"]
    other = TrainRequest(
        run=request.run, spec=SPEC, executor="simulated", limit=5.0, profile=SimulationProfile(step_seconds=1.0)
    )
    assert lab.agent.ask(other).outcome == "refused"
    _, first, _ = followed(lab, request.run)
    assert sum(isinstance(event, RunStarted) for event in first) == 1
    again = lab.agent.ask(request)
    assert (again.outcome, "has ended" in again.sentence) == ("started", True)
    second = train(lab, "drawer1slot1", step=0.2)
    lab.agent.ask(second)
    _, repeated, _ = followed(lab, second.run)

    def seconds(events: list[RunEvent]) -> list[float]:
        return [one for event in events if isinstance(event, StepsCompleted) for one in event.seconds]

    assert len(seconds(first)) == len(seconds(repeated))
    assert seconds(first) != seconds(repeated)


def test_the_traffic_of_a_run_is_on_the_links_and_its_devices_are_held(lab: Lab) -> None:
    request = begun(lab, train(lab, "drawer1slot1", step=10.0, spec=Spec(workload="resnet50", steps=10**6, warmup=0)))
    address = lab.shown["drawer1slot1"]

    def bytes_of(slot: int) -> int:
        return int(lab.bmc.get(f"{PORTS}/slot{slot}/Metrics")["TXBytes"])

    def seconds() -> float:
        return float(lab.falcon.state()["simulated_seconds"])

    def rate() -> float:
        before, now = bytes_of(1), seconds()
        eventually(seconds, lambda later: later > now + 20)
        return (bytes_of(1) - before) / (seconds() - now)

    eventually(rate, lambda found: 0.85 * BYTES < found < 1.15 * BYTES)
    # The other devices of the host rest meanwhile.
    eventually(lambda: [bytes_of(2), seconds(), bytes_of(2)], lambda found: found[0] == found[2])
    resting = bytes_of(2)
    since = seconds()
    eventually(seconds, lambda later: later > since + 10)
    assert bytes_of(2) == resting
    told = lab.agent.report(
        lambda seen: any(gpu.address == address and 0.85 < (gpu.gpu_share or 0) < 0.95 for gpu in seen.gpus)
    )
    assert told.trainer.running == (request.run,)
    readings = [event for event in look(lab, request.run).events if isinstance(event, RunReading)]
    assert [
        reading.values[f"gpu/{address}/pcie_to"]
        for reading in readings
        if 0.9 * BYTES < reading.values.get(f"gpu/{address}/pcie_to", 0.0) < 1.1 * BYTES
    ]
    refused = lab.agent.ask(DrainRequest(DeviceSelector(address)))
    assert refused.outcome == "in_use"
    assert request.run in refused.sentence
    # Nor has another run what this one has.
    assert "Another run has" in lab.agent.ask(train(lab, "drawer1slot1")).sentence
    # By force it goes, and the run with it.
    assert lab.agent.ask(DrainRequest(DeviceSelector(address), force=True)).outcome == "removed"
    news, events, _ = followed(lab, request.run)
    assert trouble_of(events) == [("crash", f"The device {address} is gone.")]
    assert news.exit_code == 1
    lab.reset()


def test_a_cancelled_run_leaves_no_process(lab: Lab) -> None:
    request = begun(lab, train(lab, "drawer1slot1", spec=Spec(workload="resnet50", steps=10**6)))
    processes = processes_of(request.run)
    assert len(processes) == 2
    assert lab.agent.ask(TrainStopRequest(request.run, grace=30)).outcome == "stopped"
    assert processes_of(request.run) == []
    news, events, _ = followed(lab, request.run)
    assert (news.cancelled, news.sentence, trouble_of(events)) == (True, "It was cancelled.", [])
    assert lab.agent.ask(TrainStopRequest(request.run)).outcome == "stopped"
    assert not [pid for pid in processes if (lab.hosts / f"node-a/loads/{pid}.json").exists()]


def test_a_run_that_is_cancelled_before_it_began_never_begins(lab: Lab) -> None:
    request = train(lab, "drawer1slot1")
    assert lab.agent.ask(TrainStopRequest(request.run)).outcome == "stopped"
    answer = lab.agent.ask(request)
    assert (answer.outcome, answer.sentence) == ("refused", "It was cancelled before it began.")


@pytest.mark.parametrize(
    ("fails", "what", "says"),
    [
        ("crash", "crash", "crashed after 3 steps"),
        ("out_of_memory", "out_of_memory", "memory was full after 3 steps"),
        ("hang", "hang", "nothing happened for 4 s"),
    ],
)
def test_a_run_that_goes_wrong_says_how_and_leaves_no_process(lab: Lab, fails: str, what: str, says: str) -> None:
    request = train(lab, "drawer1slot1", fails=fails, fails_at=3)
    assert lab.agent.ask(request).outcome == "started"
    news, events, log = followed(lab, request.run)
    assert news.exit_code != 0
    assert [(kind, says in sentence) for kind, sentence in trouble_of(events)] == [(what, True)]
    assert says in news.sentence
    assert log
    assert processes_of(request.run) == []


def test_a_run_ends_at_its_time_limit(lab: Lab) -> None:
    request = train(lab, "drawer1slot1", spec=Spec(workload="resnet50", steps=10**6), limit=1.5)
    assert lab.agent.ask(request).outcome == "started"
    _, events, _ = followed(lab, request.run)
    assert trouble_of(events) == [("limit", "It was ended at its time limit of 1.5 s.")]
    assert processes_of(request.run) == []


def test_a_run_goes_on_while_its_agent_is_killed_and_is_found_again(lab: Lab) -> None:
    request = begun(lab, train(lab, "drawer1slot1", spec=Spec(workload="resnet50", steps=10**6)))
    seen = len(look(lab, request.run).events)
    lab.agent.kill()
    assert len(processes_of(request.run)) == 2
    lab.agent.start()
    assert lab.agent.report(lambda seen: bool(seen.trainer.running)).trainer.running == (request.run,)
    wait_for(lambda: any(isinstance(event, StepsCompleted) for event in look(lab, request.run, seen).events))
    assert lab.agent.ask(TrainStopRequest(request.run)).outcome == "stopped"


@pytest.mark.parametrize("agent_too", [True, *at_night(False)])
def test_a_run_whose_supervisor_is_killed_is_lost_and_its_processes_end(lab: Lab, *, agent_too: bool) -> None:
    request = begun(lab, train(lab, "drawer1slot1", spec=Spec(workload="resnet50", steps=10**6)))
    if agent_too:
        lab.agent.kill()
    os.kill(keeper_of(request.run), signal.SIGKILL)
    if agent_too:
        lab.agent.start()
    news, events, _ = followed(lab, request.run)
    assert news.exit_code is None
    assert [what for what, _ in trouble_of(events)] == ["lost"]
    assert processes_of(request.run) == []


def test_what_a_host_cannot_do_is_refused_in_words(lab: Lab) -> None:
    shown = lab.shown["drawer1slot1"]

    def refusal(**changes: object) -> str:
        request = {"run": "run-x", "spec": SPEC, "executor": "simulated", "limit": 9.0, **changes}
        answer = lab.agent.ask(TrainRequest(**request))  # type: ignore[arg-type]
        assert answer.outcome == "refused"
        return answer.sentence

    profile = SimulationProfile(step_seconds=1.0, devices=(DeviceProfile(share=1.0),))
    assert "no device" in refusal(devices=(DeviceSelector("0000:ff:00.0"),), profile=profile)
    assert "no simulation profile" in refusal()
    assert "1 devices and has 0" in refusal(profile=profile)
    assert "does not include" in refusal(
        profile=SimulationProfile(step_seconds=1.0, devices=(DeviceProfile(address=shown),))
    )
    assert "own GPUs; 8 are free" in refusal(local=9, foreign=tuple(lab.shown.values()), profile=profile)
    assert "cannot be the name" in refusal(run="../../etc", profile=profile)
    command = Spec(workload="command", command=("id",))
    assert "A simulated host runs no commands" in refusal(spec=command, executor="torch")
    assert lab.agent.ask(TrainPollRequest("no-such-run")).news == RunUpdate(
        run="no-such-run", state="unknown", sentence="This host has no such run."
    )
    assert look(lab, "run-x").state == "unknown"


@needs_torch
def test_pytorch_without_cuda_is_refused_in_words(lab: Lab) -> None:
    answer = lab.agent.ask(TrainRequest(run="run-x", spec=SPEC, executor="torch", limit=9.0))
    assert (answer.outcome, "no CUDA" in answer.sentence) == ("refused", True)


def test_no_more_runs_at_once_than_the_host_takes(lab: Lab) -> None:
    long = Spec(workload="resnet50", steps=10**6)
    runs = [begun(lab, train(lab, f"drawer1slot{slot}", spec=long)) for slot in (1, 2)]
    answer = lab.agent.ask(train(lab, "drawer1slot3", spec=long))
    assert (answer.outcome, "AGENT_MOST_RUNS" in answer.sentence) == ("refused", True)
    for run in runs:
        assert lab.agent.ask(TrainStopRequest(run.run)).outcome == "stopped"


def test_the_hosts_own_gpus_are_used_where_no_chassis_gave_them(lab: Lab) -> None:
    request = TrainRequest(
        run=f"run-{secrets.token_hex(4)}",
        spec=Spec(workload="bert_base", devices=2, steps=10**6),
        executor="simulated",
        limit=60,
        local=2,
        foreign=tuple(lab.shown.values()),
        profile=SimulationProfile(step_seconds=1.0, devices=(DeviceProfile(share=0.8, to_device=1e9),) * 2),
    )
    begun(lab, request)
    busy = lab.agent.report(
        lambda seen: [gpu.address for gpu in seen.gpus if gpu.gpu_share == 0.8] == ["0000:10:00.0", "0000:11:00.0"]
    )
    assert {holder.what for holder in busy.holders["0000:10:00.0"]} == {"/dev/nvidia0"}
    assert lab.agent.ask(TrainStopRequest(request.run)).outcome == "stopped"


def test_two_runs_on_one_link_slow_each_other_while_both_run(lab: Lab) -> None:
    uplink = SharedResource(name="H1", capacity=12e9, demand=9e9, curve=((3e9, 0.4), (6e9, 0.2), (12e9, 0.1)))
    spec = Spec(workload="resnet50", steps=10**6, warmup=0)

    def last_step(run: str) -> float:
        return [event.seconds[-1] for event in look(lab, run).events if isinstance(event, StepsCompleted)][-1]

    one, other = (
        begun(lab, train(lab, slot, step=0.1, spec=spec, spread=0.0, shared=(uplink,)))
        for slot in ("drawer1slot1", "drawer1slot2")
    )
    wait_for(lambda: all(last_step(run.run) == pytest.approx(0.2) for run in (one, other)))
    assert lab.agent.ask(TrainStopRequest(other.run)).outcome == "stopped"
    wait_for(lambda: last_step(one.run) == pytest.approx(0.1))
    assert lab.agent.ask(TrainStopRequest(one.run)).outcome == "stopped"


def own_drive(lab: Lab) -> DeviceSelector:
    """Return the drive of node-a that no chassis gave it."""
    drives = {place.parent.name for place in (lab.hosts / "node-a/sys/bus/pci/devices").glob("*/nvme")}
    (own,) = drives - set(lab.shown.values())
    return DeviceSelector(address=own)


def test_data_comes_from_the_drive_that_was_chosen_or_the_run_is_refused(lab: Lab) -> None:
    drive = own_drive(lab)
    asked = train(lab, "drawer1slot1", spec=msgspec.structs.replace(SPEC, steps=400))
    assert asked.profile is not None
    devices = (*asked.profile.devices, DeviceProfile(address=drive.address, from_device=BYTES))
    profile = msgspec.structs.replace(asked.profile, devices=devices)
    simulated = begun(lab, msgspec.structs.replace(asked, drive=drive, profile=profile))
    # It is the run's, as every device of it.
    other = msgspec.structs.replace(train(lab, "drawer1slot2"), drive=drive)
    assert lab.agent.ask(other).sentence == f"Another run has {drive.address}."
    assert lab.agent.ask(TrainStopRequest(simulated.run)).outcome == "stopped"


@needs_torch
def test_pytorch_on_a_simulated_host_has_no_drive(lab: Lab) -> None:
    drive = own_drive(lab)
    on_cpu = Spec(workload="storage_read", backend="cpu", steps=1, options={"file_bytes": 2**20})
    real = TrainRequest(run=f"run-{secrets.token_hex(4)}", spec=on_cpu, executor="torch", limit=60.0, drive=drive)
    answer = lab.agent.ask(real)
    assert answer.outcome == "refused"
    assert answer.sentence.startswith("A simulated host has no drive")
