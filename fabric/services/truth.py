"""Reading a chassis' allocation from its BMC into the mirror, ahead of the next walk."""

from __future__ import annotations

from functools import partial

from django.utils import timezone

from fabric.bmc.client import BmcClient
from fabric.bmc.composition import members_of, read_zone
from fabric.bmc.types import Dialect
from fabric.models import Chassis, Device, Drawer, HostPort, Operation, Port
from fabric.planning import Wanted
from fabric.services.patience import PLACES, REQUEST_SECONDS, patiently
from fabric.services.readback import attachments_mirror, cable_read, mode_read, port_read
from falconweb.threads import in_thread


async def truth_read(chassis: Chassis, wanted: Wanted) -> None:
    """Mirror which device is in which zone, and each drawer's mode, as the BMC says now; some requests of a walk.

    Of ports and cables it is those of which something is wanted; of devices all but those that an operation reads back
    itself meanwhile. Waits for a BMC that is away as an operation does; raises BmcError where it stays away.
    """
    begun = timezone.now()
    address = await in_thread(chassis.address)
    dialect = Dialect(chassis.dialect)
    zones = await in_thread(lambda: list(HostPort.objects.filter(chassis=chassis, missing_since=None)))
    drawers = await in_thread(lambda: list(Drawer.objects.filter(chassis=chassis, missing_since=None)))
    ports = await in_thread(lambda: list(Port.objects.filter(chassis=chassis, pk__in=wanted.settings)))
    async with BmcClient(address, timeout=REQUEST_SECONDS, at_a_time=PLACES) as bmc:
        found: dict[str, str] = {}
        for row in zones:
            zone = await patiently(partial(read_zone, bmc, row.uri))
            found |= dict.fromkeys(members_of(zone, dialect), row.uri)
        for drawer in drawers:
            await patiently(partial(mode_read, bmc, drawer))
        for port in ports:
            await patiently(partial(port_read, bmc, port))
        for row in zones:
            if row.pk in wanted.cables:
                await patiently(partial(cable_read, bmc, row))
    newer = Operation.objects.at_work_since(begun).filter(chassis=chassis, device__isnull=False)
    devices = Device.objects.filter(chassis=chassis, missing_since=None).exclude(endpoint_uri="")
    devices = devices.exclude(pk__in=newer.values("device"))
    await in_thread(attachments_mirror, devices, chassis=chassis.pk, zones=found)
