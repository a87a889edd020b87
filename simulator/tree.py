"""The tree of resources: bodies, read privileges and methods by URI."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from simulator.accounts import Account
from simulator.events import Actor
from simulator.odata import Body, collection

T = TypeVar("T")
# Privileges, of which one is required.
MANAGE = ("ConfigureManager",)
COMPOSE = ("ConfigureComponents",)


@dataclass(frozen=True)
class Upload:
    """A file that was sent: its first bytes, and its size in bytes."""

    head: bytes
    size: int


@dataclass(frozen=True)
class AuthenticatedRequest:
    """A request that passed authentication and its preconditions."""

    account: Account | None
    body: Body
    origin: str = ""
    upload: Upload | None = None

    @property
    def actor(self) -> Actor | None:
        """The account of the request; None where no authentication was required."""
        return Actor(self.account.name, self.origin or "unknown") if self.account is not None else None


@dataclass(frozen=True)
class Reply:
    """A response: status, JSON body (None: no body) and headers."""

    status: int
    body: Body | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[AuthenticatedRequest], Awaitable[Reply]]


@dataclass(frozen=True)
class WriteMethod:
    """A modifying method: the handler, and the privileges, of which one is required."""

    handler: Handler
    privileges: tuple[str, ...] = MANAGE
    is_upload: bool = False  # its body is a file, or a form with one, in place of JSON


@dataclass(frozen=True)
class RawReply:
    """A response that is encoded already: a report, a schema, or the state of a task monitor."""

    content: bytes
    content_type: str = "application/json;charset=utf-8"
    etag: str = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ResourceNode:
    """One URI. `render` returns its body; an action has none and answers GET with 405. It is a 404 unless `exists`."""

    uri: str
    render: Callable[[], Body] | None = None
    writes: Mapping[str, WriteMethod] = field(default_factory=dict)
    raw: Callable[[], RawReply] | None = None
    revision: Callable[[], int] | None = None
    public: bool = False
    exists: Callable[[], bool] = lambda: True

    @property
    def methods(self) -> list[str]:
        """The methods of the resource, for the Allow header."""
        reads = ["GET", "HEAD"] if self.render is not None or self.raw is not None else []
        return reads + sorted(self.writes)

    def etag(self, body: Body) -> str:
        """Return the strong ETag of a body; a revision distinguishes equal contents of different times."""
        return self.etag_of(msgspec.json.encode(body))

    def etag_of(self, content: bytes) -> str:
        """Return the strong ETag of an encoded body."""
        number = self.revision() if self.revision is not None else 0
        return f'"{number}-{zlib.crc32(content):08x}"'


NodeFactory = Callable[[str], ResourceNode | None]


class ResourceTree:
    """All resources of a service: fixed ones by URI, and collections with varying members."""

    def __init__(self) -> None:
        self._fixed: dict[str, ResourceNode] = {}
        self._factories: dict[str, NodeFactory] = {}

    def add(self, node: ResourceNode) -> None:
        """Add a fixed resource."""
        self._fixed[node.uri] = node

    def resource(
        self, uri: str, render: Callable[[], Body], *, exists: Callable[[], bool] = lambda: True, **writes: WriteMethod
    ) -> None:
        """Add a fixed resource with its modifying methods by name."""
        self.add(ResourceNode(uri, render, writes, exists=exists))

    def action(self, uri: str, handler: Handler, privileges: tuple[str, ...] = MANAGE) -> None:
        """Add the target of an action."""
        self.add(ResourceNode(uri, None, {"POST": WriteMethod(handler, privileges)}))

    def collection(
        self,
        uri: str,
        kind: str,
        name: str,
        members: Callable[[], list[str]],
        *,
        exists: Callable[[], bool] = lambda: True,
        **writes: WriteMethod,
    ) -> None:
        """Add a collection of the present members; the specification has members created at `/Members`, too."""
        self.resource(uri, lambda: collection(uri, kind, name, members()), exists=exists, **writes)
        if writes:
            self.add(ResourceNode(f"{uri}/Members", None, writes))

    def objects(
        self,
        uri: str,
        kind: str,
        name: str,
        objects: Callable[[], Mapping[str, T]],
        node: Callable[[str, T], ResourceNode],
        *,
        exists: Callable[[], bool] = lambda: True,
        **writes: WriteMethod,
    ) -> None:
        """Add a collection of varying objects by Id, and their nodes: `node` returns one from its URI and object."""

        def find(key: str) -> ResourceNode | None:
            found = objects().get(key)
            return None if found is None else node(f"{uri}/{key}", found)

        self.collection(uri, kind, name, lambda: [f"{uri}/{key}" for key in objects()], exists=exists, **writes)
        self.members(uri, find)

    def members(self, parent: str, factory: NodeFactory) -> None:
        """Register a function that returns the nodes below a collection by their last segment; None is a 404."""
        self._factories[parent] = factory

    def find(self, uri: str) -> ResourceNode | None:
        """Return the node of a URI without a trailing slash, or None."""
        node = self._fixed.get(uri)
        if node is not None:
            return node if node.exists() else None
        parent, _, last = uri.rpartition("/")
        factory = self._factories.get(parent)
        return factory(last) if factory is not None and last else None
