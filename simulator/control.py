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
MAX_BATCH = 20_000


class CableRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A host port, and the host of the lab for its cable; null removes the cable."""

    port: str
    host: str | None


class ResetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Options as on the command line; by default the previous ones."""

    arguments: list[str] | None = None


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
    restart: bool = msgspec.field(default=False, name="begin_anew")
    limit: int | None = None


class ControlHandlers:
    """The handlers of the control address; `?chassis=NAME` chooses one of several chassis."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def application(self) -> web.Application:
        """Return the web application."""
        application = web.Application(middlewares=[_error_middleware])
        application.router.add_get("/state", self._state)
        application.router.add_get("/faults", self._faults)
        application.router.add_post("/faults", self._add_fault)
        application.router.add_delete("/faults", self._clear_faults)
        application.router.add_delete("/faults/{fault}", self._remove_fault)
        application.router.add_post("/chassis/{chassis}/cabling", self._recable)
        application.router.add_get("/events", self._events)
        application.router.add_post("/events", self._add_events)
        application.router.add_post("/events/log", self._change_log)
        application.router.add_get("/hosts", self._hosts)
        application.router.add_get("/hosts/{host}/processes", self._processes)
        application.router.add_post("/hosts/{host}/processes", self._start_process)
        application.router.add_delete("/hosts/{host}/processes/{pid}", self._end_process)
        application.router.add_post("/hosts/{host}/mounts", self._mount)
        application.router.add_delete("/hosts/{host}/mounts/{device}", self._unmount)
        application.router.add_get("/time", self._time)
        application.router.add_post("/time", self._set_time)
        application.router.add_post("/reset", self._reset)
        application.router.add_post("/stop", self._stop)
        return application

    def _falcon(self, request: web.Request) -> Falcon:
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

    async def _state(self, request: web.Request) -> web.Response:
        return _json(self._falcon(request).truth())

    async def _faults(self, request: web.Request) -> web.Response:
        return _json([_fault_data(fault) for fault in self._falcon(request).faults.active.values()])

    async def _add_fault(self, request: web.Request) -> web.Response:
        falcon = self._falcon(request)
        body = msgspec.json.decode(await request.read(), type=FaultRequest)
        return _json(_fault_data(falcon.faults.add(body)), status=201)

    async def _remove_fault(self, request: web.Request) -> web.Response:
        falcon = self._falcon(request)
        if not falcon.faults.remove(request.match_info["fault"]):
            raise web.HTTPNotFound(text="there is no such fault")
        return web.Response(status=204)

    async def _clear_faults(self, request: web.Request) -> web.Response:
        falcon = self._falcon(request)
        for fault in list(falcon.faults.active):
            falcon.faults.remove(fault)
        return web.Response(status=204)

    async def _recable(self, request: web.Request) -> web.Response:
        falcon = self._falcon(request)
        body = msgspec.json.decode(await request.read(), type=CableRequest)
        ports = {name: port for port in falcon.state.host_ports() for name in (port.name, port.endpoint)}
        if body.port not in ports:
            known = ", ".join(one.name for one in falcon.state.host_ports())
            raise ValueError(f"there is no host port {body.port!r}; there are {known}")
        if body.host is not None and body.host not in falcon.state.hosts:
            known = ", ".join(falcon.state.hosts)
            raise ValueError(f"the lab has no host {body.host!r}; it has {known}")
        falcon.composer.recable(ports[body.port], body.host)
        return _json(falcon.truth()["cabling"])

    async def _time(self, _request: web.Request) -> web.Response:
        clock = self._simulation.clock
        return _json({"speed": clock.speed, "seconds": clock.now(), "now": clock.timestamp()})

    async def _set_time(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=dict[str, float])
        if not body or not set(body) <= {"speed", "shift"}:
            raise ValueError('the body must be {"speed": simulated seconds in a second} or {"shift": seconds}')
        if "speed" in body:
            self._simulation.clock.set_speed(body["speed"])
        self._simulation.clock.shift += body.get("shift", 0.0)
        return await self._time(request)

    async def _reset(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read() or b"{}", type=ResetRequest)
        await self._simulation.reset(body.arguments)
        certificate = self._simulation.certificate
        return _json(
            {
                "addresses": self._simulation.addresses,
                "fingerprint": certificate.fingerprint,
                "certificate": str(certificate.certificate.resolve()),
            }
        )

    async def _stop(self, _request: web.Request) -> web.Response:
        await self._simulation.stop()
        return web.Response(status=204)

    async def _events(self, request: web.Request) -> web.Response:
        return _json([entry.event_record() for entry in self._falcon(request).events.history])

    async def _add_events(self, request: web.Request) -> web.Response:
        events = self._falcon(request).events
        body = msgspec.json.decode(await request.read(), type=EventRequest)
        if not 1 <= body.count <= MAX_BATCH:
            raise ValueError(f"the count must be between 1 and {MAX_BATCH}")
        for number in range(1, body.count + 1):
            text = body.message.replace("{n}", str(number))
            events.emit(body.message_id, text, str(number), severity=body.severity, origin=body.origin)
        return _json({"events": len(events.history)}, status=201)

    async def _change_log(self, request: web.Request) -> web.Response:
        events = self._falcon(request).events
        change = msgspec.json.decode(await request.read(), type=LogRequest)
        if change.limit is not None:
            events.resize(change.limit)
        if change.clear:
            events.clear()
        if change.restart:
            events.restart_numbering()
        return _json({"entries": len(events.entries)})

    def _host_simulation(self, request: web.Request) -> HostSimulation:
        hosts = self._falcon(request).hosts
        if hosts is None:
            raise HostError("hosts are not simulated: start the simulator with --hosts-root")
        return hosts

    async def _hosts(self, request: web.Request) -> web.Response:
        return _json(self._host_simulation(request).truth())

    async def _processes(self, request: web.Request) -> web.Response:
        found = self._host_simulation(request).processes(request.match_info["host"])
        return _json([_process_data(process) for process in found])

    async def _start_process(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=ProcessRequest)
        return _json(
            _process_data(self._host_simulation(request).start_process(request.match_info["host"], body)), status=201
        )

    async def _end_process(self, request: web.Request) -> web.Response:
        if not self._host_simulation(request).end_process(request.match_info["host"], int(request.match_info["pid"])):
            raise web.HTTPNotFound(text="there is no such simulated process")
        return web.Response(status=204)

    async def _mount(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=MountRequest)
        self._host_simulation(request).mount(request.match_info["host"], body)
        return web.Response(status=204)

    async def _unmount(self, request: web.Request) -> web.Response:
        self._host_simulation(request).unmount(request.match_info["host"], request.match_info["device"])
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


def _process_data(process: DeviceProcess) -> dict[str, Any]:
    return {"pid": process.pid, "address": process.address, **msgspec.to_builtins(process.request)}
