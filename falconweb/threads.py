"""Database work beside an event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections


async def in_thread(work: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """Do database work in a thread of the pool.

    asgiref's one sensitive thread would queue all work of a process behind each other, and keep a connection that died.
    """

    def done_there() -> Any:
        close_old_connections()
        try:
            return work(*arguments, **more)
        finally:
            close_old_connections()

    return await sync_to_async(done_there, thread_sensitive=False)()
