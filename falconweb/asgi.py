"""HTTP to Django, websockets to the features' consumers: same origin only, authenticated by session."""

from __future__ import annotations

import os

import django
from channels.auth import AuthMiddleware
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from channels.sessions import CookieMiddleware

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "falconweb.settings")
django.setup(set_prefix=False)

import falconweb.urls  # noqa: E402, F401 - all views and their imports
from falconweb.asgi_middleware import (  # noqa: E402 - models need Django set up first
    UNKNOWN_SOCKET,
    BodyLimit,
    SameOriginOnly,
    SocketSessionMiddleware,
)
from falconweb.request_handler import ThreadHandler  # noqa: E402
from falconweb.structs import prepare_all_structs  # noqa: E402
from telemetry.instrumentation.publisher import MetricsMiddleware  # noqa: E402
from telemetry.live.consumers import websocket_urlpatterns  # noqa: E402

# Requests are handled in threads.
prepare_all_structs()
sockets = CookieMiddleware(SocketSessionMiddleware(AuthMiddleware(URLRouter([*websocket_urlpatterns, UNKNOWN_SOCKET]))))

application = MetricsMiddleware(
    ProtocolTypeRouter(
        {
            "http": BodyLimit(ThreadHandler()),
            "websocket": AllowedHostsOriginValidator(SameOriginOnly(sockets)),
        }
    )
)
