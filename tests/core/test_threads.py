"""Database work beside an event loop: in the pool, or on one connection that is kept."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.db import connection, connections

from accounts.models import Tenant
from core.threads import run_in_thread, single_connection_thread

pytestmark = pytest.mark.django_db(transaction=True)


def query() -> tuple[int, Any, Any]:
    """Ask the database; return the thread that did, its connection, and what holds that for the thread."""
    Tenant.objects.exists()
    return threading.get_ident(), connection.connection, connections["default"]


async def query_often() -> list[tuple[int, Any, Any]]:
    at_once = await asyncio.gather(*(run_in_thread(query) for _ in range(5)))
    return [*at_once, await run_in_thread(query)]


def test_one_thread_keeps_its_connection_and_closes_it_in_the_end() -> None:
    with single_connection_thread():
        found = asyncio.run(query_often())
        assert len({thread for thread, _, _ in found}) == 1
        assert len({id(kept) for _, kept, _ in found}) == 1
        assert found[0][0] != threading.get_ident()
        assert found[0][1] is not connection.connection
        holds = found[0][2]
        assert holds.connection is not None
    assert holds.connection is None


def test_without_one_each_work_closes_what_it_opened() -> None:
    for _, used, held in asyncio.run(query_often()):
        assert used is not None
        assert held.connection is None


def test_work_that_breaks_a_transaction_leaves_a_connection_that_can_be_asked() -> None:
    def breaks() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT one FROM nowhere")

    async def both() -> tuple[int, Any, Any]:
        with pytest.raises(Exception, match="nowhere"):
            await run_in_thread(breaks)
        found: tuple[int, Any, Any] = await run_in_thread(query)
        return found

    with single_connection_thread():
        assert asyncio.run(both())[1] is not None
