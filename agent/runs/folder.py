"""The folder of a run: its launch specification, its events, its log and its end.

Only the supervisor of a run writes while it runs: it holds the folder's lock. A free lock means that the supervisor has
ended, whichever process has its PID by then.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agent.runs.processes import ProcessIdentity
from hostwire.training import RunEvent, event_decoder, event_encoder

# Size limits of a poll's answer: with JSON's overhead, both fit into a message.
MAX_EVENTS = 400
MAX_EVENT_BYTES = 96 * 1024
MAX_LOG_BYTES = 48 * 1024
MAX_EVENT_LINE_BYTES = 64 * 1024
# The time limit of one attempt to delete a run's files; the next attempt continues.
CLEAR_SECONDS = 10.0
T = TypeVar("T")
DELETED_PREFIX = ".gone-"  # prefix of a folder that is being deleted
RUN_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
_LOG_PIECE = re.compile(r"log\.(\d+)")


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The instructions for a supervisor, which samples the load of the host below `root` and of the GPUs among `gpus`.

    After `hang` seconds without an event the run counts as hanging, 0.0: never. The run ends with the process `parent`,
    where there is one.
    """

    run: str
    request: str  # digest of the request, to distinguish another run of the same name
    title: str
    command: tuple[str, ...]
    environment: dict[str, str]
    limit: float
    root: str
    account: str = ""
    hang: float = 0.0
    grace: float = 5.0
    sample: float = 1.0
    simulated: bool = False
    devices: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    log_bytes: int = 8 * 2**20
    parent: ProcessIdentity | None = None


class StopRequest(msgspec.Struct, frozen=True):
    """A request to stop the run, by force after `grace` seconds."""

    grace: float


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    exit_code: int | None = None
    sentence: str = ""
    cancelled: bool = False


class RunFolder:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.run = place.name
        self.spec = place / "spec.json"
        self.node = place / "node.json"  # of a run over several hosts
        self.simulation = place / "simulated.json"
        self.home = place / "home"
        self.executor_events = place / "told.jsonl"
        self.events = place / "events.jsonl"  # those of the executor, and the supervisor's own

    @property
    def exists(self) -> bool:
        return self.place.is_dir()

    @property
    def launch_spec(self) -> LaunchSpec | None:
        """Its launch specification; None for a run that was cancelled before it began."""
        return _read_file(self.place / "order.json", LaunchSpec)

    @property
    def end(self) -> RunEnd | None:
        """Its end, None while it runs."""
        return _read_file(self.place / "end.json", RunEnd)

    @property
    def stop_request(self) -> StopRequest | None:
        return _read_file(self.place / "stop.json", StopRequest)

    @property
    def supervisor(self) -> ProcessIdentity | None:
        """The process of the present or last supervisor."""
        return _read_file(self.place / "keeper.json", ProcessIdentity)

    @property
    def known_processes(self) -> list[ProcessIdentity]:
        """Its processes, as its supervisor saw them last."""
        return _read_file(self.place / "family.json", list[ProcessIdentity]) or []

    @property
    def is_supervised(self) -> bool:
        with self.lock(fcntl.LOCK_SH) as free:
            return not free and self.exists

    @contextmanager
    def lock(self, kind: int) -> Iterator[bool]:
        """Take the lock for the context unless the supervisor has it; yields whether it was taken.

        A supervisor takes it exclusively (LOCK_EX), a check for a supervisor shares it (LOCK_SH).
        """
        try:
            handle = os.open(self.place / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            yield True  # no folder, so no lock
            return
        try:
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(handle)

    def write(self, name: str, content: Any) -> None:
        """Put a file in place, whole. Raises OSError."""
        new = self.place / f".{name}.{os.getpid()}"
        _write_file(new, msgspec.json.encode(content), os.O_TRUNC)
        new.replace(self.place / name)

    def delete(self) -> None:
        """Delete the run: it ceases to exist immediately; a slow deletion of its files continues later."""
        gone = self.place.with_name(DELETED_PREFIX + self.run)
        if gone.exists():
            delete_tree(gone)
        with suppress(OSError):
            self.place.rename(gone)
        delete_tree(gone)


def _write_file(file: Path, content: bytes, mode: int) -> None:
    """Write to a file that nobody else can read, with one write for a line. Raises OSError."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | mode, 0o600), "wb") as handle:
        handle.write(content)


def append_event(file: Path, event: RunEvent) -> int:
    """Append an event to a file; returns its size in bytes. Raises OSError."""
    line = event_encoder.encode(event) + b"\n"
    _write_file(file, line, os.O_APPEND)
    return len(line)


def delete_tree(place: Path) -> None:
    """Delete a folder. A user's command may leave a tree that is too deep for shutil.rmtree."""
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(  # noqa: S603 - the path is the agent's
            ["rm", "-rf", "--one-file-system", "--", str(place)],  # noqa: S607 - from the host's PATH
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=CLEAR_SECONDS,
            check=False,
        )


def _read_file(file: Path, shape: type[T]) -> T | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=shape)
    except (OSError, msgspec.MsgspecError):
        return None


