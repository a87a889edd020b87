"""Database work of an event loop, in threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
_own: ContextVar[Executor | None] = ContextVar("own_thread", default=None)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, Result]) -> AsyncIterator[asyncio.Task[Result]]:
    """Run a coroutine beside the enclosed block, which awaits it; it is cancelled where an error ends the block."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def run_in_thread(work: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """Run database work in a thread of the pool, or in that of `single_connection_thread`."""

    def done_here() -> Any:
        _close_unusable_connections()
        return work(*arguments, **more)

    if (own := _own.get()) is not None:
        return await asyncio.get_running_loop().run_in_executor(own, copy_context().run, done_here)
    return await run_in_pool(work, *arguments, **more)


def unwaited(work: Callable[[], object]) -> Callable[[], None]:
    """Return database work that nobody waits for, in the present context: its error is logged."""
    context = copy_context()

    def done() -> None:
        try:
            _close_unusable_connections()
            context.run(work)
        except Exception:
            logger.exception("work that nobody waits for")

    return done


async def run_in_pool(work: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """Run database work in a thread of the pool, also beside that of `single_connection_thread`.

    asgiref's single thread-sensitive thread would serialise all work of a process, and keep a broken connection.
    """

    def done_there() -> Any:
        close_old_connections()
        try:
            return work(*arguments, **more)
        finally:
            close_old_connections()

    return await sync_to_async(done_there, thread_sensitive=False)()


@contextmanager
def in_thread_of(thread: Executor) -> Iterator[None]:
    """Run all database work of the enclosed loop in the one thread of `thread`, on one persistent connection.

    For frequent queries: connecting takes longer than a query.
    """
    token = _own.set(thread)
    try:
        yield
    finally:
        _own.reset(token)


@contextmanager
def single_connection_thread() -> Iterator[None]:
    """Do as `in_thread_of` does with a thread that ends with the block."""
    with ThreadPoolExecutor(1, "database") as thread:
        try:
            with in_thread_of(thread):
                yield
        finally:
            thread.submit(connections.close_all)


def _close_unusable_connections() -> None:
    """Close broken connections; the next query reconnects."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and not connection.is_usable():
            connection.close()
