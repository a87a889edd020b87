"""`python -m tests.telemetry.polling.zoo FOLDER KIND...`: hostile BMCs over HTTPS, one a port, in one process.

It prints a line of JSON: the URL of each, in the order of their kinds, and the fingerprint of their certificate.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from simulator.certificates import server_certificate

ROOT = "/redfish/v1"
SCRIPT = "<script>alert('bmc')</script>\"'><img src=x onerror=alert(1)>"
SLOW_SECONDS = 3.0
READINGS = 200_000

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def link(uri: str) -> dict[str, str]:
    return {"@odata.id": uri}


def resource(uri: str, kind: str = "Chassis", **more: Any) -> dict[str, Any]:
    name = uri.rpartition("/")[2]
    return {"@odata.id": uri, "@odata.type": f"#{kind}.v1_0_0.{kind}", "Id": name, "Name": name, **more}


def collection(uri: str, kind: str, *members: str, **more: Any) -> dict[str, Any]:
    return resource(
        uri, f"{kind}Collection", Members=[link(member) for member in members], **{"Members@odata.count": len(members)}
    ) | {"@odata.type": f"#{kind}Collection.{kind}Collection", **more}


def root(**more: Any) -> dict[str, Any]:
    return resource(
        ROOT, "ServiceRoot", RedfishVersion="1.20.0", Chassis=link(f"{ROOT}/Chassis"), **more
    )  # fmt: skip


def tree(**more: Any) -> dict[str, Any]:
    """Return a small good service, with other or further answers by path."""
    return {
        ROOT: root(**more.pop("root", {})),
        f"{ROOT}/Chassis": collection(f"{ROOT}/Chassis", "Chassis", f"{ROOT}/Chassis/1"),
        f"{ROOT}/Chassis/1": resource(f"{ROOT}/Chassis/1", ChassisType="Enclosure"),
        **more.pop("at", {}),
    }


def raw(body: bytes, status: int = 200, **headers: str) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def served(routes: dict[str, Any]) -> Answer:
    """Return an answer by path: a body, bytes, or a function of the request; 404 for all else."""

    async def answer(request: web.Request) -> web.StreamResponse:
        found = routes.get(request.path.rstrip("/"))
        if callable(found):
            found = await found(request)
        if found is None:
            return raw(b'{"error": {"message": "no such resource"}}', 404)
        if isinstance(found, web.StreamResponse):
            return found
        return raw(found if isinstance(found, bytes) else json.dumps(found).encode())

    return answer


def bomb() -> Answer:
    """31 MB of empty objects."""
    body = b'{"Members":[' + b"{}," * (31 * 2**20 // 3) + b"{}]}"
    return served(tree(at={f"{ROOT}/Chassis": body}))


def packed_bomb() -> Answer:
    """A quarter of a gigabyte of zeros in as many kilobytes."""
    body = gzip.compress(b'{"Name":"' + b"0" * 2**28 + b'"}', 9)

    async def packed(_request: web.Request) -> web.StreamResponse:
        answer = raw(body)
        answer.headers["Content-Encoding"] = "gzip"
        return answer

    return served(tree(at={f"{ROOT}/Chassis": packed}))


def nested() -> Answer:
    return served(tree(at={f"{ROOT}/Chassis": b'{"Members":[' * 100_000 + b"]}" * 100_000}))


def endless() -> Answer:
    """Each resource links to two more."""

    async def answer(request: web.Request) -> web.StreamResponse:
        uri = request.path.rstrip("/")
        if uri in routes:
            return raw(json.dumps(routes[uri]).encode())
        more = [link(f"{uri[:1000]}{step}") for step in ("/a", "/b")]
        return raw(json.dumps(resource(uri, Links={"Contains": more})).encode())

    routes = tree()
    routes[f"{ROOT}/Chassis/1"]["Links"] = {"Contains": [link(f"{ROOT}/Chassis/1/a")]}
    return answer


def endless_pages() -> Answer:
    numbers = itertools.count(1)

    async def page(_request: web.Request) -> web.StreamResponse:
        number = next(numbers)
        members = [f"{ROOT}/Chassis/{number}-{one}" for one in range(1000)]
        more = {"Members@odata.nextLink": f"{ROOT}/Chassis?page={number}"}
        return raw(json.dumps(collection(f"{ROOT}/Chassis", "Chassis", *members, **more)).encode())

    return served(tree(at={f"{ROOT}/Chassis": page}))


def hungry() -> Answer:
    """Each resource is large, and links to two more of its kind."""
    filling = {f"Property{number}": f"value {number}" for number in range(50_000)}

    async def answer(request: web.Request) -> web.StreamResponse:
        uri = request.path.rstrip("/")
        if uri in {ROOT, f"{ROOT}/Chassis"}:
            return raw(json.dumps(routes[uri]).encode())
        more = [link(f"{uri[:1000]}{step}") for step in ("a", "b")]
        return raw(json.dumps(resource(uri, Links={"Contains": more}, Oem=filling)).encode())

    routes = tree()
    return answer


def slow() -> Answer:
    """Three seconds for each of three hundred resources."""
    uris = [f"{ROOT}/Chassis/{number}" for number in range(300)]
    answer = served(
        tree(at={f"{ROOT}/Chassis": collection(f"{ROOT}/Chassis", "Chassis", *uris)} | {u: resource(u) for u in uris})
    )

    async def slowly(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(SLOW_SECONDS)
        return await answer(request)

    return slowly


def silent() -> Answer:
    async def never(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        return raw(b"")

    return never


def dripping() -> Answer:
    """An answer without end, a byte at a time."""

    async def drip(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b" ")
            await asyncio.sleep(0.1)

    return drip


def nonsense() -> Answer:
    async def page(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html><body>It works!</body></html>", content_type="text/html")

    return page


def circling() -> Answer:
    async def on(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(f"{request.path}/")

    return on


def leading_away() -> Answer:
    async def away(_request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect("http://169.254.169.254/latest/meta-data/")

    return served(tree(at={f"{ROOT}/Chassis": away}))


def lying() -> Answer:
    """Wrong types, wrong counts, and addresses of others."""
    return served(
        tree(
            at={
                f"{ROOT}/Chassis": collection(f"{ROOT}/Chassis", "Chassis", f"{ROOT}/Chassis/1", f"{ROOT}/Chassis/2"),
                f"{ROOT}/Chassis/1": resource(
                    f"{ROOT}/Systems/none", Name=[1], Status="OK", PCIeDevices=link(f"{ROOT}/x")
                ),
                f"{ROOT}/Chassis/2": [{"Id": None}],
            }
        )
    )


def scripting() -> Answer:
    device = f"{ROOT}/Chassis/1/PCIeDevices/1"
    texts = {"Name": SCRIPT, "Model": SCRIPT, "Manufacturer": SCRIPT, "SerialNumber": SCRIPT}
    devices = f"{ROOT}/Chassis/1/PCIeDevices"
    return served(
        tree(
            at={
                f"{ROOT}/Chassis/1": resource(f"{ROOT}/Chassis/1", PCIeDevices=link(devices)) | texts,
                devices: collection(devices, "PCIeDevice", device, f"{ROOT}/Chassis/{SCRIPT}"),
                device: resource(device, "PCIeDevice") | texts,
            }
        )
    )


def talkative() -> Answer:
    """A report of 200,000 readings."""
    service, reports = f"{ROOT}/TelemetryService", f"{ROOT}/TelemetryService/MetricReports"
    values = [
        {"MetricProperty": f"{ROOT}/Chassis/1/Sensors/{number}#/Reading", "MetricValue": f"{number}"}
        for number in range(READINGS)
    ]
    return served(
        tree(
            root={"TelemetryService": link(service)},
            at={
                service: resource(service, "TelemetryService", MetricReports=link(reports)),
                reports: collection(reports, "MetricReport", f"{reports}/all"),
                f"{reports}/all": json.dumps(resource(f"{reports}/all", "MetricReport", MetricValues=values)).encode(),
            },
        )
    )


def hanging_up() -> Answer:
    async def halfway(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "1000000"})
        await answer.prepare(request)
        await answer.write(b'{"Members":[')
        if request.transport is not None:
            request.transport.close()
        return answer

    return served(tree(at={f"{ROOT}/Chassis": halfway}))


def faulty() -> Answer:
    """Its faults come with large bodies."""
    body = json.dumps(resource(f"{ROOT}/Chassis", Oem={f"p{number}": number for number in range(100_000)})).encode()

    async def fault(_request: web.Request) -> web.StreamResponse:
        return raw(body, 500)

    return served(tree(at={f"{ROOT}/Chassis": fault}))


def forgetful() -> Answer:
    """Each session is refused right after it was created."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.rstrip("/") == ROOT:
            return raw(json.dumps(root()).encode())
        if request.method == "POST":
            return raw(b"{}", 201, **{"X-Auth-Token": "t", "Location": f"{ROOT}/SessionService/Sessions/1"})
        return raw(b"{}", 401)

    return answer


