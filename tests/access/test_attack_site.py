"""Attacks on a whole site in processes of its own: forged headers, sign-ins at once, large requests, open files."""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fabric.allocation.reader import FILE_TOO_LARGE
from falconweb.config import Config
from falconweb.launch.commands import MAX_SOCKET_MESSAGE_BYTES
from tests.site import ADMINISTRATOR_PASSWORD, RunningSite, processes_of

pytestmark = pytest.mark.process

PROC = Path("/proc")
MOST_MEMORY = 900  # MiB; a web process has 220 at rest, and each password that is checked takes 100
CROWD = 12  # people who sign in at once: 1,400 MiB where no bound holds them


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSite]:
    """A site without chassis, in a folder that it makes itself."""
    with RunningSite(tmp_path_factory.mktemp("attacked") / "data", FALCONWEB_SIMULATED="0") as running:
        yield running


def ask(site: RunningSite, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any, str]:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def guess(site: RunningSite, name: str, **headers: str) -> int:
    _, found, page = ask(site, "GET", "/sign-in/")
    token = re.search('csrfmiddlewaretoken" value="([^"]+)', page)
    assert token
    form = urlencode({"username": name, "password": "wrong", "csrfmiddlewaretoken": token[1]}).encode()
    kind = "application/x-www-form-urlencoded"
    cookie = found["Set-Cookie"].split(";")[0]
    return ask(site, "POST", "/sign-in/", form, Cookie=cookie, Content_Type=kind, **headers)[0]


def processes(site: RunningSite) -> dict[int, str]:
    """Return the command line of every process of the site."""
    found = {}
    for place in PROC.iterdir():
        if place.name.isdecimal():
            try:
                environment = (place / "environ").read_bytes()
                command = (place / "cmdline").read_bytes()
            except OSError:
                continue
            if str(site.data).encode() in environment:
                found[int(place.name)] = command.replace(b"\0", b" ").decode()
    return found


@pytest.mark.nightly
def test_who_sends_all_of_a_file_that_is_too_large_hears_why(site: RunningSite) -> None:
    file = b" " * (50 * 2**20)
    status, headers, text = ask(site, "POST", "/api/v1/allocation/", file, Content_Type="application/json")
    assert (status, headers["Content-Type"]) == (413, "application/problem+json")
    assert [json.loads(text)[name] for name in ("code", "detail")] == ["too_large", FILE_TOO_LARGE]
    # Who asks before it sends need not send it.
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    connection.putrequest("POST", "/api/v1/allocation/")
    for name, value in (("Content-Length", str(len(file))), ("Expect", "100-continue")):
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    _, found, page = ask(site, "GET", "/sign-in/")
    token = re.search('csrfmiddlewaretoken" value="([^"]+)', page)
    assert token
    form = {"username": "administrator", "password": ADMINISTRATOR_PASSWORD, "csrfmiddlewaretoken": token[1]}
    cookie = found["Set-Cookie"].split(";")[0]
    kind = "application/x-www-form-urlencoded"
    status, headers, _ = ask(site, "POST", "/sign-in/", urlencode(form).encode(), Cookie=cookie, Content_Type=kind)
    assert status == 302
    cookies = "; ".join(one.split(";")[0] for one in headers.get_all("Set-Cookie"))
    status, headers, text = ask(site, "POST", "/allocation/", file, Cookie=cookies, Content_Type=kind)
    assert (status, headers["Connection"]) == (413, "close")
    assert FILE_TOO_LARGE in text
    assert '<nav aria-label="Main"' in text
    assert ask(site, "GET", "/allocation/", Cookie=cookies)[0] == 200


def test_a_forged_address_gives_no_more_guesses(site: RunningSite) -> None:
    codes = [guess(site, "somebody", X_Forwarded_For=f"198.51.100.{number}") for number in range(12)]
    assert codes[0] == 200
    assert codes[-1] == 429


