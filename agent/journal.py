"""A journal of commands and answers on disk: no command is carried out twice, not even after a crash."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from hostwire.signing import SKEW_SECONDS

MAX_FILE_BYTES = 16 * 2**20


class JournalError(Exception):
    """The journal cannot be read or written; the text says why."""


class JournalEntry(msgspec.Struct, omit_defaults=True):
    """One command: `answer` is the signed text, '' while it runs; `sent` once the broker has accepted it."""

    nonce: str
    task: str
    expires: float
    answer: str = ""
    sent: bool = False


class Journal:
    """The journal in a folder that one agent at a time uses. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "journal"
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder_lock = (folder / "lock").open("w")
            fcntl.flock(self._folder_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(f"another agent uses {folder}") from error
        except OSError as error:
            raise JournalError(f"{folder} cannot be used: {error.strerror}") from error
        self._entries: dict[str, JournalEntry] = {}
        self._read()
        self._rewrite()

    def entry(self, nonce: str) -> JournalEntry | None:
        """Return the entry of a command."""
        with self._lock:
            return self._entries.get(nonce)

    def entries(self) -> list[JournalEntry]:
        """Return all entries, oldest first."""
        with self._lock:
            return list(self._entries.values())

    def begin(self, nonce: str, task: str, expires: float) -> JournalEntry | None:
        """Record that a command begins; returns the earlier entry, and records nothing, for a repeated one.

        Raises JournalError where that cannot be written.
        """
        with self._lock:
            if (known := self._entries.get(nonce)) is not None:
                return known
            entry = JournalEntry(nonce, task, expires)
            self._append(entry)
            self._entries[nonce] = entry
            return None

    def record_answer(self, nonce: str, answer: str) -> None:
        """Store the signed answer of a command. Raises JournalError; then it is in memory only."""
        self._change(nonce, answer=answer, sent=False)

    def record_sent(self, nonce: str) -> None:
        """Record that the broker has accepted the answer."""
        self._change(nonce, sent=True)

    def close(self) -> None:
        """Release the folder's lock."""
        self._folder_lock.close()

    def _change(self, nonce: str, **changes: Any) -> None:
        with self._lock:
            if nonce not in self._entries:
                return
            entry = self._entries[nonce] = msgspec.structs.replace(self._entries[nonce], **changes)
            self._append(entry)
            if self._file.stat().st_size > MAX_FILE_BYTES:
                self._rewrite()

    def _append(self, entry: JournalEntry) -> None:
        try:
            with self._file.open("ab") as file:
                file.write(msgspec.json.encode(entry) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise JournalError(f"{self._file} cannot be written: {error.strerror}") from error

    def _read(self) -> None:
        try:
            lines = self._file.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                entry = msgspec.json.decode(line, type=JournalEntry)
            except msgspec.MsgspecError:  # the last line, cut short by a crash
                continue
            self._entries[entry.nonce] = entry

    def _rewrite(self) -> None:
        """Delete the entries of expired commands, which cannot be repeated."""
        now = time.time() - SKEW_SECONDS
        self._entries = {nonce: entry for nonce, entry in self._entries.items() if entry.expires > now}
        new = self._file.with_suffix(".new")
        try:
            new.write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in self._entries.values()))
            new.replace(self._file)
        except OSError as error:
            raise JournalError(f"{self._file} cannot be written: {error.strerror}") from error
