"""Discovery: one walk of a service becomes one typed inventory, however the service answers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from fabric.bmc.client import BmcClient
from fabric.bmc.crawl import ROOT_URI, WALK_SECONDS, Crawl, CrawledResource
from fabric.bmc.dialects import DialectProbe, probe_dialect
from fabric.bmc.gaps import GapKind, ProfileGap
from fabric.bmc.interoperability import (
    FABRIC_PROFILE,
    InteropProfile,
    ProfileError,
    fabric_profile,
    profile_gaps,
)
from fabric.bmc.oem import OEM_READERS
from fabric.bmc.typed_inventory import build_inventory
from fabric.bmc.types import Dialect, Inventory, ProblemKind
from fabric.bmc.values import links
from fabric.bmc.walk_turns import MemoryShare, WalkPace, WalkTurns

# Of turns, of a walk that replaces an inventory, or has no other one after it, s.
WHOLE_WALK_SECONDS = 900.0
NOT_PROBED = DialectProbe(reason="The service has not been read completely yet.", known=False)
# Kinds that change while a chassis is in use, apart from readings; the rest is read when something new appears.
VOLATILE_TYPES = frozenset(
    {
        "Chassis",
        "PCIeDevice",
        "Port",
        "Zone",
        "Connection",
        "Endpoint",
        "ResourceBlock",
        "ComputerSystem",
        "VirtualPCI2PCIBridge",
        *OEM_READERS,
    }
)
# Collections that are read again although they were empty: a device may have been attached by a new member.
CREATED_COLLECTIONS = frozenset({"ZoneCollection", "ConnectionCollection"})


async def discover(bmc: BmcClient, *, everything: bool = False, profile: InteropProfile | None = None) -> Inventory:
    """Return the inventory of a service, with what it lacks of a profile: FalconWeb's own, unless another is given.

    `everything` also enters the subtrees without inventory (accounts, registries, log entries), so that `problems`
    lists every dead link of the service. Raises NotRedfish, SignInRefused and the transport errors of the service root;
    Unreachable or TimedOut also when the BMC becomes unreachable during the walk. No single resource raises.
    """
    return await Discovery(bmc, everything=everything, profile=profile).walk(seconds=WHOLE_WALK_SECONDS)


class Discovery:
    """A walk that can be refreshed with a fraction of its requests.

    `at_a_time` bounds its requests below the client's own limit, so that others can use the same client meanwhile;
    `turns` are shared with the walks of other BMCs, `pace` with those of this one over earlier connections. `begun_at`
    is when the oldest of what a refresh reads was read.
    """

    def __init__(
        self,
        bmc: BmcClient,
        *,
        everything: bool = False,
        at_a_time: int = 0,
        turns: WalkTurns | None = None,
        profile: InteropProfile | None = None,
        pace: WalkPace | None = None,
    ) -> None:
        self._bmc = bmc
        self._profile = profile
        self._everything = everything
        self._at_a_time = at_a_time
        self._turns = turns or WalkTurns()
        self.pace = pace or WalkPace()
        self._share = MemoryShare()
        self._crawl = self._new_crawl()
        self._probe = NOT_PROBED
        self.begun_at = datetime.now(UTC)
        self._before: dict[str, CrawledResource] = {}  # what an unfinished refresh reads again, as it was
        # False during a walk: one that was aborted has less than the service has.
        self._whole = False
        # The requests and responses of the last refresh; if they differ, or are unusable, everything is read again.
        self._last_requests: dict[str, int] = {}
        self._found: Inventory | None = None

    def _new_crawl(self) -> Crawl:
        return Crawl(
            self._bmc,
            everything=self._everything,
            at_a_time=self._at_a_time,
            turns=self._turns,
            share=self._share,
            pace=self.pace,
        )

    @property
    def remains(self) -> bool:
        """Whether the service has resources that the next refresh will read."""
        return self._crawl.remains

    async def walk(self, *, seconds: float = WALK_SECONDS) -> Inventory:
        """Read the whole service again and return its inventory; raises as `discover` does.

        The first inventory of a slow service has what was read within `seconds` of turns, and `refresh` adds the rest.
        A later walk has more time, and one that does not end within it changes nothing.
        """
        if self._whole and self.remains:
            return await self.refresh()
        crawl, found = self._crawl, self._found if self._whole else None
        self._whole, self._last_requests, self._before = False, {}, {}
        self.begun_at = datetime.now(UTC)
        self._crawl = self._new_crawl()
        await self._crawl.walk(seconds=WHOLE_WALK_SECONDS if found is not None else seconds, from_root=True)
        if self.remains and found is not None:
            self._crawl, self._whole = crawl, True
            return found
        self._probe = NOT_PROBED
        return await self._done()

    async def refresh(self) -> Inventory:
        """Return the inventory with chassis, devices, ports, zones, endpoints, blocks and systems read again.

        New resources are read with all below them, those that their collection no longer lists are removed, and those
        that cannot be read for now stay unchanged, with a problem beside them. With $expand this is one request per
        collection. Walks the whole service where it has not been walked, or where the last walk was aborted. Where
        the responses are those of the previous refresh, byte for byte, the same inventory object is returned, and so
        it is while a slow service is still being read again.
        """
        begun_at = datetime.now(UTC)
        if self._found is not None and self._last_requests and await self._is_unchanged():
            self.begun_at = begun_at
            return self._found
        self._crawl.unpack()
        if not self.remains:
            moving = [each for each in self._crawl.found.values() if each.kind in VOLATILE_TYPES]
            if not (moving and self._whole):
                return await self.walk()
            self.begun_at = begun_at
            self._read_again(moving)
        elif not self._whole:
            return await self.walk()
        self._whole, self._last_requests = False, {}
        await self._crawl.walk()
        if self.remains and self._before and self._found is not None:
            self._whole = True
            return self._found
        was_again = bool(self._before)
        self._restore_unread()
        inventory = await self._done()
        if was_again and self._probe.known and all(self._crawl.digests.values()):
            self._last_requests = self._crawl.digests
        return inventory

    def _read_again(self, moving: list[CrawledResource]) -> None:
        """Queue resources, and the collections that list them, for another read."""
        self._crawl.digests, self._crawl.most_levels = {}, 1  # what is below members is no part of it
        listed_now: set[str] = set()
        collections = {each.uri for each in self._crawl.found.values() if each.kind in CREATED_COLLECTIONS}
        for uri in {each.uri.rpartition("/")[0] for each in moving}:
            pages = (uri, *self._crawl.pages_of(uri))
            read = [self._crawl.found[page].body for page in pages if page in self._crawl.found]
            members = [member for body in read for member in links(body, "Members")]
            listed_now.update(members)
            if members:
                collections.add(uri)
        for each in moving:
            if each.uri in listed_now:
                self._crawl.mark_unread(each.uri)
            else:
                # Reached by another link than its collection's: no other resource would lead there again.
                self._crawl.reread(each.uri)
        self._before = {each.uri: each for each in moving} | {
            uri: self._crawl.found[uri] for uri in collections if uri in self._crawl.found
        }
        for uri in sorted(collections):
            self._crawl.reread(uri)

    def _restore_unread(self) -> None:
        """Keep the last state of what could not be read again, beside its problem; drop what is gone."""
        gone: set[str] = set()
        # Which members a page has that cannot be read, nobody knows.
        in_part = {uri.partition("?")[0] for uri in self._crawl.problems if "?" in uri}
        for each in self._before.values():
            if each.uri in self._crawl.found:
                continue
            above = each.uri.rpartition("/")[0]
            if above in in_part or self._is_unreadable_now(each.uri) or self._is_unreadable_now(above):
                self._crawl.found[each.uri] = each
            else:
                gone.add(each.uri)
        self._crawl.discard_below(gone)
        self._before = {}

    async def _is_unchanged(self) -> bool:
        """Repeat the requests of the last refresh; return whether every response is the same."""
        for uri, digest in self._last_requests.items():
            raw = await self._bmc.fetch("GET", uri, is_repeated=True)
            if raw.status != 200 or hash(raw.body) != digest:
                return False
        return True

    async def _done(self) -> Inventory:
        crawl = self._crawl
        if self.remains:
            self._probe = NOT_PROBED
        elif not self._probe.known:
            self._probe = await probe_dialect(self._bmc, crawl.found, crawl.problems)
        if self.pace.is_heavy:
            # Seconds of work, beside the readings of others.
            inventory = await asyncio.to_thread(self._built)
        else:
            inventory = self._built()
        self._found, self._whole = inventory, True
        return inventory

    def _built(self) -> Inventory:
        gaps = None if self.remains else _gaps(self._crawl, self._probe, self._profile, everything=self._everything)
        inventory = build_inventory(self._crawl, self._probe, gaps)
        self._crawl.pack()
        return inventory

    def _is_unreadable_now(self, uri: str) -> bool:
        problem = self._crawl.problems.get(uri)
        if problem is None:
            limit = self._crawl.problems.get(ROOT_URI)
            return limit is not None and limit.kind is ProblemKind.INCOMPLETE
        return problem.kind is not ProblemKind.DEAD_LINK


def _gaps(
    crawl: Crawl, probe: DialectProbe, profile: InteropProfile | None, *, everything: bool
) -> tuple[ProfileGap, ...] | None:
    """Return what a walk lacks of a profile; with FalconWeb's own also a way to attach: no profile can ask for one."""
    try:
        profile = profile or fabric_profile()
    except ProfileError:
        return None  # a site that is installed without its documentation
    gaps = profile_gaps(profile, crawl.found, everything=everything)
    if profile.name != FABRIC_PROFILE or probe.dialect is not Dialect.NONE or not probe.known:
        return gaps
    return (*gaps, ProfileGap(purpose="Composing", kind=GapKind.WAY, reason=probe.reason))
