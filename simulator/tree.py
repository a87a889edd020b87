"""The tree of resources: bodies, read privileges and methods by URI."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from simulator.accounts import Account
from simulator.errors import Body
from simulator.events import Actor


@dataclass(frozen=True)
class AuthenticatedRequest:
    """A request that passed authentication and its preconditions."""

    uri: str
    account: Account | None
    body: Body
    origin: str = ""

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
    """A modifying method: the privileges, of which one is required, and the handler."""

    handler: Handler
    privileges: tuple[str, ...] = ("ConfigureManager",)


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
    """One URI. `render` returns its body; an action has none and answers GET with 405."""

    uri: str
    render: Callable[[], Body] | None = None
    writes: Mapping[str, WriteMethod] = field(default_factory=dict)
    raw: Callable[[], RawReply] | None = None
    revision: Callable[[], int] | None = None
    public: bool = False

    @property
    def methods(self) -> list[str]:
        """The methods of the resource, for the Allow header."""
        reads = ["GET", "HEAD"] if self.render is not None or self.raw is not None else []
        return reads + sorted(self.writes)

    def etag(self, body: Body) -> str:
        """Return the strong ETag of a body; a revision distinguishes equal contents of different times."""
        checksum = zlib.crc32(msgspec.json.encode(body))
        number = self.revision() if self.revision is not None else 0
        return f'"{number}-{checksum:08x}"'


Members = Callable[[], list[str]]
NodeFactory = Callable[[str], ResourceNode | None]


class ResourceTree:
    """All resources of a service: fixed ones by URI, and collections with varying members."""

    def __init__(self) -> None:
        self._fixed: dict[str, ResourceNode] = {}
        self._makers: dict[str, NodeFactory] = {}

    def add(self, node: ResourceNode) -> None:
        """Add a fixed resource."""
        self._fixed[node.uri] = node

    def resource(self, uri: str, render: Callable[[], Body]) -> None:
        """Add a read-only fixed resource."""
        self.add(ResourceNode(uri, render))

    def members(self, parent: str, maker: NodeFactory) -> None:
        """Register a function that returns the nodes below a collection by their last segment; None is a 404."""
        self._makers[parent] = maker

    def find(self, uri: str) -> ResourceNode | None:
        """Return the node of a URI without a trailing slash, or None."""
        node = self._fixed.get(uri)
        if node is not None:
            return node
        parent, _, last = uri.rpartition("/")
        maker = self._makers.get(parent)
        return maker(last) if maker is not None and last else None

    def uris(self) -> list[str]:
        """Return the URIs of all fixed resources."""
        return list(self._fixed)


def link(uri: str) -> Body:
    """Return a reference to a resource."""
    return {"@odata.id": uri}


def links(uris: list[str]) -> list[Body]:
    """Return references to resources."""
    return [{"@odata.id": uri} for uri in uris]


def collection(uri: str, kind: str, name: str, members: list[str]) -> Body:
    """Return a collection resource of a kind, such as `Chassis`."""
    return {
        "@odata.id": uri,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Name": name,
        "Members": links(members),
        "Members@odata.count": len(members),
    }


def add_references(body: Body, **arrays: list[str]) -> Body:
    """Add arrays of references with their counts to an object and return it."""
    for name, uris in arrays.items():
        body[name] = links(uris)
        body[f"{name}@odata.count"] = len(uris)
    return body
