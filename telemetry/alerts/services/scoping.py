"""What rules, silences and routes say of the part of the lab that they are about: read, checked, put into words."""

from __future__ import annotations

from typing import Any, Final

from accounts.models import Tenant
from fabric.models import Chassis, Device, Drawer, Port
from falconweb.errors import Invalid
from telemetry.alerts.models import Scoped
from telemetry.alerts.scopes import SCOPES

MODELS: Final[dict[str, Any]] = {
    "chassis": Chassis, "drawer": Drawer, "device": Device, "port": Port, "tenant": Tenant,
}  # fmt: skip
COLUMNS: Final = ("scope", "chassis", "drawer", "device", "port", "tenant", "device_kind")


def scope_set(row: Scoped, *, scope: str, scope_id: int | None, device_kind: str) -> None:
    """Let a row be about a part of the lab; raises Invalid with the field that is wrong."""
    if scope not in dict(SCOPES):
        _refuse("scope", f"One of {', '.join(name for name, _ in SCOPES)}.")
    row.scope, row.device_kind = scope, ""
    for name in MODELS:
        setattr(row, f"{name}_id", None)
    if scope == "device_kind":
        if device_kind not in Device.Kind.values:
            _refuse("device_kind", f"One of {', '.join(Device.Kind.values)}.")
        row.device_kind = device_kind
    elif scope != "all":
        found = MODELS[scope].objects.filter(pk=scope_id).first() if scope_id is not None else None
        if found is None:
            _refuse("scope_id", f"There is no such {dict(SCOPES)[scope].rpartition(' ')[2]}: choose one.")
        setattr(row, scope, found)


def text_of(text: str, field: str, *, longest: int, required: bool = False) -> str:
    """Return a text as it is kept; raises Invalid where it is too long, or there is none."""
    kept = text.replace("\0", "").strip()
    if len(kept) > longest:
        _refuse(field, f"At most {longest} characters.")
    if required and not kept:
        _refuse(field, "Give one.")
    return kept


def _refuse(field: str, sentence: str) -> None:
    raise Invalid(sentence, errors={field: sentence})
