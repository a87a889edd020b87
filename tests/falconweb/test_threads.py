"""Database work beside an event loop: in the pool, or on one connection that is kept."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.db import connection

from accounts.models import Tenant
from falconweb.threads import in_thread, one_connection

pytestmark = pytest.mark.django_db(transaction=True)


def asked() -> tuple[int, Any]:
    """Ask the database, and return the thread that did and its connection."""
    Tenant.objects.exists()
    return threading.get_ident(), connection.connection


async def asked_often() -> list[tuple[int, Any]]:
    at_once = await asyncio.gather(*(in_thread(asked) for _ in range(5)))
    return [*at_once, await in_thread(asked)]


def test_one_thread_keeps_its_connection_and_closes_it_in_the_end() -> None:
    with one_connection():
        found = asyncio.run(asked_often())
        assert len({thread for thread, _ in found}) == 1
        assert len({id(kept) for _, kept in found}) == 1
        assert found[0][0] != threading.get_ident()
        assert found[0][1] is not connection.connection
    with pytest.raises(Exception, match="closed"):
        found[0][1].execute("SELECT 1")


def test_without_one_each_work_closes_what_it_opened() -> None:
    for _, used in asyncio.run(asked_often()):
        with pytest.raises(Exception, match="closed"):
            used.execute("SELECT 1")


def test_work_that_breaks_a_transaction_leaves_a_connection_that_can_be_asked() -> None:
    def breaks() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT one FROM nowhere")

    async def both() -> tuple[int, Any]:
        with pytest.raises(Exception, match="nowhere"):
            await in_thread(breaks)
        found: tuple[int, Any] = await in_thread(asked)
        return found

    with one_connection():
        assert asyncio.run(both())[1] is not None
