"""The control address: faults, events, hosts, the true state, and the speed of time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from simulator.faults import Fault, FaultError, FaultRequest
from simulator.host_state import DeviceProcess, HostError, MountRequest, ProcessRequest
from simulator.hosts import HostSimulation
from simulator.service import Falcon
from simulator.simulation import Simulation

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CableRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A host port, and the host of the lab for its cable; null removes the cable."""

    port: str
    host: str | None


class ResetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Options as on the command line; by default the previous ones."""

    arguments: list[str] | None = None


class ControlHandlers:
    """The handlers of the control address; `?chassis=NAME` chooses one of several chassis."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def application(self) -> web.Application:
        """Return the web application."""
        application = web.Application(middlewares=[_error_middleware])
        application.router.add_get("/state", self.state)
        application.router.add_get("/faults", self.faults)
        application.router.add_post("/faults", self.add_fault)
        application.router.add_delete("/faults", self.clear_faults)
        application.router.add_delete("/faults/{fault}", self.remove_fault)
        application.router.add_post("/chassis/{chassis}/cabling", self.recable)
        EventHandlers(self._of).add_to(application)
        HostHandlers(self._of).add_to(application)
        application.router.add_get("/time", self.time)
        application.router.add_post("/time", self.set_time)
        application.router.add_post("/reset", self.reset)
        application.router.add_post("/stop", self.stop)
        return application

    def _of(self, request: web.Request) -> Falcon:
        """Return the chassis of a request, advanced to the present, after earlier writes have been processed."""
        name = request.match_info.get("chassis") or request.query.get("chassis")
        known = {falcon.name: falcon for falcon in self._simulation.chassis}
        if not known:
            raise web.HTTPNotFound(text="the simulation is stopped until the next reset")
        if name is not None and name not in known:
            raise web.HTTPNotFound(text=f"there is no chassis {name!r}; there are {', '.join(known)}")
        falcon = self._simulation.chassis[0] if name is None else known[name]
        falcon.advance(at_once=True)
        return falcon

    async def state(self, request: web.Request) -> web.Response:
        """Return the true state of a chassis."""
        return _json(self._of(request).truth())

    async def faults(self, request: web.Request) -> web.Response:
        """Return the active faults."""
        return _json([_fault_data(fault) for fault in self._of(request).faults.active.values()])

    async def add_fault(self, request: web.Request) -> web.Response:
        """Activate a fault."""
        falcon = self._of(request)
        wanted = msgspec.json.decode(await request.read(), type=FaultRequest)
        return _json(_fault_data(falcon.faults.add(wanted)), status=201)

    async def remove_fault(self, request: web.Request) -> web.Response:
        """End one fault."""
        falcon = self._of(request)
        if not falcon.faults.remove(request.match_info["fault"]):
            raise web.HTTPNotFound(text="there is no such fault")
        return web.Response(status=204)

    async def clear_faults(self, request: web.Request) -> web.Response:
        """End every fault."""
        falcon = self._of(request)
        for fault in list(falcon.faults.active):
            falcon.faults.remove(fault)
        return web.Response(status=204)

    async def recable(self, request: web.Request) -> web.Response:
        """Move the cable of a host port to a host of the lab, or out of the port."""
        falcon = self._of(request)
        wanted = msgspec.json.decode(await request.read(), type=CableRequest)
        ports = {name: port for port in falcon.state.host_ports() for name in (port.name, port.endpoint)}
        port = ports.get(wanted.port)
        if port is None:
            known = ", ".join(one.name for one in falcon.state.host_ports())
            raise ValueError(f"there is no host port {wanted.port!r}; there are {known}")
        if wanted.host is not None and wanted.host not in falcon.state.hosts:
            known = ", ".join(falcon.state.hosts)
            raise ValueError(f"the lab has no host {wanted.host!r}; it has {known}")
        falcon.composer.recable(port, wanted.host)
        return _json(falcon.truth()["cabling"])

    async def time(self, _request: web.Request) -> web.Response:
        """Return the simulated time."""
        clock = self._simulation.clock
        return _json({"speed": clock.speed, "seconds": clock.now(), "now": clock.timestamp()})

    async def set_time(self, request: web.Request) -> web.Response:
        """Change the speed of time, or set the clock."""
        body = msgspec.json.decode(await request.read(), type=dict[str, float])
        if not body or not set(body) <= {"speed", "shift"}:
            raise ValueError('the body must be {"speed": simulated seconds in a second} or {"shift": seconds}')
        if "speed" in body:
            self._simulation.clock.set_speed(body["speed"])
        self._simulation.clock.shift(body.get("shift", 0.0))
        return await self.time(request)

    async def reset(self, request: web.Request) -> web.Response:
        """Reset, and return the present addresses of the chassis."""
        wanted = msgspec.json.decode(await request.read() or b"{}", type=ResetRequest)
        await self._simulation.reset(wanted.arguments)
        certificate = self._simulation.certificate
        return _json(
            {
                "addresses": self._simulation.addresses,
                "fingerprint": certificate.fingerprint,
                "certificate": str(certificate.certificate.resolve()),
            }
        )

    async def stop(self, _request: web.Request) -> web.Response:
        """Stop the simulation and all servers until the next reset."""
        await self._simulation.stop()
        return web.Response(status=204)


