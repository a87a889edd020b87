"""An operator of a running site: everything is done and seen over HTTP."""

from __future__ import annotations

import http.cookiejar
import json
import math
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.site import ADMINISTRATOR_PASSWORD, RunningSite

LOOK_SECONDS = 0.8  # many wait side by side: each looks rarely, and at what another has just been told


@dataclass
class Look:
    """What the API answered at last, and when it was asked (s)."""

    began: float = -math.inf
    answer: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Operator:
    """The administrator of a running site, signed in; threads may share one.

    `cookies` is the header that a browser sends with each request, and with the handshake of a websocket.
    """

    def __init__(self, site: RunningSite) -> None:
        self.site = site
        jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar)
        )
        self.cookies, self._csrf = "", ""
        self._looks: defaultdict[str, Look] = defaultdict(Look)
        self._send("GET", "/sign-in/")
        self._csrf = _csrf_of(jar)
        form = {"username": "administrator", "password": ADMINISTRATOR_PASSWORD, "csrfmiddlewaretoken": self._csrf}
        self._send("POST", "/sign-in/", urllib.parse.urlencode(form).encode(), "application/x-www-form-urlencoded")
        self.cookies, self._csrf = "; ".join(f"{one.name}={one.value}" for one in jar), _csrf_of(jar)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def _send(self, method: str, path: str, content: bytes | None = None, kind: str = "application/json") -> bytes:
        headers = {"Content-Type": kind, "X-CSRFToken": self._csrf}
        if self.cookies:
            headers["Cookie"] = self.cookies
        request = urllib.request.Request(self.site.address + path, method=method, data=content, headers=headers)
        with self._opener.open(request, timeout=30) as reply:
            answer: bytes = reply.read()
        return answer

    def page(self, path: str) -> str:
        """Return what an address of the site answers, such as a page's or /metrics, as text."""
        return self._send("GET", path).decode()

    def status(self, path: str) -> int:
        """Return the status that an address answers with; 0 where nobody answers."""
        try:
            self._send("GET", path)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0
        return 200

    def get(self, path: str) -> Any:
        """Return what the API answers."""
        return json.loads(self._send("GET", f"/api/v1/{path}"))

    def look(self, path: str, *, since: float) -> Any:
        """Return what the API has answered after a moment (monotonic s), to whomever of those who wait."""
        look = self._looks[path]
        with look.lock:
            now = time.monotonic()
            if look.began < max(since, now - LOOK_SECONDS):
                look.answer, look.began = self.get(path), now
            return look.answer

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send a request to the API and return its answer."""
        return self._ask("POST", path, body)

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Have the API change something, and return its answer."""
        return self._ask("PATCH", path, body)

    def _ask(self, method: str, path: str, body: dict[str, Any]) -> Any:
        return json.loads(self._send(method, f"/api/v1/{path}", json.dumps(body).encode()))


def _csrf_of(jar: http.cookiejar.CookieJar) -> str:
    return next((cookie.value or "" for cookie in jar if "csrf" in cookie.name), "")
