"""The location LED of a part, where its service has one."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from django.db import transaction

from accounts.access import require_administrator
from accounts.audit.actions import Action
from accounts.audit.services import attempt, target_of
from accounts.models import User
from core.errors import Conflict, Unavailable
from core.language import _
from fabric.bmc.addresses import BmcAddress
from fabric.bmc.errors import BmcError, CompositionRefused
from fabric.bmc.indicator import set_indicator
from fabric.inventory.access import chassis_client
from fabric.inventory.models import Chassis, ManagedPart
from fabric.signals import inventory_changed

logger = logging.getLogger(__name__)

LOCATE_SECONDS = 20.0


def check_answering(chassis: Chassis) -> None:
    """Raise Conflict where nothing can be asked of the BMC of a chassis."""
    if not chassis.enabled:
        raise Conflict(_("{name} is not polled: nothing is sent to it.", name=chassis.name))
    if not chassis.uri:
        raise Conflict(_("{name} has not answered yet.", name=chassis.name))


def part_locate(*, person: User, part: ManagedPart, lit: bool) -> None:
    """Switch the location LED of a part, for administrators.

    Raises Forbidden, Conflict where it has none or its service does not switch it, Unavailable where that does not
    answer.
    """
    name, chassis = part.label, part.chassis
    with attempt(Action.CHASSIS_LOCATE, actor=person, target=target_of(part, name)) as act:
        require_administrator(person)
        check_answering(chassis)
        if not part.led_uri:
            raise Conflict(_("{name} has no location LED that its service switches.", name=name))
        try:
            asyncio.run(_locate(chassis, chassis.address(), part.led_uri, lit=lit))
        except CompositionRefused as error:
            raise Conflict(
                _("The LED of {name} was not switched. {sentence}", name=name, sentence=_(error.sentence))
            ) from error
        except (BmcError, TimeoutError) as error:
            logger.warning("LED of %s was not switched: %s", name, getattr(error, "sentence", "timeout"))
            raise Unavailable(
                _("{name} did not answer correctly. Look at its LED before you try again.", name=chassis.name)
            ) from error
        with act.change():
            # The next walk finds it, too; until then the page shows this.
            ManagedPart.objects.filter(pk=part.pk).update(is_lit=lit)
            act.after = {"lit": lit}
            transaction.on_commit(partial(inventory_changed.send, Chassis, chassis_id=chassis.pk), robust=True)


async def _locate(chassis: Chassis, address: BmcAddress, uri: str, *, lit: bool) -> None:
    async with asyncio.timeout(LOCATE_SECONDS), chassis_client(chassis, address) as bmc:
        await set_indicator(bmc, uri, lit=lit)
