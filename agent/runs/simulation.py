"""`python -m agent.runs.simulation FOLDER`: simulates a run on a simulated host, step by step, from a profile.

It computes nothing. It writes the events of a real run, and the load of its devices for the simulated host, in a file
below `loads` that is valid as long as it is refreshed: the links carry the traffic meanwhile, and the devices warm up.
"""

from __future__ import annotations

import math
import os
import platform
import random
import signal
import sys
import time
from pathlib import Path

import msgspec

from agent.runs.contention import other_demands, slowdown
from agent.runs.folder import RunFolder, append_event
from hostwire.training import (
    DeviceProfile,
    PeriodicPause,
    PhaseStarted,
    RunEvent,
    RunFailed,
    RunResult,
    RunStarted,
    SimulationProfile,
    Software,
    Spec,
    StepsCompleted,
)

# The host ignores a load that is not refreshed for 5 s.
REFRESH_SECONDS = 0.5
EVENT_SECONDS = 0.5
MAX_STEPS_PER_EVENT = 500
ABSENT_DEVICE = b"\xff\xff\xff\xff"


class SimulatedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The simulation's profile, devices and host; every device of the profile has its address."""

    run: str
    spec: Spec
    profile: SimulationProfile
    root: str
    accelerators: tuple[str, ...] = ()


class SimulatedFailure(Exception):
    """The run fails with the failure `what`."""

    def __init__(self, what: str, sentence: str) -> None:
        super().__init__(sentence)
        self.what = what