class RunEventFile:
    """The events of a run, one per line, with a single writer."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.size = self._cut_incomplete_line()

    def add(self, event: RunEvent) -> None:
        """Append an event. Raises OSError."""
        self.size += append_event(self._file, event)

    def _cut_incomplete_line(self) -> int:
        """Cut off an incomplete last line, left by a killed supervisor; returns the size."""
        try:
            with self._file.open("r+b") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 2 * MAX_EVENT_LINE_BYTES))
                start = file.tell()
                whole = start + file.read().rfind(b"\n") + 1
                if whole < size:
                    file.truncate(whole)
                return whole
        except FileNotFoundError:
            return 0


class RunEventReader:
    """Reads events from a number on; it remembers its position, and does not read from the start each time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._place = (0, 0)  # number of an event, and its byte offset

    def read(self, first: int) -> tuple[list[RunEvent], bool]:
        """Return as many events from number `first` on as fit, and whether there are more."""
        number, at = self._place if self._place[0] <= first else (0, 0)
        found: list[RunEvent] = []
        size = 0
        try:
            with self._file.open("rb") as file:
                file.seek(at)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    if number >= first:
                        if len(found) >= MAX_EVENTS or size + len(line) > MAX_EVENT_BYTES:
                            return found, True
                        found.append(event_decoder.decode(line))
                        size += len(line)
                    number, at = number + 1, at + len(line)
                    self._place = (number, at)
        except FileNotFoundError:
            pass
        return found, False


class LogWriter:
    """The log of a run: its first half, and the last part of the rest, in files named by their byte offset."""

    def __init__(self, place: Path, most: int) -> None:
        self._place = place
        self._head = max(1, most // 2)
        self._piece = max(1, most // 4)
        self._at = 0
        self._pieces = [0]

    def write(self, content: bytes) -> None:
        """Append to the log. Raises OSError."""
        while content:
            began = self._pieces[-1]
            room = began + (self._head if began == 0 else self._piece) - self._at
            if room <= 0:
                self._pieces.append(self._at)
                if len(self._pieces) > 3:
                    (self._place / f"log.{self._pieces.pop(1)}").unlink(missing_ok=True)
                continue
            part, content = content[:room], content[room:]
            _write_file(self._place / f"log.{began}", part, os.O_APPEND)
            self._at += len(part)


class LogText(msgspec.Struct, frozen=True):
    """A part of a log, from byte `first` of the output; the following part begins at `next`."""

    first: int
    text: str
    next: int
    more: bool


def read_log(place: Path, byte: int, *, ended: bool) -> LogText:
    """Return as much of the log from a byte on as fits; the text says how many bytes were left out."""
    pieces = sorted(
        (int(found[1]), entry.stat().st_size)
        for entry in place.glob("log.*")
        if (found := _LOG_PIECE.fullmatch(entry.name))
    )
    pieces = [(began, size) for began, size in pieces if began + size > byte]
    if not pieces:
        return LogText(byte, "", byte, more=False)
    first = max(byte, pieces[0][0])
    raw, at = b"", first
    for began, size in pieces:
        if began > at or len(raw) >= MAX_LOG_BYTES:
            break  # the next part says how many bytes were left out between
        with (place / f"log.{began}").open("rb") as file:
            file.seek(at - began)
            raw += file.read(min(size - (at - began), MAX_LOG_BYTES - len(raw)))
        at = first + len(raw)
    end = pieces[-1][0] + pieces[-1][1]
    raw = _truncate(raw, final=ended and at >= end)
    text = raw.decode(errors="replace").replace("\0", "\ufffd")
    if first > byte:
        text = f"\n[{first - byte} bytes of the log were left out here]\n{text}"
    return LogText(first, text, first + len(raw), more=first + len(raw) < end)


def _truncate(raw: bytes, *, final: bool) -> bytes:
    """Return as much as fits into a message as JSON, with an incomplete character only at the very end."""
    while len(msgspec.json.encode(raw.decode(errors="replace"))) > 2 * MAX_LOG_BYTES:
        raw, final = raw[: len(raw) // 2], False
    if final:
        return raw
    for cut in range(1, min(4, len(raw)) + 1):
        if raw[-cut] & 0xC0 == 0xC0:  # a character begins here: is it complete?
            length = 2 + (raw[-cut] >= 0xE0) + (raw[-cut] >= 0xF0)
            return raw if cut >= length else raw[:-cut]
        if raw[-cut] < 0x80:
            break
    return raw
