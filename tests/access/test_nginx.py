"""The documentation's configuration of nginx, in front of a site: what it passes on, and what it keeps."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from falconweb.launch.broker import free_port
from tests.processes import ROOT
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed: apt-get install nginx-light"),
]
IMPORT = "/api/v1/benchmarks/records/"
MAIN = """
daemon off; {user} pid {folder}/pid; error_log {folder}/error.log warn; events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; scgi_temp_path {folder}/scgi; uwsgi_temp_path {folder}/uwsgi;
  include {folder}/falconweb.conf;
}}
"""


class Proxy:
    """nginx with the documentation's configuration; only its port, its certificate and the site's port are others."""

    def __init__(self, folder: Path, site: RunningSite) -> None:
        self.log = folder / "error.log"
        self.port = free_port()
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
             "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", folder / "key", "-out", folder / "certificate"],
            check=True, capture_output=True,
        )  # fmt: skip
        text = (ROOT / "docs" / "nginx" / "falconweb.conf").read_text()
        for documented, here in (
            ("listen 443 ssl;", f"listen 127.0.0.1:{self.port} ssl;"),
            ("/etc/ssl/certs/falconweb.pem", str(folder / "certificate")),
            ("/etc/ssl/private/falconweb.key", str(folder / "key")),
            ("http://127.0.0.1:8000", site.address),
        ):
            assert documented in text
            text = text.replace(documented, here)
        self.trust = ssl.create_default_context(cafile=folder / "certificate")
        (folder / "falconweb.conf").write_text(text)
        main = MAIN.format(folder=folder, user="user root;" if os.geteuid() == 0 else "")
        (folder / "nginx.conf").write_text(main)
        self.process = subprocess.Popen(["nginx", "-p", folder, "-e", self.log, "-c", folder / "nginx.conf"])
        wait_for(lambda: (folder / "pid").exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, bytes]:
        """Return status, headers and body of an answer."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.trust)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        text = b"" if answer.status == 101 else answer.read()
        connection.close()
        return answer.status, answer.headers, text


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """nginx in front of a site that is reached by HTTPS."""
    settings: dict[str, Any] = {"FALCONWEB_SIMULATED": "0", "FALCONWEB_HTTPS": "1", "FALCONWEB_TRUSTED_PROXIES": "1"}
    with RunningSite(tmp_path_factory.mktemp("proxied") / "data", **settings) as site:
        proxy = Proxy(tmp_path_factory.mktemp("nginx"), site)
        yield proxy
        proxy.process.terminate()
        proxy.process.wait(timeout=60)


@pytest.fixture(scope="module")
def cookies(proxy: Proxy) -> str:
    """The cookies of an administrator who signed in."""
    _, headers, page = proxy.ask("GET", "/sign-in/")
    token = page.decode().partition('csrfmiddlewaretoken" value="')[2].partition('"')[0]
    form = f"username=administrator&password={ADMINISTRATOR_PASSWORD}&csrfmiddlewaretoken={token}"
    status, found, _ = proxy.ask(
        "POST", "/sign-in/", form, Cookie=headers["Set-Cookie"].split(";")[0], Referer="https://127.0.0.1/sign-in/",
        Content_Type="application/x-www-form-urlencoded",
    )  # fmt: skip
    assert status == 302
    return "; ".join(one.split(";")[0] for one in found.get_all("Set-Cookie"))


def test_of_the_large_body_of_a_stranger_nothing_is_kept(proxy: Proxy) -> None:
    for size in (2**20, 30 * 2**20, 40 * 2**20):
        try:
            status = proxy.ask("POST", IMPORT, b"a" * size, Content_Type="text/plain")[0]
        except ConnectionError:  # refused before all of it was sent
            continue
        assert status == 413
    assert "temporary file" not in proxy.log.read_text()


def test_who_is_signed_in_sends_what_the_site_allows(proxy: Proxy, cookies: str) -> None:
    csrf = cookies.partition("csrf=")[2].partition(";")[0]
    asked = {"Cookie": cookies, "X_CSRFToken": csrf, "Referer": "https://127.0.0.1/"}
    made = json.dumps({"name": "job", "scope": "write", "days": 1})
    status, _, answer = proxy.ask("POST", "/api/v1/me/tokens/", made, Content_Type="application/json", **asked)
    assert status == 201, answer
    bearer = {"Authorization": f"Bearer {json.loads(answer)['secret']}", "Content_Type": "text/plain"}
    status, _, answer = proxy.ask("POST", IMPORT, b"a" * (32 * 2**20), **bearer)
    assert (status, json.loads(answer)["code"]) == (400, "invalid")  # all of it was read, and is no record
    assert "temporary file" not in proxy.log.read_text()


def test_a_websocket_passes(proxy: Proxy, cookies: str) -> None:
    upgrade = {
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "MDAwMDAwMDAwMDAwMDAwMA==", "Cookie": cookies,
    }  # fmt: skip
    assert proxy.ask("GET", "/ws/live/", Origin="https://127.0.0.1", **upgrade)[0] == 101
    assert proxy.ask("GET", "/ws/live/", Origin="https://evil.example", **upgrade)[0] == 403
