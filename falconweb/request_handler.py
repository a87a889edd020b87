"""Handles each HTTP request in one thread, from the first middleware to the view and back."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.core.signals import request_started
from django.db import close_old_connections, reset_queries
from django.http import HttpRequest
from django.http.response import HttpResponseBase


class ThreadHandler(ASGIHandler):
    """Django's handler without its changes between the event loop and the request's thread.

    All middleware and views of the site are synchronous. Django runs them in a thread, but goes back to the loop before
    the view, and changes once more for each middleware that looks at it: five times a request instead of once.
    """

    def __init__(self) -> None:
        super().__init__()
        # The thread of a request is new and has no connection yet: to begin it by closing old ones is a change of
        # threads more.
        for receiver in (reset_queries, close_old_connections):
            request_started.disconnect(receiver)

    def load_middleware(self, is_async: bool = False) -> None:
        """Load the middleware as of a synchronous server."""
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """Return the response of the whole chain, made in the request's thread."""
        handle: Any = sync_to_async(self.get_response, thread_sensitive=True)
        response: HttpResponseBase = await handle(request)
        return response
