"""The control address: faults, the truth, and the speed of time. Plain HTTP, for this machine alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from simulator.eventcontrol import EventControl
from simulator.faults import Fault, FaultError, FaultRequest
from simulator.hostcontrol import HostControl
from simulator.service import Falcon
from simulator.simulation import Simulation

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CableRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which host port's cable goes to which host of the lab; null pulls it."""

    port: str
    host: str | None


class ResetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Options as on the command line; without them those of before."""

    arguments: list[str] | None = None


class Control:
    """The handlers of the control address; `?chassis=NAME` chooses one of several chassis."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def application(self) -> web.Application:
        """Return the web application."""
        application = web.Application(middlewares=[_explain])
        application.router.add_get("/state", self.state)
        application.router.add_get("/faults", self.faults)
        application.router.add_post("/faults", self.add_fault)
        application.router.add_delete("/faults", self.clear_faults)
        application.router.add_delete("/faults/{fault}", self.remove_fault)
        application.router.add_post("/chassis/{chassis}/cabling", self.recable)
        EventControl(self._of).add_to(application)
        HostControl(self._of).add_to(application)
        application.router.add_get("/time", self.time)
        application.router.add_post("/time", self.set_time)
        application.router.add_post("/reset", self.reset)
        application.router.add_post("/stop", self.stop)
        return application

    def _of(self, request: web.Request) -> Falcon:
        """Return the chassis that a request is about, at the present: what was written before is done by then."""
        name = request.match_info.get("chassis") or request.query.get("chassis")
        known = {falcon.name: falcon for falcon in self._simulation.chassis}
        if not known:
            raise web.HTTPNotFound(text="nothing is played until the next reset")
        if name is not None and name not in known:
            raise web.HTTPNotFound(text=f"there is no chassis {name!r}; there are {', '.join(known)}")
        falcon = self._simulation.chassis[0] if name is None else known[name]
        falcon.advance(at_once=True)
        return falcon

    async def state(self, request: web.Request) -> web.Response:
        """Answer the truth about a chassis."""
        return _json(self._of(request).truth())

    async def faults(self, request: web.Request) -> web.Response:
        """Answer the faults in force."""
        return _json([_shown(fault) for fault in self._of(request).faults.active.values()])

    async def add_fault(self, request: web.Request) -> web.Response:
        """Put a fault in force."""
        falcon = self._of(request)
        wanted = msgspec.json.decode(await request.read(), type=FaultRequest)
        return _json(_shown(falcon.faults.add(wanted)), status=201)

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
        """Move the cable of a host port to a host of the lab, or out of the port, as a person does."""
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
        """Answer the simulated time."""
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
        """Begin anew, and answer where the chassis are now."""
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
        """Play nothing, and answer nobody, until the next reset."""
        await self._simulation.stop()
        return web.Response(status=204)


@web.middleware
async def _explain(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except (FaultError, ValueError, OSError, msgspec.MsgspecError) as error:
        return _json({"error": str(error)}, status=400)


def _shown(fault: Fault) -> dict[str, Any]:
    return {"id": fault.id, **msgspec.to_builtins(fault.request), "left": fault.left}


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
