"""HTTPS server of a chassis: authentication, preconditions, queries, faults of requests, event streams."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import BodyPartReader, hdrs, web
from aiohttp.http_exceptions import BadHttpMethod
from aiohttp.web_protocol import RequestHandler

from simulator import query as queries
from simulator.accounts import Account, forbidden
from simulator.errors import RedfishError, internal_error, not_found, stale_etag, unauthorized
from simulator.events import MAX_STREAMS
from simulator.odata import DMTF, Body, odata_type
from simulator.resources.services import STREAM
from simulator.service import Falcon
from simulator.tree import AuthenticatedRequest, RawReply, Reply, ResourceNode, Upload, WriteMethod

logger = logging.getLogger(__name__)
ADDRESS = "127.0.0.1"
JSON = "application/json;charset=utf-8"
METHODS = ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS")
COMMON = {"OData-Version": "4.0", "Cache-Control": "no-cache"}
HANG_SECONDS = 600.0
HEAD_BYTES = 256
# The name that a BMC entered by its address has for itself.
FOREIGN_ORIGIN = "https://bmc.example"


class _Protocol(RequestHandler):
    """Answers an unknown HTTP method with 501 instead of the library's 400."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if isinstance(exc, BadHttpMethod):
            response = error_response(_unknown_method())
            response.force_close()
            return response
        return super().handle_error(request, status, exc, message)


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Protocol(self, loop=self._loop, **self._kwargs)


