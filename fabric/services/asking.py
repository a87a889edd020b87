"""What all requests for a change of hardware have in common: the key, the steps, the hand-over to a worker."""

from __future__ import annotations

import hashlib
from typing import Final, TypeVar

from accounts.models import User
from core.enqueue import enqueue
from fabric.models import Operation, Plan
from fabric.signals import operation_changed
from falconweb.errors import Invalid, KeyReused

Asked = TypeVar("Asked", Operation, Plan)
LONGEST_KEY = 200
# What the agent of a host does is skipped, and says so, where none runs.
STEPS: Final = {
    "attach": ("Check", "Attach", "Wait for the link", "Seen by the host", "Read back"),
    "detach": ("Check", "Release on the host", "Detach", "Read back"),
    "move": (
        "Check", "Release on the host", "Detach", "Attach", "Wait for the link", "Seen by the host", "Read back",
    ),
    "mode": ("Check", "Change mode", "Read back"),
    "port": ("Check", "Configure", "Wait for the link", "Read back"),
    "cable": ("Check", "Wait for the cable", "Read back"),
}  # fmt: skip


def refuse_key(idempotency_key: str) -> None:
    """Raise Invalid for a key that cannot be kept as it is."""
    if len(idempotency_key) > LONGEST_KEY or not idempotency_key.isprintable():
        # Cut short, two keys could become one.
        raise Invalid(f"The Idempotency-Key cannot be used. Give at most {LONGEST_KEY} printable characters.")


def request_digest(*wanted: object) -> str:
    """Return what tells one request from another under the same key."""
    return hashlib.sha256(repr(wanted).encode()).hexdigest()


def replayed_of(model: type[Asked], person: User | None, idempotency_key: str, digest: str) -> Asked | None:
    """Return what a person asked for by the same key before, None where that is new.

    Raises KeyReused where the key came with another request, and Invalid as `refuse_key` does.
    """
    if person is None or not idempotency_key:
        return None
    refuse_key(idempotency_key)
    known = model.objects.filter(requested_by=person, idempotency_key=idempotency_key).first()
    # What belongs to a tenant that the person has left is not brought back.
    if known is not None and (
        known.request_digest != digest or not model.objects.visible_to(person).filter(pk=known.pk).exists()
    ):
        raise KeyReused("This Idempotency-Key was used for another request. Take a new key.")
    return known


def steps_of(kind: str) -> list[dict[str, object]]:
    """Return the steps of a kind of operation, none begun."""
    return [
        {"name": name, "state": "waiting", "started_at": None, "finished_at": None, "sentence": ""}
        for name in STEPS[kind]
    ]


def hand_over(operation: Operation) -> None:
    """Tell everybody of a new operation, and a worker to take it; to be called once it is committed."""
    operation_changed.send(Operation, operation=operation)
    # A broker that is away loses nothing: recover_operations picks up what no worker has taken.
    enqueue("fabric.run_operation", str(operation.pk))
