"""Whether devices are used, as the room that measures tells."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from fabric.models import Activity, Device

# Between two measurements that are so far apart, a device may have been used unseen.
GAP: Final = timedelta(minutes=10)


def watched_devices(chassis_id: int) -> dict[int, int | None]:
    """Return the devices of a chassis that somebody holds, each with the port of its slot."""
    rows = Device.objects.filter(chassis=chassis_id, tenant__isnull=False, missing_since=None)
    return dict(rows.values_list("pk", "slot__port"))


def activity_note(*, at: datetime, active: Mapping[int, bool]) -> None:
    """Keep of each device (by its id) whether it was used in the minute that ended at an instant."""
    with transaction.atomic():
        known = Activity.objects.in_bulk(list(active))
        here = set(Device.objects.filter(pk__in=active).values_list("pk", flat=True))
        rows = []
        for pk in sorted(here):
            row = known.get(pk) or Activity(device_id=pk, measured_at=at)
            unseen = abs(at - row.measured_at) > GAP
            if active[pk]:
                row.quiet_since, row.active_at = None, at
            elif row.quiet_since is None or unseen:
                row.quiet_since = at
            row.measured_at = at
            rows.append(row)
        Activity.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["device"],
            update_fields=["measured_at", "quiet_since", "active_at"],
        )