@web.middleware
async def _error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except (FaultError, ValueError, OSError, msgspec.MsgspecError) as error:
        return _json({"error": str(error)}, status=400)


def _fault_data(fault: Fault) -> dict[str, Any]:
    return {"id": fault.id, **msgspec.to_builtins(fault.request), "left": fault.left}


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")


MAX_BATCH = 20_000


class EventRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Events to create; `{n}` in the message is the number of each, from 1."""

    count: int = 1
    message_id: str = "ResourceEvent.1.3.ResourceChanged"
    message: str = "Test event {n}."
    severity: str = "OK"
    origin: str | None = None


class LogRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A change of the log: clear it, restart it at number 1, or limit its entries."""

    clear: bool = False
    begin_anew: bool = False
    limit: int | None = None


class EventHandlers:
    """The handlers; `chassis` returns the chassis of a request, advanced to the present."""

    def __init__(self, chassis: Callable[[web.Request], Falcon]) -> None:
        self._chassis = chassis

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.router.add_get("/events", self.events)
        application.router.add_post("/events", self.add_events)
        application.router.add_post("/events/log", self.change_log)

    async def events(self, request: web.Request) -> web.Response:
        """Return all events, in order, also those that are no longer in the log."""
        return _json([entry.event_record() for entry in self._chassis(request).events.told])

    async def add_events(self, request: web.Request) -> web.Response:
        """Create events immediately; returns the total number of events."""
        events = self._chassis(request).events
        wanted = msgspec.json.decode(await request.read(), type=EventRequest)
        if not 1 <= wanted.count <= MAX_BATCH:
            raise ValueError(f"the count must be between 1 and {MAX_BATCH}")
        for number in range(1, wanted.count + 1):
            text = wanted.message.replace("{n}", str(number))
            events.emit(wanted.message_id, text, str(number), severity=wanted.severity, origin=wanted.origin)
        return _json({"events": len(events.told)}, status=201)

    async def change_log(self, request: web.Request) -> web.Response:
        """Change the log; returns its number of entries."""
        events = self._chassis(request).events
        wanted = msgspec.json.decode(await request.read(), type=LogRequest)
        if wanted.limit is not None:
            events.resize(wanted.limit)
        if wanted.clear:
            events.clear()
        if wanted.begin_anew:
            events.restart_numbering()
        return _json({"entries": len(events.entries)})


class HostHandlers:
    """The handlers; `chassis` returns the chassis of a request, advanced to the present."""

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

    def _hosts(self, request: web.Request) -> HostSimulation:
        hosts = self._chassis(request).hosts
        if hosts is None:
            raise HostError("hosts are not simulated: start the simulator with --hosts-root")
        return hosts

    async def hosts(self, request: web.Request) -> web.Response:
        """Return the devices of this chassis on each host."""
        return _json(self._hosts(request).truth())

    async def processes(self, request: web.Request) -> web.Response:
        """Return the simulated processes on a host."""
        found = self._hosts(request).processes(request.match_info["host"])
        return _json([_process_data(process) for process in found])

    async def start_process(self, request: web.Request) -> web.Response:
        """Have a process use a device."""
        wanted = msgspec.json.decode(await request.read(), type=ProcessRequest)
        return _json(_process_data(self._hosts(request).start_process(request.match_info["host"], wanted)), status=201)

    async def end_process(self, request: web.Request) -> web.Response:
        """End a process."""
        if not self._hosts(request).end_process(request.match_info["host"], int(request.match_info["pid"])):
            raise web.HTTPNotFound(text="there is no such simulated process")
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


def _process_data(process: DeviceProcess) -> dict[str, Any]:
    return {"pid": process.pid, "address": process.address, **msgspec.to_builtins(process.request)}
