"""Where a run runs (composition), and which resources it holds or waits for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec

from hostwire.training import Spec

DEVICE_ORDER: Final = "order"
MAX_RUN_HOSTS: Final = 8  # of one run


class HostShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a run uses of one host: the number of its own GPUs, and chassis devices with their host ports.

    `devices` maps device ids to host port ids, in the order of ranks after the local GPUs.
    """

    host: int
    local_gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    devices: dict[int, int] = {}


class Composition(HostShare, frozen=True, kw_only=True):
    """The share of a run's first host, which has rank 0, of `others` in the order of ranks, and the storage.

    Data is read from the NVMe drive among the devices whose id is `storage`, with `own_drive` from an NVMe drive of
    each host's own, else from each host's default location. With `cpu` the run uses the CPUs of its hosts.
    """

    storage: int | None = None
    own_drive: bool = False
    cpu: bool = False
    others: Annotated[tuple[HostShare, ...], msgspec.Meta(max_length=MAX_RUN_HOSTS - 1)] = ()

    @property
    def shares(self) -> tuple[HostShare, ...]:
        """The shares of all hosts, in the order of ranks."""
        return (self, *self.others)

    @property
    def hosts(self) -> list[int]:
        return [one.host for one in self.shares]

    @property
    def all_devices(self) -> dict[int, int]:
        """The chassis devices of all hosts, with their host ports."""
        return {pk: port for one in self.shares for pk, port in one.devices.items()}

    def as_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        if not self.others:
            del plain["others"]  # compositions of one host are as before there were others
        return plain

    def as_stored(self) -> dict[str, Any]:
        """Return it as JSON for a database, with the rank order in lists: PostgreSQL does not keep member order."""
        plain = self.as_json()
        for share, stored in zip(self.shares, (plain, *plain.get("others", ())), strict=True):
            stored[DEVICE_ORDER] = list(share.devices)
        return plain

    @classmethod
    def from_json(cls, plain: Any) -> Composition:
        """Read what `as_json` or `as_stored` returned; raises msgspec.ValidationError for anything else."""
        if isinstance(plain, dict) and DEVICE_ORDER in plain:
            plain = _in_rank_order(plain)
            if "others" in plain:
                plain["others"] = [_in_rank_order(one) for one in plain["others"]]
        return msgspec.convert(plain, cls, strict=False)


def _in_rank_order(stored: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in stored.items() if name != DEVICE_ORDER}
    return {**plain, "devices": {pk: plain["devices"][str(pk)] for pk in stored[DEVICE_ORDER]}}


LOCAL_GPU_KEY: Final = "gpu"
DRIVE_KEY: Final = "drive"
SHARED_SUFFIX: Final = "/shared"


@dataclass(frozen=True)
class HoldOwner:
    """A run that holds a resource, or is ahead in the queue; `tenant` None: an administrator's."""

    title: str
    tenant: int | None

    def label_for(self, other: HoldOwner) -> str:
        """Return its label for another run: hosts serve several tenants, who may not see each other's runs."""
        return f"‘{self.title}’" if other.tenant in (None, self.tenant) else "somebody else's run"


@dataclass(frozen=True, kw_only=True)
class RunNeeds:
    """What a run needs: its composition, of the `own_gpus` of each host, and the `switches` of its chassis devices.

    It has its hosts and these switches (keys like 'switch/5') to itself, or with `may_share` with others that may, too.
    """

    composition: Composition
    own_gpus: Mapping[int, int]
    switches: frozenset[str] = frozenset()
    may_share: bool = False

    @property
    def places(self) -> set[str]:
        """Its hosts and its switches: 'host/3', 'switch/5'; where it may share them, 'host/3/shared'."""
        suffix = SHARED_SUFFIX if self.may_share else ""
        hosts = (f"host/{host}" for host in self.composition.hosts)
        return {f"{key}{suffix}" for key in (*hosts, *self.switches)}

    @property
    def keys(self) -> set[str]:
        """All resources, without numbers of the host's own GPUs."""
        return resource_keys(self.composition) | self.places