class ChassisServer:
    """The HTTPS server of one chassis, which is temporarily down during a reboot."""

    def __init__(self, falcon: Falcon, context: ssl.SSLContext, port: int) -> None:
        self._falcon = falcon
        self._context = context
        self.port = port
        self._server: asyncio.Server | None = None
        self._web: _Server | None = None
        self._returning: asyncio.Task[None] | None = None
        falcon.faults.reboot = self._reboot

    async def start(self) -> None:
        """Listen; port 0 is replaced by a free one."""
        self._web = _Server(self._handle, access_log=None, keepalive_timeout=75)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._web, ADDRESS, self.port, ssl=self._context, reuse_address=True, backlog=128
        )
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and drop all connections."""
        if self._returning is not None:
            self._returning.cancel()
        self._drop()

    def _drop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._web is not None:
            for connection in self._web.connections:
                transport = connection.transport
                if transport is not None:
                    transport.abort()
            self._web = None

    def _reboot(self, seconds: float, keeps_sessions: bool) -> None:
        self._falcon.reboot(keeps_sessions=keeps_sessions)
        # The request of the reboot (Manager.Reset) still gets its response.
        self._returning = asyncio.create_task(self._return_after(seconds))

    async def _return_after(self, seconds: float) -> None:
        await asyncio.sleep(0.05)
        self._drop()
        await asyncio.sleep(seconds)
        await self.start()
        self._falcon.rebooted()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.rstrip("/") == STREAM:
            return await self._answer(request)
        client = request.headers.get(hdrs.USER_AGENT, request.remote or "unknown")
        with self._falcon.traffic.counted(client, request.method):
            return await self._answer(request)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        falcon = self._falcon
        try:
            await self._apply_request_faults(request)
            falcon.advance()
            return await Exchange(falcon, request).respond()
        except RedfishError as error:
            return error_response(error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            return error_response(internal_error("The service failed to answer the request."))

    async def _apply_request_faults(self, request: web.BaseRequest) -> None:
        """Apply the faults of requests to a request."""
        faults, method, path = self._falcon.faults, request.method, request.path
        if not faults.active:
            return
        if faults.take("reset_connections", method, path) is not None:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError
        if (slow := faults.take("slow", method, path)) is not None:
            await asyncio.sleep(slow.delay)
        if (hang := faults.take("hang", method, path)) is not None:
            await asyncio.sleep(hang.seconds or HANG_SECONDS)
        if (broken := faults.take("server_error", method, path)) is not None:
            raise internal_error("The request failed due to an internal service error.", broken.status)


class Exchange:
    """One request and its response."""

    def __init__(self, falcon: Falcon, request: web.BaseRequest) -> None:
        self._falcon = falcon
        self._request = request
        path = unquote(request.rel_url.raw_path)
        self._uri = path.rstrip("/") if len(path) > 1 else path
        self._account: Account | None = None

    async def respond(self) -> web.StreamResponse:
        """Return the response; raises RedfishError for a refusal."""
        request = self._request
        if request.method not in METHODS:
            raise _unknown_method()
        version = request.headers.get("OData-Version")
        if version is not None and version != "4.0":
            raise RedfishError(412, "PreconditionFailed", f"The OData-Version {version} is not supported; 4.0 is.")
        node = self._falcon.tree.find(self._uri)
        self._authenticate(node)
        if self._uri == STREAM and request.method == "GET":
            return await stream_events(self._falcon, request)
        if node is None:
            raise not_found(self._uri)
        allow = {"Allow": ", ".join(node.methods)}
        can_ask = self._falcon.options.allow != "none" and self._falcon.options.dialect != "pnc"
        if request.method == "OPTIONS" and can_ask:
            return web.Response(status=204, headers={**COMMON, **allow})
        if request.method not in node.methods or request.method == "OPTIONS":
            sentence = "The HTTP method is not allowed on this resource."
            raise RedfishError(405, "OperationNotAllowed", sentence, headers=allow if can_ask else {})
        if request.method in ("GET", "HEAD"):
            return self._read(node, allow if self._falcon.options.allow == "all" else {})
        return await self._write(node, node.writes[request.method])

    def _authenticate(self, node: ResourceNode | None) -> None:
        request, accounts = self._request, self._falcon.accounts
        token = request.headers.get("X-Auth-Token")
        basic = request.headers.get(hdrs.AUTHORIZATION)
        if token is not None:
            self._account = accounts.by_token(token)
        elif basic is not None:
            self._account = accounts.by_basic(basic)
        if self._account is not None:
            return
        write = node.writes.get(request.method) if node is not None else None
        if (node is not None and node.public) or (write is not None and not write.privileges):
            return
        raise unauthorized(self._uri, "The request has no valid credentials.", "no valid credentials")

    def _read(self, node: ResourceNode, allow: dict[str, str]) -> web.Response:
        query = queries.parse(self._request.rel_url.query, expand_allowed=self._falcon.options.expand)
        if node.raw is not None and (query.plain or node.render is None):
            return self._raw(node.raw(), allow)
        if node.render is None:
            raise not_found(self._uri)
        body = node.render()
        content = msgspec.json.encode(body)
        etag = node.etag_of(content)
        if etag in _listed(self._request.headers.get(hdrs.IF_NONE_MATCH)):
            return web.Response(status=304, headers={**COMMON, **allow, "ETag": etag})
        if not query.plain or len(body.get("Members", ())) > queries.MAX_PAGE:
            body = queries.apply(body, query, self._render, self._uri)
            content = msgspec.json.encode({**body, "@odata.etag": etag} if "@odata.type" in body else body)
        elif "@odata.type" in body:
            content = content[:-1] + b',"@odata.etag":' + msgspec.json.encode(etag) + b"}"
        headers = {**COMMON, **allow, "ETag": etag, **_schema_header(body), "Content-Type": JSON}
        return web.Response(body=content, headers=headers)

    def _raw(self, raw: RawReply, allow: Mapping[str, str]) -> web.Response:
        headers = {**COMMON, **allow, **raw.headers}
        if raw.etag:
            headers |= {"ETag": raw.etag, **_schema_header({"@odata.type": odata_type("MetricReport")})}
            if raw.etag in _listed(self._request.headers.get(hdrs.IF_NONE_MATCH)):
                return web.Response(status=304, headers=headers)
        headers["Content-Type"] = raw.content_type
        return web.Response(status=raw.status, body=raw.content, headers=headers)

    def _render(self, uri: str) -> Body | None:
        node = self._falcon.tree.find(uri.rstrip("/"))
        if node is None or node.render is None:
            return None
        body = node.render()
        return {**body, "@odata.etag": node.etag(body)}

    async def _write(self, node: ResourceNode, write: WriteMethod) -> web.Response:
        if write.privileges and (self._account is None or not self._account.may(*write.privileges)):
            raise forbidden()
        if self._falcon.hosts is not None:
            self._falcon.hosts.expect_writes()
        body, upload = await self._upload() if write.is_upload else (await self._body(), None)
        self._check_match(node)
        reply = await write.handler(AuthenticatedRequest(self._account, body, self._request.remote or "", upload))
        response = self._reply(node, reply)
        if "Location" in response.headers and self._falcon.faults.is_active("foreign_location"):
            response.headers["Location"] = FOREIGN_ORIGIN + response.headers["Location"]
        return response

    async def _upload(self) -> tuple[Body, Upload]:
        """Read a file to its end, of which the first bytes and the size are kept, and the parameters of a form."""
        parameters: Body = {}
        if not self._request.content_type.startswith("multipart/"):
            return parameters, await _read_file(self._request.content.iter_any())
        upload = Upload(b"", 0)
        async for part in await self._request.multipart():
            if isinstance(part, BodyPartReader) and part.name == "UpdateParameters":
                parameters = _decoded(await part.read())
            elif isinstance(part, BodyPartReader):
                upload = await _read_file(_chunks(part))
        return parameters, upload

    async def _body(self) -> Body:
        if self._request.method == "DELETE":
            return {}
        content = await self._request.read()
        if not content:
            return {}
        media = self._request.headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()
        if media != "application/json":
            raise RedfishError(415, "UnsupportedMediaType", "The body of a request must be application/json.")
        body = _decoded(content)
        return {key: value for key, value in body.items() if key not in ("@odata.id", "@odata.type", "@odata.etag")}

    def _check_match(self, node: ResourceNode) -> None:
        etags = _listed(self._request.headers.get(hdrs.IF_MATCH))
        if not etags or "*" in etags or node.render is None:
            return
        if node.etag(node.render()) not in etags:
            sentence = "The ETag supplied did not match the ETag required to change this resource."
            raise stale_etag(412, "PreconditionFailed", sentence)

    def _reply(self, node: ResourceNode, reply: Reply) -> web.Response:
        if reply.body is None:
            return web.Response(status=reply.status, headers={**COMMON, **reply.headers})
        headers, body = dict(reply.headers), reply.body
        if reply.status == 200 and node.render is not None:
            headers["ETag"] = node.etag(node.render())
            body = {**body, "@odata.etag": headers["ETag"]}
        return json_response(reply.status, body, {**headers, **_schema_header(body)})


def _decoded(content: bytes) -> Body:
    try:
        body = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise RedfishError(400, "MalformedJSON", f"The request body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RedfishError(400, "UnrecognizedRequestBody", "The request body is not a JSON object.")
    return body


async def _chunks(part: BodyPartReader) -> AsyncIterator[bytes]:
    while chunk := await part.read_chunk():
        yield chunk


async def _read_file(chunks: AsyncIterator[bytes]) -> Upload:
    head, size = b"", 0
    async for chunk in chunks:
        head, size = (head + chunk)[:HEAD_BYTES], size + len(chunk)
    return Upload(head, size)


def _schema_header(body: Body) -> dict[str, str]:
    """Return the header that names the JSON schema of a body; there is none for bodies that are no resources."""
    if "@odata.type" not in body:
        return {}
    namespace = body["@odata.type"].lstrip("#").rpartition(".")[0]
    return {"Link": f"<{DMTF}/{namespace}.json>; rel=describedby"}


def _listed(header: str | None) -> set[str]:
    return {part.strip().removeprefix("W/") for part in header.split(",")} if header else set()


def _unknown_method() -> RedfishError:
    return RedfishError(501, "OperationNotAllowed", "The service does not know this HTTP method.")


def json_response(status: int, body: Any, headers: Mapping[str, str]) -> web.Response:
    """Return a JSON response with the common headers."""
    return web.Response(
        status=status, body=msgspec.json.encode(body), headers={**COMMON, **headers, "Content-Type": JSON}
    )


def error_response(error: RedfishError) -> web.Response:
    """Return the response of a refusal."""
    return json_response(error.status, error.body(), error.headers)


KEEP_ALIVE_SECONDS = 15.0


async def stream_events(falcon: Falcon, request: web.BaseRequest) -> web.StreamResponse:
    """Send all new events until the client disconnects, or the subscription is deleted.

    Refuses a client that does not accept text/event-stream (406) and too many streams (503).
    """
    accept = request.headers.get("Accept", "*/*")
    if not any(kind in accept for kind in ("text/event-stream", "text/*", "*/*")):
        raise RedfishError(406, "HeaderInvalid", "The event stream is sent as text/event-stream alone.")
    if falcon.faults.is_active("event_stream_missing"):
        raise RedfishError(404, "ResourceMissingAtURI", "There is no event stream.")
    if falcon.events.streams >= MAX_STREAMS:
        raise RedfishError(503, "EventSubscriptionLimitExceeded", "There are too many event streams.")
    if any(name.startswith("$") for name in request.rel_url.query):
        raise RedfishError(501, "QueryParameterNotSupported", "The event stream takes no filter.")
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream;charset=utf-8", "Cache-Control": "no-cache", "OData-Version": "4.0"}
    )
    subscription = falcon.events.subscribe(destination=None)
    subscription.is_connected = lambda: request.transport is not None and not request.transport.is_closing()
    try:
        await response.prepare(request)
        await response.write(b": the stream is open\n\n")
        while True:
            try:
                entry = await asyncio.wait_for(subscription.queue.get(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                await response.write(b": still here\n\n")
                continue
            if entry is None:
                break
            named = not falcon.faults.is_active("events_without_id")
            data = entry.payload(subscription.context, named=named)
            line = b"id: %d\n" % entry.number if named else b""
            message = b"%bdata: %b\n\n" % (line, data)
            if falcon.faults.take("event_stream_cut") is not None:
                await response.write(message[: len(message) // 2])
                break
            await response.write(message)
        response.force_close()
    except (ConnectionError, OSError):
        pass
    finally:
        falcon.events.unsubscribe(subscription.id)
    return response