@pytest.mark.nightly
@pytest.mark.skipif(not PROC.is_dir(), reason="needs Linux")
def test_many_who_sign_in_at_once_do_not_fill_the_memory(site: RunningSite) -> None:
    with ThreadPoolExecutor(CROWD) as crowd:
        answers = set(crowd.map(lambda number: guess(site, f"nobody{number}"), range(CROWD)))
    # Where a machine is slow some are asked to come again (503): the database is asked to wait for nobody for long.
    assert 200 in answers <= {200, 503}
    (web,) = processes_of(site, "web")
    peak = re.search(r"VmHWM:\s+(\d+) kB", (PROC / str(web) / "status").read_text())
    assert peak
    assert int(peak[1]) // 1024 < MOST_MEMORY


def test_a_large_request_is_refused_and_the_next_one_is_served(site: RunningSite) -> None:
    with pytest.raises(ConnectionError):
        # Refused before it is sent to its end.
        ask(site, "POST", "/sign-in/", b"a" * 200_000_000)
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    connection.putrequest("POST", "/api/v1/operations/")
    connection.putheader("Content-Length", str(10**15))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert ask(site, "GET", "/sign-in/")[0] == 200


def test_a_host_that_is_not_the_sites_is_refused(site: RunningSite) -> None:
    for host in ("evil.example", f"127.0.0.1:{site.port}@evil.example", "a b"):
        assert ask(site, "GET", "/sign-in/", Host=host)[0] == 400
    answer = ask(site, "GET", "/people", X_Forwarded_Host="evil.example", X_Forwarded_Proto="https")
    assert "evil" not in str(answer)


def open_socket(site: RunningSite, path: str, payload: bytes) -> bytes:
    """Open a websocket by hand, send bytes, return all that comes back until there is silence."""
    key = base64.b64encode(b"0" * 16).decode()
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{site.port}", "Upgrade: websocket", "Connection: Upgrade",
             f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", f"Origin: {site.address}", "", ""]  # fmt: skip
    with socket.create_connection(("127.0.0.1", site.port), timeout=10) as wire:
        found = b""
        try:
            wire.sendall("\r\n".join(lines).encode() + payload)
            # The server waits for an answer to its closing, which a stranger need not give.
            wire.settimeout(1.5)
            while chunk := wire.recv(65536):
                found += chunk
        except (ConnectionError, TimeoutError):
            pass
        return found


def test_a_stranger_leaves_no_traces_of_errors_by_sockets(site: RunningSite) -> None:
    log = site.data / "logs" / "web.log"
    before = log.read_text()
    large = bytes([0x81, 0xFF]) + (MAX_SOCKET_MESSAGE_BYTES * 4).to_bytes(8, "big") + bytes(4) + b"a" * 1000
    for path, payload in (
        ("/ws/live/", bytes([0x81, 0x82, 0, 0, 0, 0]) + b"{}"),
        ("/ws/live/", large),
        ("/ws/no/", b""),
    ):
        assert b" 500 " not in open_socket(site, path, payload)
    assert "Traceback" not in log.read_text()[len(before) :]


def test_the_folder_is_the_owners_alone(site: RunningSite) -> None:
    assert stat.S_IMODE(site.data.stat().st_mode) == 0o700
    kept = [path for path in site.data.rglob("*") if path.is_file() and "static" not in path.parts]
    assert any(path.name == "falconweb.sqlite3" for path in kept)
    assert not [path for path in kept if path.stat().st_mode & 0o077]


def test_no_secret_is_in_a_log_a_list_of_processes_or_what_was_said(site: RunningSite) -> None:
    secrets = [ADMINISTRATOR_PASSWORD, *(path.read_text().strip() for path in (site.data / "secrets").iterdir())]
    texts = [path.read_text(errors="replace") for path in (site.data / "logs").iterdir()]
    texts += [*processes(site).values(), *site.said]
    assert len(secrets) >= 4
    assert not [secret for secret in secrets for text in texts if secret in text]


def test_settings_that_are_printed_hide_their_secrets() -> None:
    secret = "a-secret-of-the-operator"
    names = (
        "FALCONWEB_SECRET_KEY",
        "FALCONWEB_CREDENTIALS_KEY",
        "FALCONWEB_ADMIN_PASSWORD",
        "DATABASE_URL",
        "REDIS_URL",
    )
    assert secret not in repr(Config.from_environment(dict.fromkeys(names, secret)))
