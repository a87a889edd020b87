"""HTTP to Django, websockets to the rooms' consumers: same origin only, the person known from the session."""

from __future__ import annotations

import os

from channels.auth import AuthMiddleware
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from channels.sessions import CookieMiddleware
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "falconweb.settings")
django_application = get_asgi_application()

import falconweb.urls  # noqa: E402, F401 - all views, and what they read
from falconweb.gate import ELSEWHERE, BodyLimit, OwnPagesOnly  # noqa: E402 - models need Django set up first
from falconweb.shapes import shapes_ready  # noqa: E402
from falconweb.socket_sessions import SocketSessionMiddleware  # noqa: E402
from telemetry.pipeline.web import Published  # noqa: E402
from telemetry.routing import websocket_urlpatterns  # noqa: E402

# Requests are answered by threads.
shapes_ready()
sockets = CookieMiddleware(SocketSessionMiddleware(AuthMiddleware(URLRouter([*websocket_urlpatterns, ELSEWHERE]))))

application = Published(
    ProtocolTypeRouter(
        {
            "http": BodyLimit(django_application),
            "websocket": AllowedHostsOriginValidator(OwnPagesOnly(sockets)),
        }
    )
)