def flooding() -> Answer:
    """An event stream that sends as fast as it can, and never an empty line."""
    service = f"{ROOT}/EventService"

    async def stream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        while True:
            await answer.write(b"data: " + b"x" * 60_000 + b"\n")

    events = resource(service, "EventService", ServerSentEventUri=f"{service}/SSE")
    return served(tree(root={"EventService": link(service)}, at={service: events, f"{service}/SSE": stream}))


def logging_without_end() -> Answer:
    """A log whose pages never end."""
    logs = f"{ROOT}/Chassis/1/LogServices"
    numbers = itertools.count(1)

    async def page(_request: web.Request) -> web.StreamResponse:
        number = next(numbers)
        entries = [
            resource(f"{logs}/1/Entries/{number}-{one}", "LogEntry", Message="again", Created="2026-01-01T00:00:00Z")
            for one in range(500)
        ]
        more = {"Members": entries, "Members@odata.nextLink": f"{logs}/1/Entries?page={number}"}
        return raw(json.dumps(collection(f"{logs}/1/Entries", "LogEntry") | more).encode())

    return served(
        tree(
            at={
                f"{ROOT}/Chassis/1": resource(f"{ROOT}/Chassis/1", LogServices=link(logs)),
                logs: collection(logs, "LogService", f"{logs}/1"),
                f"{logs}/1": resource(f"{logs}/1", "LogService", Entries=link(f"{logs}/1/Entries")),
                f"{logs}/1/Entries": page,
            }
        )
    )


