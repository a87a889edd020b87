"""The session of a websocket, read once at its handshake."""

from __future__ import annotations

from typing import Any

from channels.sessions import InstanceSessionWrapper, SessionMiddleware


class SocketSessionMiddleware(SessionMiddleware):
    """Channels' session middleware without its look at the session before each message that goes out.

    A websocket can set no cookie, so there is nothing to look for; the look costs more than the frame.
    """

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        """Put the session into the scope and pass the socket on."""
        wrapper = InstanceSessionWrapper(scope, send)
        await wrapper.resolve_session()
        inner: Any = self.inner
        return await inner(wrapper.scope, receive, send)
