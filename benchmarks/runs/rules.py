"""Where a run runs (composition), and which resources it holds or waits for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

DEVICE_ORDER: Final = "order"


class Composition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A host, the number of its own GPUs, chassis devices with their host ports, and the storage.

    `devices` maps device ids to host port ids, in the order of ranks after the local GPUs. Data is read from the NVMe
    drive among them whose id is `storage`, with `own_drive` from an NVMe drive of the host's own, else from the host's
    default location. With `cpu` the run uses the host's CPU.
    """

    host: int
    local_gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    devices: dict[int, int] = {}
    storage: int | None = None
    own_drive: bool = False
    cpu: bool = False

    def as_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return plain

    def as_stored(self) -> dict[str, Any]:
        """Return it as JSON for a database, with the rank order in a list: PostgreSQL does not keep member order."""
        return {**self.as_json(), DEVICE_ORDER: list(self.devices)}

    @classmethod
    def from_json(cls, plain: Any) -> Composition:
        """Read what `as_json` or `as_stored` returned; raises msgspec.ValidationError for anything else."""
        if not isinstance(plain, dict) or DEVICE_ORDER not in plain:
            return msgspec.convert(plain, cls, strict=False)
        made = msgspec.convert(
            {name: value for name, value in plain.items() if name != DEVICE_ORDER}, cls, strict=False
        )
        return msgspec.structs.replace(made, devices={pk: made.devices[pk] for pk in plain[DEVICE_ORDER]})


LOCAL_GPU_KEY: Final = "gpu"
DRIVE_KEY: Final = "drive"


@dataclass(frozen=True)
class HoldOwner:
    """A run that holds a resource, or is ahead in the queue; `tenant` None: an administrator's."""

    title: str
    tenant: int | None

    def label_for(self, other: HoldOwner) -> str:
        """Return its label for another run: hosts serve several tenants, who may not see each other's runs."""
        return f"‘{self.title}’" if other.tenant in (None, self.tenant) else "somebody else's run"


def resource_keys(composition: Composition) -> set[str]:
    """Return the resources of a run: 'device/12', 'host/3/gpu' (all its own GPUs), 'host/3/cpu', 'host/3/drive'."""
    keys = {f"device/{pk}" for pk in composition.devices}
    if composition.local_gpus:
        keys.add(f"host/{composition.host}/{LOCAL_GPU_KEY}")
    if composition.cpu:
        keys.add(f"host/{composition.host}/cpu")
    if composition.own_drive:
        keys.add(f"host/{composition.host}/{DRIVE_KEY}")
    return keys


def waiting_reason(
    composition: Composition,
    me: HoldOwner,
    *,
    held: Mapping[str, HoldOwner],
    ahead: Mapping[str, HoldOwner],
    labels: Mapping[str, str],
    own: int,
) -> str:
    """Return why a run waits, '' where it need not: by the owner of each key, and the first run that waits for it.

    `own` is the number of the host's own GPUs.
    """
    for key in sorted(resource_keys(composition)):
        name = labels.get(key, key)
        if key.endswith(f"/{LOCAL_GPU_KEY}"):
            if _free_local_gpus(composition, held, own) is None:
                users = sorted({user.label_for(me) for one, user in held.items() if one.startswith(f"{key}/")})
                by = f": {users[0]} uses some" if users else ""
                return f"Waiting for {composition.local_gpus} of {name}{by}."
        elif key in held:
            return f"Waiting for {name}, which {held[key].label_for(me)} uses."
        if key in ahead:
            return f"Waiting for {name}, behind {ahead[key].label_for(me)}."
    return ""


def acquirable_keys(composition: Composition, held: Collection[str], own: int) -> set[str] | None:
    """Return the keys that a run acquires, with the first free of the host's `own` GPUs; None if too few are free."""
    keys = {key for key in resource_keys(composition) if not key.endswith(f"/{LOCAL_GPU_KEY}")}
    if composition.local_gpus:
        free = _free_local_gpus(composition, held, own)
        if free is None:
            return None
        keys |= free
    return keys


def _free_local_gpus(composition: Composition, held: Collection[str], own: int) -> set[str] | None:
    mine = [f"host/{composition.host}/{LOCAL_GPU_KEY}/{number}" for number in range(own)]
    free = [key for key in mine if key not in held]
    return set(free[: composition.local_gpus]) if len(free) >= composition.local_gpus else None
