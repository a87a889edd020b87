"""Requests with an Idempotency-Key: a repeat returns the object that the first one created."""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

from django.db import models

from core.errors import Invalid, KeyReused

Replayable = TypeVar("Replayable", bound=models.Model)
MAX_KEY_LENGTH = 200


def check_key(idempotency_key: str) -> None:
    """Raise Invalid for a key that cannot be stored unchanged."""
    if len(idempotency_key) > MAX_KEY_LENGTH or not idempotency_key.isprintable():
        # Cut short, two keys could become one.
        raise Invalid(f"The Idempotency-Key cannot be used. Give at most {MAX_KEY_LENGTH} printable characters.")


def request_digest(*values: object) -> str:
    """Return the digest by which requests under one key are compared."""
    return hashlib.sha256(repr(values).encode()).hexdigest()


def find_replayed(model: type[Replayable], person: Any, idempotency_key: str, digest: str) -> Replayable | None:
    """Return the row that the user's earlier request with this key created, None for a new request.

    The model has `requested_by`, `idempotency_key`, `request_digest` and a manager with `visible_to(person)`. Raises
    KeyReused where the key was used for a different request, and Invalid as `check_key` does.
    """
    if person is None or not idempotency_key:
        return None
    check_key(idempotency_key)
    rows: Any = model._default_manager  # noqa: SLF001 - documented by Django
    known: Any = rows.filter(requested_by=person, idempotency_key=idempotency_key).first()
    # A row of a tenant that the user has left is not returned.
    if known is not None and (
        known.request_digest != digest or not rows.visible_to(person).filter(pk=known.pk).exists()
    ):
        raise KeyReused("This Idempotency-Key was used for another request. Take a new key.")
    found: Replayable | None = known
    return found