# What its page says of each; a part of it.
ANIMALS: dict[str, tuple[Callable[[], Answer], str]] = {
    "bomb": (bomb, "answered with more than 500000 values"),
    "packed bomb": (packed_bomb, "sent an answer larger than 32 MB"),
    "nested": (nested, "nested more than 64 deep"),
    "endless": (endless, "resources"),
    "endless pages": (endless_pages, "resources"),
    "hungry": (hungry, "MB of memory that inventories may have"),
    "slow": (slow, "resources"),
    "silent": (silent, "did not answer in time"),
    "dripping": (dripping, "did not answer in time"),
    "nonsense": (nonsense, "not as a Redfish service"),
    "circling": (circling, "redirects in a circle"),
    "leading away": (leading_away, "a link to another address (169.254.169.254)"),
    "lying": (lying, "JSON that is not an object"),
    "scripting": (scripting, "&lt;script&gt;alert"),
    "talkative": (talkative, "It reports 200000 readings; the first 20000 are read."),
    "hanging up": (hanging_up, "broke the connection before its answer was complete"),
    "faulty": (faulty, "answered 500"),
    "forgetful": (forgetful, "answered 401"),
    "flooding": (flooding, "The event stream sent an event without end."),
    "logging": (logging_without_end, "A log has more than 20000 entries; the last are read."),
}


async def keep(folder: Path, kinds: list[str]) -> None:
    """Serve animals until the process ends."""
    certificate = server_certificate(folder)
    urls = []
    for kind in kinds:
        application = web.Application(client_max_size=2**20)
        application.router.add_route("*", "/{path:.*}", ANIMALS[kind][0]())
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate.context())
        await site.start()
        urls.append(f"https://127.0.0.1:{runner.addresses[0][1]}")
    print(json.dumps({"urls": urls, "fingerprint": certificate.fingerprint}), flush=True)  # noqa: T201 - its output
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(keep(Path(sys.argv[1]), sys.argv[2:]))
