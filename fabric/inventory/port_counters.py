"""Reset of the error counters of a port, where its BMC offers that."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from django.db import transaction
from django.utils import timezone

from accounts.access import require_composer
from accounts.audit.actions import Action
from accounts.audit.services import attempt, target_of
from accounts.models import User
from accounts.visibility import visible_or_404
from core.errors import Conflict, Forbidden, Unavailable
from core.language import _
from fabric.bmc.addresses import BmcAddress
from fabric.bmc.composition import PortCounters, reset_port_counters
from fabric.bmc.errors import BmcError, CompositionRefused
from fabric.inventory.access import chassis_client
from fabric.inventory.models import Chassis, Port
from fabric.inventory.selectors import may_configure
from fabric.signals import port_counters_reset

logger = logging.getLogger(__name__)

RESET_SECONDS = 20.0


def port_reset_counters(*, person: User, port: Port) -> PortCounters:
    """Reset the error counters of a port to zero; returns the counters read back.

    For administrators and the tenant of the part on the port. Concurrent calls reset twice, which is harmless. Raises
    NotFound, Forbidden, Conflict where the BMC offers no reset or does not perform it, Unavailable where it does not
    answer.
    """
    with attempt(Action.PORT_COUNTERS, actor=person, target=target_of(port)) as act:
        row: Port = visible_or_404(Port.objects.select_related("chassis"), person, port.pk, "port")
        require_composer(person, "reset counters")
        if not may_configure(person, row):
            raise Forbidden(_("This port is not yours. Its owner or an administrator may reset its counters."))
        chassis = row.chassis
        if row.missing_since is not None:
            raise Conflict(_("{name} no longer reports this port.", name=chassis.name))
        if not row.metrics_uri:
            raise Conflict(_("{name} counts no errors of this port.", name=chassis.name))
        try:
            before, after = asyncio.run(_reset_counters(chassis, chassis.address(), row.metrics_uri))
        except CompositionRefused as error:
            raise Conflict(
                _("The counters of {name} were not reset. {sentence}", name=chassis.name, sentence=_(error.sentence))
            ) from error
        except (BmcError, TimeoutError) as error:
            # The error names the BMC's address, which only the log may have.
            logger.warning(
                "counters of port %s were not reset: %s", row.pk, getattr(error, "sentence", "no answer in time")
            )
            raise Unavailable(
                _("{name} did not answer correctly. Check the counters before you try again.", name=chassis.name)
            ) from error
        with act.change():
            now = timezone.now()
            row.errors, row.errors_reset_at = after.errors, now
            row.save(update_fields=["errors", "errors_reset_at"])
            act.before, act.after = dict(before.errors), dict(after.errors)
            values = {"port": row, "at": now, "person_name": person.get_username(), "counted": before.errors}
            transaction.on_commit(partial(port_counters_reset.send, Port, **values), robust=True)
    logger.info("%s reset the counters of port %s (%s)", person.get_username(), row.pk, row.uri)
    return after


async def _reset_counters(chassis: Chassis, address: BmcAddress, metrics_uri: str) -> tuple[PortCounters, PortCounters]:
    async with asyncio.timeout(RESET_SECONDS), chassis_client(chassis, address) as bmc:
        return await reset_port_counters(bmc, metrics_uri)
