"""CPU seconds of each test file, compared with a record of them, and the marker of tests that start a process.

A pytest plugin of this suite. A run that leaves out no test of its files keeps what they took, by its own process and
all that descend from it, in pytest's cache. `python -m tests.budget record` makes that the record of these files in
`tests/cpu_seconds.json`, and `python -m tests.budget check` names those that take far more than their record, and
fails for those beyond what another machine explains.

"(session)" stands for the fixtures of the session, which no file pays for; "(calibration)" for a fixed piece of work,
in milliseconds: by it the record of one machine is scaled for another.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

RECORD = Path("tests/cpu_seconds.json")
CACHE_KEY = "budget/cpu_seconds"
MEASURED = Path(".pytest_cache/v") / CACHE_KEY
SESSION, CALIBRATION = "(session)", "(calibration)"
FREE = 5.0  # CPU seconds that a file may take without a record, or beyond it
# Times its record, and seconds beyond it: what lies between them moves with the machine and what else it does.
NAMED, FAILING = (2, FREE), (3, 3 * FREE)
STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
CALIBRATION_PERIOD = 30.0  # s: a machine that others share is now faster, now slower
TICKS = os.sysconf("SC_CLK_TCK")
ADVICE = (
    "Most tests ask nothing of a wire: make rows (see docs/testing.md), share the simulator, or record it anew with"
    " `python -m tests.budget record` and say why in the commit."
)
MARK_IT = (
    "and is not marked. Most tests ask nothing of a wire: make rows. For a BMC take the shared simulator (`simulator`,"
    " `SimulatorProcess`). Where a process of its own is the point, mark it: @pytest.mark.process."
)


class UnmarkedProcess(RuntimeError):
    """A test that is not marked has started a process."""


class Budget:
    """The plugin of one run: measures test files, and refuses processes that unmarked tests start."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.files: dict[str, float] = defaultdict(float)
        self.fixtures: dict[str, float] = defaultdict(float)
        self.calibrations: list[float] = []
        self.calibrate_at = 0.0  # monotonic s
        # Other databases and longer profiles have other costs.
        self.whole = not any("::" in name for name in config.args) and not (
            os.environ.get("DATABASE_URL") or os.environ.get("HYPOTHESIS_PROFILE")
        )
        self.pid = os.getpid()
        self.item: pytest.Item | None = None
        self.marked = False
        self.fixture = ""  # the session fixture that is being set up or torn down
        self.refused: list[str] = []
        self.usage: dict[str, float] = {}
        self.family: dict[int, int] = {}
        self.family_changed = True
        self.owners: dict[int, str] = {}  # children that session fixtures have started

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Charge what a test takes to its file."""
        if time.monotonic() > self.calibrate_at:
            self.calibrations.append(calibrate())
            self.calibrate_at = time.monotonic() + CALIBRATION_PERIOD
            self.usage = self._usage()
        self.item = item
        self.marked = any(item.get_closest_marker(name) for name in ("process", "browser"))
        try:
            return (yield)
        finally:
            self._charge()
            self.item, self.marked = None, False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Charge fixtures of the session to themselves, and remember the processes that they start."""
        if fixturedef.scope != "session":
            return (yield)
        name, outer = fixturedef.argname, self.fixture
        self._charge(name)
        known = set(self.family.values())
        try:
            result = yield
        finally:
            self._charge(outer)
            self.owners |= dict.fromkeys(set(self.family.values()) - known - self.owners.keys(), name)
            self.usage = self._usage()
        # Finalizers run in reverse order: this one before those that were added during the set-up.
        fixturedef.addfinalizer(lambda: self._charge(name))
        return result

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Charge the test's file again after a fixture of the session has been torn down."""
        if fixturedef.argname == self.fixture:
            self._charge()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Fail a test that started a process without the marker, also where the code under test caught the error."""
        report = yield
        if self.refused:
            text = "\n".join(self.refused)
            self.refused.clear()
            if report.failed:
                report.sections.append(("Unmarked process", text))
            else:
                report.outcome, report.longrepr = "failed", text
        return report

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Keep nothing of a run that leaves out tests; nightly ones always are."""
        if any(item.get_closest_marker("nightly") is None for item in items):
            self.whole = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a worker of pytest-xdist has measured."""
        files, fixtures, calibrations, whole = getattr(node, "workeroutput", {}).get(CACHE_KEY, ({}, {}, [], False))
        self.whole = self.whole and whole
        self.calibrations += calibrations
        for name, seconds in files.items():
            self.files[name] += seconds
        # Each worker sets up its own: how many of them did says nothing about the fixture.
        for name, seconds in fixtures.items():
            self.fixtures[name] = max(self.fixtures[name], seconds)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Give the sums to the controller of the workers, or keep them where the run was whole."""
        output: dict[str, Any] | None = getattr(self.config, "workeroutput", None)
        cache: pytest.Cache | None = getattr(self.config, "cache", None)
        if output is not None:
            output[CACHE_KEY] = dict(self.files), dict(self.fixtures), self.calibrations, self.whole
        elif cache is not None and self.files and self.whole and exitstatus in (0, 1) and not session.shouldfail:
            cache.set(CACHE_KEY, self._sums() | {CALIBRATION: statistics.median(self.calibrations)})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the dearest files."""
        if self.config.getoption("--budget-report"):
            terminalreporter.section("CPU seconds of test files")
            for name, seconds in sorted(self._sums().items(), key=lambda one: -one[1])[:25]:
                terminalreporter.write_line(f"{seconds:8.1f}  {name}")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Refuse a process that an unmarked test starts; a hook of `sys.addaudithook`."""
        __tracebackhide__ = True
        if event not in STARTS or os.getpid() != self.pid:
            return
        self.family_changed = True
        if self.item is None or self.marked or self.fixture or _is_shared_start():
            return
        sentence = f"{self.item.nodeid} starts a process ({_command(event, arguments)}) {MARK_IT}"
        self.refused.append(sentence)
        raise UnmarkedProcess(sentence)

    def _charge(self, following: str = "") -> None:
        """Charge what was used since the last time; `following` is the session fixture that pays from now on."""
        before, self.usage = self.usage, self._usage()
        users = {"", self.fixture, *getattr(self.item, "fixturenames", ())}
        # What a session fixture has started is paid by the tests that ask for it. Less than before: it has ended, and
        # is part of what this process itself has used.
        used = sum(
            seconds
            for owner in self.usage | before
            if (seconds := self.usage.get(owner, 0.0) - before.get(owner, 0.0)) < 0 or owner in users
        )
        if self.fixture:
            self.fixtures[self.fixture] += max(used, 0.0)
        elif self.item is not None:
            self.files[self.item.nodeid.partition("::")[0]] += max(used, 0.0)
        self.fixture = following

    def _usage(self) -> dict[str, float]:
        """Return the CPU seconds so far of this process and its descendants, those of session fixtures apart."""
        if self.family_changed or self.marked:
            self.family, self.family_changed = _family(), False
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        usage = {"": time.process_time() + ended.ru_utime + ended.ru_stime}
        for pid, child in list(self.family.items()):
            if stat := _stat(pid):
                owner = self.owners.get(child, "")
                usage[owner] = usage.get(owner, 0.0) + sum(map(int, stat[11:15])) / TICKS
            else:
                del self.family[pid]
        return usage

    def _sums(self) -> dict[str, float]:
        return {SESSION: sum(self.fixtures.values()), **self.files}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the report."""
    parser.addoption("--budget-report", action="store_true", help="show the 25 test files that take most CPU seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Measure this run."""
    budget = Budget(config)
    config.pluginmanager.register(budget, "budget")
    sys.addaudithook(budget.audit)


