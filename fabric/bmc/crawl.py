"""A walk of a Redfish tree: every link of the service is followed, each resource read once; no bad response ends it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
import zstandard

from fabric.bmc.client import BmcClient
from fabric.bmc.errors import (
    BmcError,
    ForeignLink,
    Malformed,
    NotRedfish,
    RequestRefused,
    ServerFault,
    SignInRefused,
    TimedOut,
    Unreachable,
)
from fabric.bmc.expansion import (
    ONE_LEVEL,
    are_distinct_members,
    expand_query,
    has_all_members,
    is_embedded,
    is_included,
    most_levels,
)
from fabric.bmc.json_bounds import count_values
from fabric.bmc.transport import BmcResponse, error_sentence
from fabric.bmc.types import InventoryProblem, ProblemKind
from fabric.bmc.values import (
    EXPANDABLE_LEVELS,
    NON_INVENTORY_SEGMENTS,
    JsonObject,
    declared_type,
    expandable_levels,
    is_bounded,
    is_expandable,
    iter_links,
    links,
    normalize_uri,
    resource_type,
    text,
)
from fabric.bmc.walk_turns import LARGE_WALK, SLOW_SECONDS, TURN_SECONDS, MemoryShare, WalkPace, WalkTurns

ROOT_URI = "/redfish/v1"
MAX_RESOURCES = 50_000
MAX_PROBLEMS = 1000
# Memory of a value or name beside its bytes; a walk is bounded by that of all its resources (WalkTurns.grant).
VALUE_BYTES = 100
WALK_SECONDS = 60.0  # of turns, after which a walk returns with what it has; the next call goes on
LARGE_PAUSE = 0.02  # between requests of a large walk: the processor is for the readings of others
# So many timeouts or lost connections in a row mean that the BMC is unreachable, not that a resource is bad.
MAX_FAILURES_IN_A_ROW = 8


@dataclass(slots=True)
class CrawledResource:
    """One resource as it was read: `uri` is the requested one, whatever its own @odata.id claims."""

    uri: str
    kind: str
    body: JsonObject
    etag: str


class Crawl:
    """The resources found by a walk; `walk` adds those that can be reached from given links.

    It takes its turns among those of other BMCs, and stops at bounds of time, memory and resources: a problem of the
    service root says so.
    """

    def __init__(
        self,
        bmc: BmcClient,
        *,
        everything: bool,
        at_a_time: int = 0,
        turns: WalkTurns | None = None,
        share: MemoryShare | None = None,
        pace: WalkPace | None = None,
    ) -> None:
        self.found: dict[str, CrawledResource] = {}
        self.problems: dict[str, InventoryProblem] = {}
        # The requests so far, until somebody clears them, and the digests of the responses: 0 for unusable ones.
        self.digests: dict[str, int] = {}
        self.expands = ""  # the query that expands a collection's members, '' where the service offers none
        self.most_levels = 1  # of one answer: members, and what is below them
        self.pace = pace or WalkPace()
        self._turns = turns or WalkTurns()
        self._share = share or MemoryShare()
        self._turn_ends = 0.0  # monotonic s
        self._sizes: dict[str, int] = {}  # of the responses in memory, bytes of objects
        self._size = 0  # of all of them
        self._is_late = False  # the last walk ended for want of time
        self._bmc = bmc
        self._everything = everything
        self._at_a_time = at_a_time or bmc.at_a_time
        self._known: set[str] = set()
        self._pages: defaultdict[str, set[str]] = defaultdict(set)  # of collections: their further pages
        self._pending: set[str] = set()
        self._collections: deque[tuple[str, str, str]] = deque()
        self._others: deque[tuple[str, str, str]] = deque()
        self._working = 0
        self._lost_in_a_row = 0
        self._fatal: BmcError | None = None
        self._progress = asyncio.Condition()
        self._folded = b""

    async def _read_root(self) -> None:
        root = await self._timed(self._bmc.service_root())
        if self.pace.is_lost:
            self.pace.is_lost, self.pace.requests, self.pace.seconds = False, 0, 0.0  # what was is past
        self._known.add(ROOT_URI)
        self.expands = expand_query(root.body)
        self.most_levels = most_levels(root.body) if ONE_LEVEL in self.expands else 1
        self._keep(ROOT_URI, root.body, root.etag, listed_by="")

    @property
    def remains(self) -> bool:
        """Whether the last walk left known resources unread, which the next one reads."""
        return bool(self._pending)

    def pack(self) -> None:
        """Compress the resources until `unpack`: 30 KB instead of 1.4 MB, and no work for the garbage collector."""
        found = [(each.uri, each.kind, each.etag, each.body) for each in self.found.values()]
        packed = zstandard.compress(msgspec.json.encode((found, list(self._known))), 1)
        self._folded = bytes(memoryview(packed))  # its own memory is that of the worst case
        self.found, self._known = {}, set()

    def unpack(self) -> None:
        """Decompress the resources; harmless where they are not compressed."""
        if self._folded:
            found, known = msgspec.json.decode(zstandard.decompress(self._folded))
            self.found = {uri: CrawledResource(uri, kind, body, etag) for uri, kind, etag, body in found}
            self._known = set(known)
            self._folded = b""

    async def walk(self, *, seconds: float = WALK_SECONDS, from_root: bool = False) -> None:
        """Follow every link not yet followed, for at most `seconds` of turns, where `from_root` from the service root.

        The root is read without authentication, and without a turn if the BMC could not be reached the last time.
        Raises SignInRefused, Unreachable or TimedOut once the BMC is unreachable, and as `service_root` does.
        """
        if self._is_late:
            self.problems.pop(ROOT_URI, None)
        self._is_late = False
        self.pace.age()
        if from_root:
            self.pace.read = self.pace.known = 0
        if from_root and self.pace.is_lost:
            await self._read_root()
            from_root = False
        while (from_root or self.remains) and seconds > 0:
            async with self._turns.turn(self.pace) as turn:
                begun = time.monotonic()
                if from_root:
                    await self._read_root()
                    from_root = False
                    if time.monotonic() - begun < SLOW_SECONDS:
                        turn.lengthen(TURN_SECONDS)
                self._turn_ends = begun + min(turn.seconds, seconds)
                await self._take_turn()
                seconds -= time.monotonic() - begun
            if self._fatal is not None:
                raise self._fatal
        if self.remains:
            self._is_late = True
            self._add_limit(f"{len(self.found)} of about {len(self._known)} resources were read so far.")

    async def _take_turn(self) -> None:
        workers = [asyncio.create_task(self._work()) for _ in range(self._at_a_time)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()

    def _add_limit(self, sentence: str) -> None:
        self._add_problem(ROOT_URI, ProblemKind.INCOMPLETE, sentence, "")

    def reread(self, uri: str) -> None:
        """Queue a resource for another read; its previous content no longer counts."""
        collection = self.found.get(uri.rsplit("/", 1)[0])
        lister = declared_type(collection.body) if collection else ""
        for page in (uri, *self._pages.pop(uri, ())):
            self.mark_unread(page)
        self._reach(uri, referrer="", listed_by=lister)

    def pages_of(self, uri: str) -> list[str]:
        """Return the further pages of a collection that were read."""
        return [page for page in self._pages.get(uri, ()) if page in self.found]

    def mark_unread(self, uri: str) -> None:
        """Mark a member as unread until its collection, which is read again, lists it."""
        self._size -= self._sizes.pop(uri, 0)
        self.found.pop(uri, None)
        self.problems.pop(uri, None)
        self._known.discard(uri)

    def discard_below(self, gone: Collection[str]) -> None:
        """Remove everything below resources that no longer exist."""
        for known in list(self._known) if gone else ():
            above = known
            while above := above.rpartition("/")[0]:
                if above in gone:
                    self.mark_unread(known)
                    break

    async def _work(self) -> None:
        is_over = False
        while True:
            async with self._progress:
                while not (self._collections or self._others) and self._working and self._fatal is None:
                    await self._progress.wait()
                if is_over or self._fatal is not None or not (self._collections or self._others):
                    self._progress.notify_all()
                    return
                # Collections first: with $expand one of them answers many links.
                uri, referrer, listed_by = (self._collections or self._others).popleft()
                self._working += 1
            try:
                await self._read(uri, referrer, listed_by)
                self.pace.read, self.pace.known = len(self.found), len(self._known)
                is_over = time.monotonic() >= self._turn_ends
                if self.pace.read > LARGE_WALK:
                    await asyncio.sleep(LARGE_PAUSE)
            finally:
                async with self._progress:
                    self._working -= 1
                    self._progress.notify_all()

    async def _read(self, uri: str, referrer: str, listed_by: str) -> None:
        # An expanded collection may have included it in the meantime.
        if uri not in self._pending:
            return
        self._pending.discard(uri)
        try:
            answer = await self._get(uri)
        except (Unreachable, TimedOut) as error:
            self._note(uri, ProblemKind.UNREACHABLE, error, referrer)
            self._lost_in_a_row += 1
            if self._lost_in_a_row >= MAX_FAILURES_IN_A_ROW:
                self._fatal = error
            return
        except (SignInRefused, ServerFault, RequestRefused, ForeignLink, Malformed, NotRedfish) as error:
            self._note_failure(uri, error, referrer, listed_by)
        else:
            if self._has_room(uri, answer):
                self._keep(uri, answer.body, answer.etag, listed_by)
        self._lost_in_a_row = 0

    def _note_failure(self, uri: str, error: BmcError, referrer: str, listed_by: str) -> None:
        match error:
            case SignInRefused() if self._bmc.signs_in:
                self._fatal = error
            case SignInRefused():  # without credentials, a protected resource is a problem like others
                self._note(uri, ProblemKind.REFUSED, error, referrer)
            case ServerFault():
                self._note(uri, ProblemKind.SERVER_ERROR, error, referrer)
                if {"@odata.type", "Id", "Name", "Members"} & error.body.keys():
                    raw = msgspec.json.encode(error.body)
                    values = count_values(raw, where=uri)
                    answer = BmcResponse(status=500, headers={}, body=error.body, size=len(raw), values=values)
                    if self._has_room(uri, answer):
                        self._keep(uri, answer.body, "", listed_by)
            case RequestRefused():
                kind = ProblemKind.REFUSED if error.answered in {401, 403} else ProblemKind.DEAD_LINK
                self._note(uri, kind, error, referrer)
            case ForeignLink():
                self._note(uri, ProblemKind.FOREIGN_LINK, error, referrer)
            case _:
                self._note(uri, ProblemKind.MALFORMED, error, referrer)
                if listed_by == "MetricReportCollection":
                    # One with too many values for a walk is read in part each second.
                    self.found[uri] = CrawledResource(uri, "MetricReport", {}, "")

    async def _request(self, uri: str) -> BmcResponse:
        self.digests[uri] = 0
        answer = await self._timed(self._bmc.get(uri, is_repeated=True))
        self.digests[uri] = answer.digest
        if not is_resource(answer.body):
            raise not_a_resource(uri, answer)
        return answer

    async def _timed(self, request: Awaitable[BmcResponse]) -> BmcResponse:
        begun = time.monotonic()
        try:
            return await request
        finally:
            self.pace.requests += 1
            self.pace.seconds += time.monotonic() - begun

    def _has_room(self, uri: str, answer: BmcResponse) -> bool:
        """Return whether memory is left for a response; else the walk ends with what it has."""
        own = answer.size + VALUE_BYTES * answer.values
        size = self._size + own - self._sizes.get(uri, 0)
        if self._turns.grant(self._share, size):
            self._sizes[uri], self._size = own, size
            return True
        read, known = len(self.found), len(self._known)
        self._add_limit(
            f"{read} of about {known} resources were read: with the others it needs more than the {size >> 20} MB of "
            "memory that inventories may have."
        )
        self._pending.clear()
        self._collections.clear()
        self._others.clear()
        return False

    async def _get(self, uri: str) -> BmcResponse:
        if not self.expands or "?" in uri or not is_expandable(uri):
            return await self._request(uri)
        try:
            answer = await self._expanded(uri)
        except (ServerFault, RequestRefused, Malformed):
            answer = await self._request(uri)
            self.expands = ""
            return answer
        members = answer.body.get("Members")
        if isinstance(members, list) and members:
            if not any(is_embedded(member) for member in members):
                self.expands = ""
            elif not are_distinct_members(uri, members):
                return await self._request(uri)
        return answer

    async def _expanded(self, uri: str) -> BmcResponse:
        """Return a collection with its members, and with what is below them as far as the service bears it."""
        shallow = f"{uri}?{self.expands}"
        levels = min(expandable_levels(uri), self.most_levels)
        deep = shallow.replace(ONE_LEVEL, f"$levels={levels}")
        if deep == shallow:
            return await self._request(shallow)
        # Some services break the connection, leave members out or the members' contents where it is too much for them.
        with contextlib.suppress(ServerFault, RequestRefused, Malformed, TimedOut, Unreachable):
            answer = await self._request(deep)
            members = answer.body.get("Members")
            if has_all_members(answer.body) and (not members or any(map(is_embedded, members))):
                return answer
        answer = await self._request(shallow)
        self.most_levels = 1
        return answer

    def _keep(self, uri: str, body: JsonObject, etag: str, listed_by: str) -> None:
        body = self._keep_included(uri, body)
        self.found[uri] = CrawledResource(uri, resource_type(uri, body, listed_by), body, etag)
        lister = declared_type(body)
        members = body.get("Members")
        own: set[str] = set()
        rest: list[Any] = [body]  # whose links are still to be followed
        if isinstance(members, list):
            own = {normalize_uri(target) for target in links(body, "Members")}
            rest = [{name: value for name, value in body.items() if name != "Members"}]
            for member in members:
                # A log entry is always complete.
                is_complete = is_embedded(member) and (self.expands or declared_type(member) == "LogEntry")
                if not (is_complete and self._keep_member(uri, member, lister)):
                    rest.append(member)
        elif "Members@odata.count" in body or lister.endswith("Collection"):
            self._add_problem(uri, ProblemKind.MALFORMED, f"{uri} is a collection without a list of members.", "")
        for target in iter_links(rest):
            if isinstance(target, str):
                member = normalize_uri(target) in own
                self._reach(target, referrer=uri, listed_by=lister if member else "")
            else:
                self._add_problem(uri, ProblemKind.MALFORMED, f"{uri} has a link that is not a text.", "")

    def _keep_included(self, uri: str, body: JsonObject) -> JsonObject:
        """Keep the resources below one that its answer includes; returns its body with references to them."""
        if self.most_levels < 2 or EXPANDABLE_LEVELS.keys().isdisjoint(uri.split("/")):
            return body
        references = {}
        for name, value in body.items():
            parts = value if isinstance(value, list) else [value]
            if name != "Members" and parts and all(is_included(uri, part) for part in parts):
                kept = [
                    {"@odata.id": part["@odata.id"]} if self._keep_member(uri, part, "") else part for part in parts
                ]
                references[name] = kept if isinstance(value, list) else kept[0]
        return {**body, **references} if references else body

    def _keep_member(self, collection: str, member: dict[str, Any], lister: str) -> bool:
        """Keep a member that its collection includes; returns whether its links are followed."""
        uri = normalize_uri(member["@odata.id"])
        # One that is not so is a problem of the collection, among whose links it is too.
        is_good = is_bounded(uri) and "/.." not in unquote(uri) and self._allowed(uri)
        if is_good and uri != collection and uri not in self.found and not self._is_full():
            self._known.add(uri)
            self._pending.discard(uri)
            self._keep(uri, member, text(member, "@odata.etag"), lister)
            return True
        return False

    def _allowed(self, uri: str) -> bool:
        return uri.startswith("/redfish/") and (self._everything or NON_INVENTORY_SEGMENTS.isdisjoint(uri.split("/")))

    def _reach(self, target: str, *, referrer: str, listed_by: str) -> None:
        """Queue a link, unless it was queued before; an invalid one becomes a problem."""
        uri = normalize_uri(target)
        if not uri or uri in self._known:
            return
        if not is_bounded(uri):
            self._add_problem(uri[:80], ProblemKind.MALFORMED, f"{referrer} has a link that is too long.", referrer)
            return
        if not uri.startswith("/") or uri.startswith("//"):
            try:
                uri = normalize_uri(self._bmc.path(uri)) if re.match(r"[a-z]+://|//", uri, re.IGNORECASE) else ""
            except BmcError as error:
                kind = ProblemKind.FOREIGN_LINK if isinstance(error, ForeignLink) else ProblemKind.MALFORMED
                self._add_problem(target, kind, error.sentence, referrer)
                return
            if not uri:
                self._add_problem(target, ProblemKind.MALFORMED, f"{referrer} has a link that is not a path.", referrer)
                return
            if uri in self._known:
                return
        # URL resolution treats dots as steps up, also written as %2e.
        if not uri.startswith("/redfish/") or "/.." in unquote(uri):
            self._add_problem(uri, ProblemKind.MALFORMED, f"{referrer} has a link that leaves /redfish.", referrer)
            return
        if not self._allowed(uri) or self._is_full():
            return
        self._known.add(uri)
        if "?" in uri:
            self._pages[uri.partition("?")[0]].add(uri)
        self._pending.add(uri)
        (self._collections if is_expandable(uri) else self._others).append((uri, referrer, listed_by))

    def _is_full(self) -> bool:
        if len(self._known) < MAX_RESOURCES:
            return False
        self._add_limit(f"The service links to more than {MAX_RESOURCES} resources; the others are not read.")
        return True

    def _note(self, uri: str, kind: ProblemKind, error: BmcError, referrer: str) -> None:
        self._add_problem(uri, kind, error.sentence, referrer, error.answered)

    def _add_problem(
        self, uri: str, kind: ProblemKind, sentence: str, referrer: str, status: int | None = None
    ) -> None:
        if len(self.problems) < MAX_PROBLEMS or kind is ProblemKind.INCOMPLETE:
            self.problems.setdefault(
                uri, InventoryProblem(uri=uri, kind=kind, sentence=sentence, status=status, referrer=referrer)
            )


def is_resource(body: JsonObject) -> bool:
    """Return whether a body has properties of a resource, and not only those of an error."""
    return any(name != "error" and name[:1] != "@" for name in body) or ("@odata.type" in body and "error" not in body)


def not_a_resource(uri: str, answer: BmcResponse) -> Malformed:
    """Return the error for an answer of success that has no resource."""
    if reason := error_sentence(answer.body):
        return Malformed(f"{uri} answered {answer.status}, but with an error: {reason}", answered=answer.status)
    return Malformed(f"{uri} answered {answer.status} without a resource.", answered=answer.status)
