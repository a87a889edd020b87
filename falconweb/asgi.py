"""HTTP to Django, websockets to the rooms' consumers: same origin only, the person known from the session."""

from __future__ import annotations

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "falconweb.settings")
django_application = get_asgi_application()

from telemetry.routing import websocket_urlpatterns  # noqa: E402 - models need Django set up first

application = ProtocolTypeRouter(
    {
        "http": django_application,
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