def calibrate() -> float:
    """Return the CPU milliseconds of a fixed piece of work: the median of five times."""

    def once() -> float:
        begin = time.thread_time()
        sum(number * number % 7 for number in range(150_000))
        return (time.thread_time() - begin) * 1000

    return statistics.median(once() for _ in range(5))


def _stat(pid: int) -> list[bytes]:
    """Return /proc/PID/stat from the state on; nothing where the process is gone, or there is no /proc."""
    try:
        # A hundred of them are read for a test that starts processes, and a file object takes four times as long.
        handle = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return []
    try:
        return os.read(handle, 4096).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        os.close(handle)


def _family() -> dict[int, int]:
    """Return the descendants of this process, each with the child of this process that it comes from."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in os.scandir("/proc") if Path("/proc").is_dir() else ():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            children[int(stat[1])].append(int(entry.name))
    family: dict[int, int] = {}
    for child in children[os.getpid()]:
        branch = [child]
        for pid in branch:
            family[pid] = child
            branch += children[pid]
    return family


def _command(event: str, arguments: tuple[Any, ...]) -> str:
    command = arguments[1] if event in ("subprocess.Popen", "os.posix_spawn") else event
    text = command if isinstance(command, str) else " ".join(map(str, command))
    return text if len(text) <= 100 else text[:100] + "..."


def _is_shared_start() -> bool:
    """Tell whether a simulator starts that later tests use again: falconweb.testing has the word."""
    ending = sys.modules.get("falconweb.testing.processes")
    return ending is not None and bool(ending.is_shared_start())


def updated(recorded: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Return the record with what was measured; files that no longer exist are left out."""
    kept = {name: seconds for name, seconds in recorded.items() if name.startswith("(") or Path(name).exists()}
    if not kept.keys() <= measured.keys():
        scale = _scale(recorded, measured)
        measured = {name: seconds / scale for name, seconds in measured.items() if not name.startswith("(")}
    return {name: round(seconds, 1) for name, seconds in sorted({**kept, **measured}.items())}


