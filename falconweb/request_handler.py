"""Handles each HTTP request in one thread, from the first middleware to the view and back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.core.signals import request_started
from django.db import close_old_connections, reset_queries
from django.http import HttpRequest
from django.http.response import HttpResponseBase

IDLE_THREADS: Final = 16  # that are kept: the number of concurrent requests


class ThreadHandler(ASGIHandler):
    """Django's handler without its changes between the event loop and the request's thread.

    All middleware and views of the site are synchronous. Django runs them in a thread, but goes back to the loop before
    the view, and changes once more for each middleware that looks at it: five times a request instead of once. Nor is
    the thread new for each request: to prepare one, with all that the site has a thread, takes longer than a query.
    """

    chunk_size = 2**20  # bytes of a message: a chart is one, and not three

    def __init__(self) -> None:
        super().__init__()
        self._idle: list[ThreadPoolExecutor] = []  # of one thread each
        # Each request closes its connections at its end: to begin it by closing old ones is a change of threads more.
        for receiver in (reset_queries, close_old_connections):
            request_started.disconnect(receiver)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request in a thread that no other request has."""
        thread = self._idle.pop() if self._idle else ThreadPoolExecutor(1, "request")
        is_whole = False
        try:
            async with ThreadSensitiveContext(executor=thread):
                await self.handle(scope, receive, send)
            is_whole = True
        finally:
            # One that was given up may still be busy, or have an open connection.
            if is_whole and len(self._idle) < IDLE_THREADS:
                self._idle.append(thread)
            else:
                thread.shutdown(wait=False)

    def load_middleware(self, is_async: bool = False) -> None:
        """Load the middleware as of a synchronous server."""
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """Return the response of the whole chain, made in the request's thread."""
        handle: Any = sync_to_async(self.get_response, thread_sensitive=True)
        response: HttpResponseBase = await handle(request)
        return response
