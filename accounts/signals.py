"""Questions and news of this room for the rooms above, which it does not know."""

from __future__ import annotations

from django.dispatch import Signal

# tenant_ids: list[int]. Each receiver returns {tenant id: ["3 devices", ...]}, leaving out tenants that hold nothing.
tenant_holdings = Signal()
# person: User | None (None: a name that is nobody's), address: str, sentence: str, the reason.
sign_in_refused = Signal()