def excesses(recorded: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, bool]:
    """Return a sentence for each file that takes more than twice its record and 5 s beyond it.

    Each has whether it fails: beyond three times the record and 15 s.
    """
    scale = _scale(recorded, measured)
    found = {}
    for name, seconds in sorted(measured.items()):
        expected = recorded.get(name, 0.0) * scale
        if name == CALIBRATION or not _is_beyond(seconds, expected, NAMED):
            continue
        known = f"{recorded[name]:.1f} are recorded" if name in recorded else "none are recorded"
        known += "" if scale == 1 or name not in recorded else f" ({expected:.1f} on a machine like this)"
        subject = "The set-up of session fixtures" if name == SESSION else name
        sentence = f"{subject} took {seconds:.1f} CPU seconds, {known}. {ADVICE}"
        found[sentence] = _is_beyond(seconds, expected, FAILING)
    return found


def _is_beyond(seconds: float, expected: float, limit: tuple[int, float]) -> bool:
    times, more = limit
    return seconds > max(times * expected, expected + more)


def _scale(recorded: Mapping[str, float], measured: Mapping[str, float]) -> float:
    """Return how much slower the machine of a measurement is than that of the record, within bounds."""
    return min(max(measured[CALIBRATION] / recorded.get(CALIBRATION, measured[CALIBRATION]), 0.5), 4.0)


def main(arguments: list[str]) -> int:
    """Record what was measured last, or check it; returns the exit status."""
    if arguments not in (["record"], ["check"]):
        sys.stderr.write("Usage: python -m tests.budget record|check\n")
        return 2
    recorded, measured = (json.loads(path.read_text()) if path.exists() else {} for path in (RECORD, MEASURED))
    if not measured:
        sys.stderr.write("Nothing has been measured: run whole test files first, by `make test` or by their names.\n")
        return 2
    if arguments == ["record"]:
        new = updated(recorded, measured)
        RECORD.write_text(json.dumps(new, indent=0) + "\n")
        said = [f"{name} no longer exists: its record is removed." for name in sorted(recorded.keys() - new.keys())]
        sys.stdout.write("\n".join([*said, f"{len(measured) - 2} test files are recorded in {RECORD}.\n"]))
        return 0
    wrong = excesses(recorded, measured)
    sys.stdout.write("\n".join(wrong or [f"{len(measured) - 2} test files took no more than is recorded."]) + "\n")
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
