"""Where a run shall run, as a frozen value: kept with the run as JSON."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

ORDER: Final = "order"


class Composition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A host, how many of its own GPUs, devices of chassis by the host port that they are (to be) attached to, storage.

    `devices` maps a device's id to a host port's id, in the order of ranks after the local GPUs. Data is read from the
    NVMe drive among them whose id is `storage`, with `own_drive` from an NVMe drive of the host's own, else from
    wherever the host has it. With `cpu` it runs on the host's CPU.
    """

    host: int
    local_gpus: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    devices: dict[int, int] = {}
    storage: int | None = None
    own_drive: bool = False
    cpu: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON, ids as strings."""
        plain: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return plain

    def as_kept(self) -> dict[str, Any]:
        """Return it as JSON for a database, with the order of ranks apart: PostgreSQL keeps that of no object."""
        return {**self.as_json(), ORDER: list(self.devices)}

    @classmethod
    def from_json(cls, plain: Any) -> Composition:
        """Read what `as_json` or `as_kept` returned; raises msgspec.ValidationError for anything else."""
        if not isinstance(plain, dict) or ORDER not in plain:
            return msgspec.convert(plain, cls, strict=False)
        made = msgspec.convert({name: value for name, value in plain.items() if name != ORDER}, cls, strict=False)
        return msgspec.structs.replace(made, devices={pk: made.devices[pk] for pk in plain[ORDER]})
