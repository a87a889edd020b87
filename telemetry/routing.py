"""Websocket addresses."""

from __future__ import annotations

from typing import Any, cast

from django.urls import path

from telemetry.consumers import LiveConsumer

websocket_urlpatterns: list[Any] = [path("ws/live/", cast("Any", LiveConsumer.as_asgi()))]
