"""A small HTTP server that answers whatever a test tells it to, for what real services have been seen to answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from fabric.bmc.addresses import BmcAddress
from fabric.bmc.client import BmcClient


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    """What to answer; `body` as bytes goes out as it is, anything else as JSON."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    hang_up: bool = False  # close the connection in place of an answer


# What a route answers: a body, a Reply, or a function of the request that returns either.
Answering = Any

ROOT = "/redfish/v1"


def service_root(**more: Any) -> dict[str, Any]:
    """Return a plain service root."""
    return {
        "@odata.id": ROOT,
        "@odata.type": "#ServiceRoot.v1_17_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.20.0",
        "Links": {"Sessions": {"@odata.id": f"{ROOT}/SessionService/Sessions"}},
        **more,
    }


def collection(path: str, kind: str, *members: str, **more: Any) -> dict[str, Any]:
    """Return a plain collection."""
    return {
        "@odata.id": path,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Name": f"{kind} Collection",
        "Members": [{"@odata.id": member} for member in members],
        "Members@odata.count": len(members),
        **more,
    }


def chassis(path: str, **more: Any) -> dict[str, Any]:
    """Return a plain chassis."""
    return {
        "@odata.id": path,
        "@odata.type": "#Chassis.v1_28_0.Chassis",
        "Id": path.rsplit("/", 1)[-1],
        "Name": path.rsplit("/", 1)[-1],
        "ChassisType": "Enclosure",
        **more,
    }


class NonsenseServer:
    """Serves `routes` ('METHOD /path', or '/path' for GET), 404 for all else, and remembers what was asked."""

    def __init__(self, routes: Mapping[str, Answering]) -> None:
        self.routes = dict(routes)
        self.asked: list[Asked] = []
        self.connections = 0
        outer = self

        # The names of http.server's interface are what they are.
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Headers and body leave in one packet: without it each answer waits 40 ms for an acknowledgement.
            wbufsize = -1
            disable_nagle_algorithm = True

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                asked = Asked(self.command, self.path, dict(self.headers.items()), self.rfile.read(length))
                outer.asked.append(asked)
                reply = outer.answer(asked)
                if reply.hang_up:
                    self.close_connection = True
                    return
                content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                if "Transfer-Encoding" not in reply.headers:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = serve  # noqa: N815

            def log_message(self, *_args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_args: object) -> None:
                """Keep silent about clients that leave; what matters to a test shows in its answers."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def answer(self, asked: Asked) -> Reply:
        """Return the answer of the route, the one with the query before the one without."""
        plain = asked.path.split("?", 1)[0]
        for key in (f"{asked.method} {asked.path}", f"{asked.method} {plain}", asked.path, plain, plain.rstrip("/")):
            if key in self.routes and (" " in key or asked.method == "GET"):
                found = self.routes[key]
                made = found(asked) if callable(found) else found
                return made if isinstance(made, Reply) else Reply(body=made)
        return Reply(404, {"error": {"code": "Base.1.0.ResourceMissingAtURI", "message": "no such resource"}})

    def paths(self, method: str = "GET") -> list[str]:
        """Return the paths asked for with a method."""
        return [asked.path for asked in self.asked if asked.method == method]

    def client(self, username: str = "", password: str = "", **more: Any) -> BmcClient:
        """Return a client of this server."""
        return BmcClient(BmcAddress(url=self.url, username=username, password=password), **more)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