def resource_keys(composition: Composition) -> set[str]:
    """Return what a run never shares: 'device/12', 'host/3/gpu' (all its own GPUs), 'host/3/cpu', 'host/3/drive'."""
    keys = {f"device/{pk}" for pk in composition.all_devices}
    for share in composition.shares:
        if share.local_gpus:
            keys.add(f"host/{share.host}/{LOCAL_GPU_KEY}")
        if composition.cpu:
            keys.add(f"host/{share.host}/cpu")
        if composition.own_drive:
            keys.add(f"host/{share.host}/{DRIVE_KEY}")
    return keys


def stored_key(key: str, run: UUID) -> str:
    """Return the key of a run's hold in the database, which has each once: of shared ones, each run has its own."""
    return f"{key}/{run.hex}" if key.endswith(SHARED_SUFFIX) else key


def held_key(stored: str) -> str:
    place, shared, _run = stored.partition(SHARED_SUFFIX)
    return place + shared


def waiting_reason(
    needs: RunNeeds,
    me: HoldOwner,
    *,
    held: Mapping[str, HoldOwner],
    ahead: Mapping[str, HoldOwner],
    labels: Mapping[str, str],
) -> str:
    """Return why a run waits, '' where it need not: by the owner of each key, and the first run that waits for it."""
    local = {f"host/{one.host}/{LOCAL_GPU_KEY}": one for one in needs.composition.shares}
    for key in sorted(resource_keys(needs.composition)):
        name = labels.get(key, key)
        if key in local:
            if _free_local_gpus(local[key], held, needs.own_gpus) is None:
                users = sorted({user.label_for(me) for one, user in held.items() if one.startswith(f"{key}/")})
                by = f": {users[0]} uses some" if users else ""
                return f"Waiting for {local[key].local_gpus} of {name}{by}."
        elif key in held:
            return f"Waiting for {name}, which {held[key].label_for(me)} uses."
        if key in ahead:
            return f"Waiting for {name}, behind {ahead[key].label_for(me)}."
    for key in sorted(needs.places):
        place = key.removesuffix(SHARED_SUFFIX)
        name = labels.get(place, place)
        for other in _excluding(key):
            if other in held:
                use = "uses" if other.endswith(SHARED_SUFFIX) else "has to itself"
                return f"Waiting for {name}, which {held[other].label_for(me)} {use}."
        for other in _excluding(key):
            if other in ahead:
                return f"Waiting for {name}, behind {ahead[other].label_for(me)}."
    return ""


def acquirable_keys(needs: RunNeeds, held: Collection[str]) -> set[str] | None:
    """Return the keys that a run acquires, with the first free of its hosts' own GPUs; None if any is taken."""
    if any(other in held for key in needs.places for other in _excluding(key)):
        return None
    keys = {key for key in needs.keys if not key.endswith(f"/{LOCAL_GPU_KEY}")}
    for share in needs.composition.shares:
        free = _free_local_gpus(share, held, needs.own_gpus)
        if free is None:
            return None
        keys |= free
    return keys


def _excluding(key: str) -> tuple[str, ...]:
    """Return the keys of a place that exclude this one: who shares it excludes only who has it to itself."""
    place = key.removesuffix(SHARED_SUFFIX)
    return (place,) if key != place else (place, place + SHARED_SUFFIX)


def _free_local_gpus(share: HostShare, held: Collection[str], own: Mapping[int, int]) -> set[str] | None:
    mine = [f"host/{share.host}/{LOCAL_GPU_KEY}/{number}" for number in range(own.get(share.host, 0))]
    free = [key for key in mine if key not in held]
    return set(free[: share.local_gpus]) if len(free) >= share.local_gpus else None


def rank_counts(composition: Composition, spec: Spec, gpus: Collection[int]) -> list[int]:
    """Return the number of ranks of each host: its GPUs, of which `gpus` are those of chassis; on CPUs equal parts.

    What is left over on CPUs is on the first hosts.
    """
    if not composition.cpu:
        return [one.local_gpus + len(one.devices.keys() & {*gpus}) for one in composition.shares]
    each, left = divmod(spec.devices, len(composition.shares))
    return [each + (number < left) for number in range(len(composition.shares))]
