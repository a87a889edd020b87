"""How a file wants ports to be configured, against how they are."""

from __future__ import annotations

from dataclasses import replace

from fabric.allocation.document import HostPortEntry, PortEntry
from fabric.allocation.places import quoted
from fabric.planning import LANES, Setting, port_types


def want_setting(
    entry: PortEntry, now: Setting | None, changes: list[str], notes: list[str]
) -> tuple[Setting | None, str]:
    """Return what a file wants of a port (None: nothing), as far as the site can tell how it is, and why it cannot be.

    What changes and what there is to know is added to the lists.
    """
    if now is None:
        return None, ""
    wanted = Setting()
    of_host = isinstance(entry, HostPortEntry)
    types = port_types(of_host=of_host)
    if entry.port_type and entry.port_type != now.port_type:
        if not now.port_type:
            notes.append("What its port is cannot be told here: it stays as it is.")
        elif entry.port_type not in types:
            leads = "A host's port" if of_host else "The port of a slot"
            return None, f"{leads} can be configured as {' or '.join(types)}, not as {quoted(entry.port_type)}."
        else:
            wanted = replace(wanted, port_type=entry.port_type)
            changes.append(f"Configure its port from {now.port_type} to {entry.port_type}.")
    if entry.lanes and entry.lanes != now.configured_width:
        if not now.configured_width:
            notes.append("How many lanes its port shall use cannot be told here: they stay as they are.")
        elif entry.lanes not in LANES:
            return None, f"A port can be configured with {', '.join(map(str, LANES))} lanes, not with {entry.lanes}."
        else:
            wanted = replace(wanted, configured_width=entry.lanes)
            changes.append(f"Configure its port from x{now.configured_width} to x{entry.lanes}.")
    return (None if wanted == Setting() else wanted), ""
