"""Changes of hardware in sentences, for whoever may see them: another tenant's host is not named."""

from __future__ import annotations

from typing import Final

from django.utils import timezone

from accounts.models import User
from fabric.models import Chassis, Device, HostPort, Operation

SITE_NAME: Final = "FalconWeb"  # who asks where the site itself does


def name_of(person: User | None) -> str:
    """Return who asks, as rows keep it; None is the site itself."""
    return person.get_username() if person is not None else SITE_NAME


def held(what: str, operation: Operation, person: User | None) -> str:
    """Return who is at work on something, since when; of what the person may not see, that it has not ended."""
    if person is not None and not Operation.objects.visible_to(person).filter(pk=operation.pk).exists():
        return f"{what} is taken: another operation has not ended."
    when = timezone.localtime(operation.requested_at).strftime("%H:%M:%S %Z")
    return (
        f"{what} is taken: {operation.requested_by_name} asked at {when} to '{operation.summary}', which has not ended."
    )


def summary_of(device: Device, source: HostPort | None, target: HostPort | None) -> str:
    """Return what is to happen, for everybody who may see the device: another tenant's host is not named."""

    def place(port: HostPort | None) -> str:
        return port.label if port is not None and not names_host(device, port) else place_of(port)

    slot = f" ({device.slot.name})" if device.slot else ""
    if source is not None and source == target:
        return f"Detach {device.name}{slot} from {place(source)} and attach it there again"
    if target is None:
        return f"Detach {device.name}{slot} from {place(source)}"
    if source is None:
        return f"Attach {device.name}{slot} to {place(target)}"
    return f"Move {device.name}{slot} from {place(source)} to {place(target)}"


def names_host(device: Device, port: HostPort) -> bool:
    """Tell whether the host behind a port may be named, and what goes on there, to everybody who may see the device."""
    return device.tenant_id in {None, port.tenant_id}


def place_of(port: HostPort | None) -> str:
    """Return the host behind a host port, with the port's label."""
    if port is None:
        return "no host"
    return f"{port.host.name} ({port.label})" if port.host else port.label


def monitored_only(chassis: Chassis) -> str:
    """Return why nothing can be composed on a chassis that offers none of the ways."""
    return f"{chassis.name} offers no way to attach or detach: it is monitored only."


def without_endpoint(device: Device) -> str:
    """Return why a device that is not part of the fabric cannot be composed."""
    return f"{device.name} has no endpoint in the fabric, so it cannot be attached."
