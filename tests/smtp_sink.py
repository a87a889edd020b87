"""A mail server that keeps what it is given: real SMTP on a port of its own, and the ways in which one fails."""

from __future__ import annotations

import email
import email.message
import socketserver
import threading
from types import TracebackType
from typing import Literal, Self

Mood = Literal["well", "full", "refuses", "hangs up"]


class _Talk(socketserver.StreamRequestHandler):
    """One conversation."""

    server: _Server
    timeout = 10

    def handle(self) -> None:
        sink = self.server.sink
        if sink.mood == "hangs up":
            return
        self._say("220 sink")
        recipients: list[str] = []
        while line := self.rfile.readline().decode(errors="replace").strip():
            word = line.split(":")[0].split(" ")[0].upper()
            if word in {"EHLO", "HELO", "MAIL", "RSET", "NOOP"}:
                recipients = [] if word in {"MAIL", "RSET"} else recipients
                self._say("250 ok")
            elif word == "RCPT":
                if sink.mood == "refuses":
                    self._say("550 no such mailbox")
                else:
                    recipients.append(line.partition("<")[2].partition(">")[0])
                    self._say("250 ok")
            elif word == "DATA":
                self._take(recipients)
            elif word == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("502 not here")

    def _take(self, recipients: list[str]) -> None:
        self._say("354 go on")
        lines = []
        while (line := self.rfile.readline()) not in {b".\r\n", b""}:
            lines.append(line.removeprefix(b"."))
        if self.server.sink.mood == "full":
            self._say("452 no room")
            return
        self.server.sink.got.append((tuple(recipients), email.message_from_bytes(b"".join(lines))))
        self._say("250 kept")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    sink: SmtpSink


class SmtpSink:
    """A context manager; `got` has the recipients and the message of each letter, `mood` is how it behaves."""

    def __init__(self) -> None:
        self.got: list[tuple[tuple[str, ...], email.message.Message]] = []
        self.mood: Mood = "well"
        self._server = _Server(("127.0.0.1", 0), _Talk)
        self._server.sink = self
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def subjects(self) -> list[tuple[str, str]]:
        """Whom what was written to, in order."""
        return [(recipients[0], str(message["Subject"])) for recipients, message in self.got]

    def body(self, nth: int = -1) -> str:
        """Return the text of a letter."""
        payload = self.got[nth][1].get_payload(decode=True)
        return payload.decode() if isinstance(payload, bytes) else ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