class RunSimulator:
    def __init__(self, simulation: SimulatedRun, events_file: Path) -> None:
        self._simulation = simulation
        self._events_file = events_file
        self._root = Path(simulation.root)
        self._load = self._root / "loads" / f"{os.getpid()}.json"
        # Repetitions of one specification differ, as on hardware, so that their spread is realistic.
        self._random = random.Random(f"{simulation.spec.hash}/{simulation.run}")  # noqa: S311 - noise, not a secret
        self._due = time.monotonic()
        self._refreshed = float("-inf")
        self._taken = 0  # steps of all phases
        self._pace = 0.0  # relative to the timed steps
        self._slowed = 1.0  # how many times longer a step takes because of other runs of the host
        self._waits = False  # with kernels that count as busy meanwhile
        self._pause: PeriodicPause | None = None

    def run(self) -> None:
        """Simulate to the end; raises SimulatedFailure at a planned failure, or where a device is removed."""
        spec = self._simulation.spec
        profile = self._simulation.profile
        _print(f"Simulated run of {spec.workload}: {spec.devices} devices, {spec.warmup} + {spec.steps} steps")
        software = Software(
            python=platform.python_version(),
            framework="simulated",
            operating_system="simulated",
            accelerators=self._simulation.accelerators,
        )
        self._emit(RunStarted(time.time(), software))
        self._emit(PhaseStarted(time.time(), "build"))
        self._refresh()
        for phase, count, factor in (("warmup", spec.warmup, profile.warmup_factor), ("timed", spec.steps, 1.0)):
            self._emit(PhaseStarted(time.time(), phase))
            self._phase(phase, count, max(factor, 1e-6))
        self._emit(PhaseStarted(time.time(), "finish"))
        if profile.result:
            self._emit(_run_result(profile))
        _print("The simulated run has ended")

    def remove_load(self) -> None:
        self._load.unlink(missing_ok=True)

    def _phase(self, name: str, count: int, factor: float) -> None:
        self._pace = 1 / factor
        seconds: list[float] = []
        losses: list[float | None] = []
        reported_at = time.monotonic()
        self._due = max(self._due, reported_at)
        for number in range(count):
            self._fail_if_due()
            step = self._work(factor * self._undisturbed(number))
            self._taken += 1
            seconds.append(step)
            losses.append(self._loss())
            pauses = self._pauses_after(number + 1) if name == "timed" else []
            whole = number + 1 == count or bool(pauses)
            if whole or len(seconds) == MAX_STEPS_PER_EVENT or time.monotonic() - reported_at >= EVENT_SECONDS:
                has_loss = any(loss is not None for loss in losses)
                first = number + 1 - len(seconds)
                self._emit(StepsCompleted(time.time(), name, first, tuple(seconds), tuple(losses) if has_loss else ()))
                _print(f"{name}: {number + 1} of {count} steps, the last took {step:.4f} s")
                seconds, losses, reported_at = [], [], time.monotonic()
            for pause in pauses:
                self._take_pause(pause, (number + 1) // pause.every - 1)
            if pauses and number + 1 < count:
                self._emit(PhaseStarted(time.time(), name))

    def _pauses_after(self, done: int) -> list[PeriodicPause]:
        return [pause for pause in self._simulation.profile.pauses if done % pause.every == 0]

    def _take_pause(self, pause: PeriodicPause, before: int) -> None:
        """Validate or save a checkpoint: a step of its own phase, with the load that this is."""
        self._emit(PhaseStarted(time.time(), pause.phase))
        self._pause = pause
        self._refresh()
        self._wait(pause.seconds)
        self._pause = None
        self._refresh()
        loss = (self._loss(),) if pause.phase == "validation" else ()
        self._emit(StepsCompleted(time.time(), pause.phase, before, (pause.seconds,), loss))
        _print(f"{pause.phase}: {pause.seconds:.4f} s")

    def _undisturbed(self, number: int) -> float:
        """Return the seconds of a timed step that nothing else slows."""
        profile = self._simulation.profile
        if profile.steps:
            return profile.steps[number % len(profile.steps)]
        return profile.step_seconds * math.exp(self._random.gauss(0.0, profile.spread))

    def _work(self, seconds: float) -> float:
        """Spend a step of undisturbed seconds, and return how many it took beside the runs that were there."""
        took = 0.0
        while seconds > 0:
            part = min(seconds, REFRESH_SECONDS * _speed(self._root) / self._slowed)
            took += part * self._slowed
            self._wait(part * self._slowed)
            seconds -= part
        return took

    def _wait(self, seconds: float) -> None:
        """Wait for simulated seconds, at the speed of the host's clock."""
        self._due += seconds / _speed(self._root)
        while True:
            now = time.monotonic()
            if now - self._refreshed >= REFRESH_SECONDS:
                self._refresh()
            if self._due <= now:
                return
            time.sleep(min(self._due - now, REFRESH_SECONDS))

    def _loss(self) -> float | None:
        profile, spec = self._simulation.profile, self._simulation.spec
        if not profile.first_loss:
            return None
        share = self._taken / max(1, spec.warmup + spec.steps)
        fallen = (profile.first_loss - profile.last_loss) * math.exp(-4 * share)
        return max(0.0, (profile.last_loss + fallen) * math.exp(self._random.gauss(0.0, 0.02)))

    def _fail_if_due(self) -> None:
        profile = self._simulation.profile
        if not profile.fails or self._taken < profile.fails_at:
            return
        if profile.fails == "hang":
            _print("The devices wait for each other")
            while True:
                self._refresh()
                time.sleep(REFRESH_SECONDS)
        if profile.fails == "out_of_memory":
            raise SimulatedFailure(
                "out_of_memory", f"A device's memory was full after {self._taken} steps (an exercise)."
            )
        raise SimulatedFailure("crash", f"The run crashed after {self._taken} steps (an exercise).")

    def _refresh(self) -> None:
        """Report the load of the devices to the host. Raises SimulatedFailure where one of them was removed."""
        self._refreshed = time.monotonic()
        profile = self._simulation.profile
        for device in profile.devices:
            place = self._root / "sys/bus/pci/devices" / device.address / "config"
            # A device that hangs is not checked here: the host detects it.
            if not place.exists() or (place.is_file() and place.read_bytes()[:4] == ABSENT_DEVICE):
                raise SimulatedFailure("crash", f"The device {device.address} is gone.")
        self._feel_others()
        self._write_load(self._load_now())

    def _feel_others(self) -> None:
        """Read what other runs of this host take of what is shared, and how much longer a step takes for it."""
        self._slowed, self._waits = 1.0, False
        shared = self._simulation.profile.shared
        others = other_demands(self._load.parent, self._load) if shared else []
        for resource in shared:
            slowed = slowdown(resource, others)
            if slowed > self._slowed:
                self._slowed, self._waits = slowed, resource.waits

    def _load_now(self) -> dict[str, object]:
        profile, pause = self._simulation.profile, self._pause
        command = f"trainer {self._simulation.spec.workload} (run {self._simulation.run})"
        common: dict[str, object] = {
            "run": self._simulation.run,
            "command": command,
            "memory_bytes": profile.host_memory_bytes,
        }
        if pause is not None:
            return common | {
                "devices": [_in_pause(device, pause) for device in profile.devices],
                "cpu_share": pause.cpu_share,
                "disk_read": pause.disk_read,
                "disk_write": pause.disk_write,
            }
        pace = self._pace / self._slowed
        busy = self._pace if self._waits else pace
        return common | {
            "devices": [_at_pace(device, pace, busy) for device in profile.devices],
            "cpu_share": profile.host_cpu_share * min(1.0, pace),
            "disk_read": profile.disk_read * pace,
            # What it would take alone: what runs get of each other does not depend on who looked first.
            "demands": {resource.name: resource.demand for resource in profile.shared},
        }

    def _write_load(self, load: dict[str, object]) -> None:
        self._load.parent.mkdir(exist_ok=True)
        new = self._load.with_name(f".{self._load.name}")
        new.write_bytes(msgspec.json.encode(load))
        new.replace(self._load)

    def _emit(self, event: RunEvent) -> None:
        append_event(self._events_file, event)

    def report_failure(self, error: SimulatedFailure) -> None:
        _print(f"{type(error).__name__} ({error.what}): {error}")
        self._emit(RunFailed(time.time(), error.what, str(error)))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _run_result(profile: SimulationProfile) -> RunResult:
    """Return the figures of a profile: {"values": .., "units": ..}, or only the values."""
    result = profile.result
    if set(result) == {"values", "units"}:
        return RunResult(time.time(), result["values"], result["units"])
    return RunResult(time.time(), result)


def _at_pace(device: DeviceProfile, pace: float, busy: float) -> dict[str, float | str]:
    """Return the load of a device: `pace` is that of its steps, `busy` that at which its kernels run or wait."""
    memory = {} if device.memory_busy is None else {"memory_busy": device.memory_busy * min(1.0, pace)}
    return {
        "address": device.address,
        "share": min(1.0, device.share * min(1.0, busy)),
        "memory_share": device.memory_share,
        "to_device": device.to_device * pace,
        "from_device": device.from_device * pace,
        "peer_share": device.peer_share,
        **memory,
    }


def _in_pause(device: DeviceProfile, pause: PeriodicPause) -> dict[str, float | str]:
    """Return the load of a device that validates, or waits for a checkpoint; a drive has no share of its own."""
    computes = device.share > 0
    share = pause.share if computes else 0.0
    return {
        "address": device.address,
        "share": share,
        "memory_share": device.memory_share,
        "memory_busy": share * (device.memory_busy or 0.0),
        "from_device": 0.0 if computes else pause.disk_read,
        "to_device": 0.0 if computes else pause.disk_write,
    }


def _speed(root: Path) -> float:
    """Return the simulated seconds per second of wall time on a host."""
    try:
        return max(1e-6, float((root / "speed").read_text()))
    except (OSError, ValueError):
        return 1.0


def main() -> int:
    """Simulate the run of a folder; returns 1 where it fails."""
    folder = RunFolder(Path(sys.argv[1]))
    simulation = msgspec.json.decode(folder.simulation.read_bytes(), type=SimulatedRun)
    simulator = RunSimulator(simulation, folder.executor_events)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        simulator.run()
    except SimulatedFailure as error:
        simulator.report_failure(error)
        return 1
    finally:
        simulator.remove_load()
    return 0


if __name__ == "__main__":
    sys.exit(main())
