"""An operator of a running site: everything is done and seen over HTTP, and by the simulated chassis' own truth."""

from __future__ import annotations

import http.cookiejar
import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.site import ADMINISTRATOR_PASSWORD, RunningSite


class Operator:
    """The administrator of a running site, signed in."""

    def __init__(self, site: RunningSite) -> None:
        self.site = site
        self._cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self._cookies)
        )
        self._send("GET", "/sign-in/")
        form = {"username": "administrator", "password": ADMINISTRATOR_PASSWORD, "csrfmiddlewaretoken": self._csrf()}
        self._send("POST", "/sign-in/", urllib.parse.urlencode(form).encode(), "application/x-www-form-urlencoded")

    @property
    def cookies(self) -> str:
        """The header that a browser sends with each request, and with the handshake of a websocket."""
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in self._cookies)

    def _csrf(self) -> str:
        return next((cookie.value or "" for cookie in self._cookies if "csrf" in cookie.name), "")

    def _send(self, method: str, path: str, content: bytes | None = None, kind: str = "application/json") -> bytes:
        headers = {"Content-Type": kind, "X-CSRFToken": self._csrf()}
        request = urllib.request.Request(self.site.address + path, method=method, data=content, headers=headers)
        with self._opener.open(request, timeout=15) as reply:
            answer: bytes = reply.read()
        return answer

    def page(self, path: str) -> str:
        """Return what an address of the site answers, such as a page's or /metrics, as text."""
        return self._send("GET", path).decode()

    def get(self, path: str) -> Any:
        """Return what the API answers."""
        return json.loads(self._send("GET", f"/api/v1/{path}"))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send a request to the API and return its answer."""
        return json.loads(self._send("POST", f"/api/v1/{path}", json.dumps(body).encode()))

    def chassis(self, name: str) -> dict[str, Any]:
        """Return a chassis as the administrator sees it."""
        return next(one for one in self.get("chassis/") if one["name"] == name)

    def devices(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the devices of a chassis, by drawer and slot as its truth names them."""
        return {
            f"drawer{drawer['number']}slot{slot['number']}": slot["device"]
            for drawer in self.chassis(name)["drawers"]
            for slot in drawer["slots"]
            if slot["device"]
        }

    def seconds_read(self, name: str, seconds: float) -> list[float]:
        """Return the times of a chassis' readings in the last seconds."""
        pk = self.chassis(name)["id"]
        key = urllib.parse.quote(self.get(f"chassis/{pk}/series/")[0]["key"])
        times: list[float] = self.get(f"chassis/{pk}/readings/?keys={key}&seconds={seconds:.0f}")["at"]
        return times


def parent_of(pid: int) -> int:
    # The name in parentheses may hold spaces.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
