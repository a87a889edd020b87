"""The part of the control address that is about hosts: what they see, who uses a device there, what is mounted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from simulator.hosts import Hosts
from simulator.hostsite import HostError, MountRequest, Process, ProcessRequest
from simulator.service import Falcon


class HostControl:
    """The handlers; `chassis` finds the chassis that a request is about."""

    def __init__(self, chassis: Callable[[web.Request], Falcon]) -> None:
        self._chassis = chassis

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.router.add_get("/hosts", self.hosts)
        application.router.add_get("/hosts/{host}/processes", self.processes)
        application.router.add_post("/hosts/{host}/processes", self.start_process)
        application.router.add_delete("/hosts/{host}/processes/{pid}", self.end_process)
        application.router.add_post("/hosts/{host}/mounts", self.mount)
        application.router.add_delete("/hosts/{host}/mounts/{device}", self.unmount)

    def _hosts(self, request: web.Request) -> Hosts:
        hosts = self._chassis(request).hosts
        if hosts is None:
            raise HostError("hosts are not played: start the simulator with --hosts-root")
        return hosts

    async def hosts(self, request: web.Request) -> web.Response:
        """Answer which of our devices each host shows."""
        return _json(self._hosts(request).truth())

    async def processes(self, request: web.Request) -> web.Response:
        """Answer the processes that we play on a host."""
        found = self._hosts(request).processes(request.match_info["host"])
        return _json([_shown(process) for process in found])

    async def start_process(self, request: web.Request) -> web.Response:
        """Let a process hold a device."""
        wanted = msgspec.json.decode(await request.read(), type=ProcessRequest)
        return _json(_shown(self._hosts(request).start_process(request.match_info["host"], wanted)), status=201)

    async def end_process(self, request: web.Request) -> web.Response:
        """End a process."""
        if not self._hosts(request).end_process(request.match_info["host"], int(request.match_info["pid"])):
            raise web.HTTPNotFound(text="there is no such process of ours")
        return web.Response(status=204)

    async def mount(self, request: web.Request) -> web.Response:
        """Mount a drive."""
        wanted = msgspec.json.decode(await request.read(), type=MountRequest)
        self._hosts(request).mount(request.match_info["host"], wanted)
        return web.Response(status=204)

    async def unmount(self, request: web.Request) -> web.Response:
        """Unmount a drive."""
        self._hosts(request).unmount(request.match_info["host"], request.match_info["device"])
        return web.Response(status=204)


def _shown(process: Process) -> dict[str, Any]:
    return {"pid": process.pid, "address": process.address, **msgspec.to_builtins(process.request)}


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
