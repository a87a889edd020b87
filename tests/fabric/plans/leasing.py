"""What tenants and administrators do with leases, and what time does to them; actions of the machine of plans."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from accounts.models import Tenant
from fabric.inventory.models import LeasablePart
from fabric.leases.ends import lease_extend, lease_extension_request, lease_return
from fabric.leases.lifecycle import leases_process
from fabric.leases.models import Lease
from fabric.leases.rules import RequestedParts
from fabric.leases.services import lease_approve, lease_decline, lease_give, lease_request, lease_withdraw
from tests.fabric.leases.leasing import pass_time
from tests.fabric.plans.requests import PICK, YES, Asking, action, maybe, number, one_of, some
from tests.fabric.plans.world import DRAWERS, HOLDINGS, PLACES

MEMBERS = dict(zip(("ann", "ben", "cyd"), HOLDINGS, strict=True))
THINGS = some(number(0, 23), 3)
HOURS = one_of(2, 2, 24, 24 * 9, None)


class Leasing(Asking):
    """Leases of the devices and host ports of a world."""

    @action(2, to=one_of(*sorted(HOLDINGS)), things=THINGS, hours=HOURS, later=YES)
    def give(self, to: str, things: list[int], hours: int | None, later: bool) -> None:
        """An administrator gives devices, with the host ports of their drawers, now or from tomorrow on."""
        begin, end = timezone.now() + timedelta(hours=1) if later else None, self.end(hours, later=later)
        tenant, given = Tenant.objects.get(name=to), self.things(things)
        self.world.held_up(
            lambda: lease_give(person=self.person("ada"), tenant=tenant, things=given, starts_at=begin, ends_at=end)
        )

    @action(1, by=one_of(*sorted(MEMBERS)), hours=HOURS)
    def ask(self, by: str, hours: int | None) -> None:
        """A member asks for devices."""
        wishes = [RequestedParts("gpu", 1), RequestedParts("host_port", 1)]
        self.world.held_up(
            lambda: lease_request(person=self.person(by), wishes=wishes, starts_at=None, ends_at=self.end(hours))
        )

    @action(3, when=lambda self: self.leases("requested"), pick=PICK, things=maybe(THINGS, 0.8), hours=HOURS)
    def answer(self, pick: int, things: list[int] | None, hours: int | None) -> None:
        """An administrator approves what was asked for, or declines it."""
        lease, ada = self.lease(pick, "requested"), self.person("ada")
        if things is None:
            self.world.held_up(lambda: lease_decline(person=ada, lease=lease))
        else:
            chosen, end = self.things(things), self.end(hours)
            self.world.held_up(
                lambda: lease_approve(person=ada, lease=lease, things=chosen, starts_at=None, ends_at=end)
            )

    @action(1, when=lambda self: self.leases("approved", "requested"), pick=PICK)
    def withdraw(self, pick: int) -> None:
        """Somebody takes a lease back before it starts."""
        lease = self.lease(pick, "approved", "requested")
        self.world.held_up(lambda: lease_withdraw(person=self.person("ada"), lease=lease))

    @action(2, when=lambda self: self.leases("active"), pick=PICK, hours=HOURS, wish=YES)
    def extend(self, pick: int, hours: int | None, wish: bool) -> None:
        """A member asks for another end of a lease, or an administrator sets it: later or sooner."""
        lease, end = self.lease(pick, "active"), self.end(hours)
        if wish:
            member = next(self.person(name) for name, tenant in MEMBERS.items() if tenant == lease.tenant_name)
            later = end or timezone.now() + timedelta(days=90)
            self.world.held_up(lambda: lease_extension_request(person=member, lease=lease, ends_at=later))
        else:
            self.world.held_up(lambda: lease_extend(person=self.person("ada"), lease=lease, ends_at=end))

    @action(3, when=lambda self: self.leases("active"), pick=PICK, part=YES)
    def bring_back(self, pick: int, part: bool) -> None:
        """A lease, or the first thing of it, is returned before its end."""
        lease = self.lease(pick, "active")
        items = list(lease.items.filter(released_at=None)[:1]) if part else None
        if self.world.held_up(lambda: lease_return(person=self.person("ada"), lease=lease, items=items)):
            leases_process()

    @action(5, when=lambda self: self.leases("approved", "active", "ending"), hours=one_of(0, 1, 3, 25))
    def time_passes(self, hours: int) -> None:
        """It is later, and the site looks at its leases."""
        for lease in self.leases("approved", "active", "ending"):
            pass_time(lease, hours=hours)
        leases_process()

    # --- helpers ----------------------------------------------------------------------------------------------------

    def leases(self, *states: str) -> list[Lease]:
        """Return the leases in these states."""
        return list(Lease.objects.filter(state__in=states).order_by("pk"))

    def lease(self, pick: int, *states: str) -> Lease:
        """Return one of them."""
        rows = self.leases(*states)
        return rows[pick % len(rows)]

    def things(self, numbers: list[int]) -> list[LeasablePart]:
        """Return devices, and a host port of the drawer of the first."""
        places = list(dict.fromkeys(PLACES[one % len(PLACES)] for one in numbers))
        labels = DRAWERS[places[0][:2]][1]
        devices = [self.world.device(*place) for place in places]
        return [*devices, self.world.host_port(places[0][0], labels[numbers[0] % len(labels)])]

    @staticmethod
    def end(hours: int | None, *, later: bool = False) -> datetime | None:
        """Return the end of a lease of so many hours."""
        return None if hours is None else timezone.now() + timedelta(hours=hours + later)
