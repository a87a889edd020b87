"""Webhooks over real connections: what arrives, what is signed, what a failure is called."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from core.addresses import refusal_reason
from core.endpoints import DeliveryFailed, retry_after_seconds
from core.errors import Invalid
from simulator.certificates import ServerCertificate, server_certificate
from telemetry.delivery.senders import send_webhook
from tests.telemetry.delivery.sinks import HttpSink, closed_port


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ServerCertificate:
    return server_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def sink() -> Iterator[HttpSink]:
    with HttpSink() as running:
        yield running


def failure(sink: HttpSink, **more: float) -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as raised:
        send_webhook(url=sink.url, body=b"x", content_type="text/plain", **more)  # type: ignore[arg-type]
    return raised.value


def test_a_body_arrives_as_it_was_with_an_id(sink: HttpSink) -> None:
    send_webhook(
        url=f"{sink.url}/events/é?to=a b".replace(" ", "%20"), body=b"\0\xff", content_type="application/json",
        message_id="run-1.7",
    )  # fmt: skip
    (got,) = sink.got
    assert (got.path, got.body) == ("/events/%C3%A9?to=a%20b", b"\0\xff")
    assert got.headers["webhook-id"] == "run-1.7"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["host"] == f"127.0.0.1:{sink.port}"
    assert "webhook-signature" not in got.headers


@pytest.mark.parametrize(
    ("secret", "key"),
    [("our secret é", "our secret é".encode()), (f"whsec_{base64.b64encode(b'k' * 24).decode()}", b"k" * 24)],
)
def test_a_signature_is_that_of_standard_webhooks(sink: HttpSink, secret: str, key: bytes) -> None:
    send_webhook(url=sink.url, body=b'{"a":1}', content_type="application/json", secret=secret)
    (got,) = sink.got
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    wanted = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert got.headers["webhook-signature"] == f"v1,{wanted}"
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 60


@pytest.mark.parametrize(
    ("status", "permanent"),
    [(301, True), (307, True), (400, True), (401, True), (404, True), (410, True), (422, True), (408, False),
     (425, False), (429, False), (500, False), (502, False), (503, False)],
)  # fmt: skip
def test_what_would_fail_again_is_told_from_what_may_not(sink: HttpSink, status: int, permanent: bool) -> None:
    sink.answer = lambda _got: (status, {"Location": "/elsewhere"})
    error = failure(sink)
    assert error.permanent == permanent
    assert f"127.0.0.1:{sink.port} answered {status}" in error.sentence
    assert sink.asked == 1, "a redirect was followed"


def test_retry_after_is_heard_in_seconds_and_as_a_date(sink: HttpSink) -> None:
    sink.answer = lambda _got: (503, {"Retry-After": "17"})
    assert failure(sink).retry_after == 17
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True)
    sink.answer = lambda _got: (429, {"Retry-After": later})
    assert 30 < (failure(sink).retry_after or 0) <= 41
    sink.answer = lambda _got: (404, {"Retry-After": "17"})
    assert failure(sink).retry_after is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("0", 0), ("999999999999", 3600), ("-1", None), ("soon", None), ("", None), (None, None), ("١٧", None),
     ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("Wed, 21 Oct 9999 07:28:00 GMT", 3600)],
)  # fmt: skip
def test_a_retry_after_is_within_reason_or_none(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, time.time()) == seconds


@pytest.mark.parametrize("mood", ["silent", "drips"])
def test_who_answers_never_or_byte_by_byte_is_not_waited_for(sink: HttpSink, mood: str) -> None:
    sink.mood = mood  # type: ignore[assignment]  # one of its moods
    begin = time.monotonic()
    assert "did not answer in time" in failure(sink, timeout=0.6).sentence
    assert time.monotonic() - begin < 20


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                try:
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    while True:
                        connection.sendall(b"x" * 65_536)
                except OSError:
                    pass

        thread = threading.Thread(target=talk)
        thread.start()
        send_webhook(url=f"http://127.0.0.1:{listening.getsockname()[1]}", body=b"", content_type="text/plain")
        thread.join(60)
        assert not thread.is_alive()


def test_what_is_no_http_is_a_failure_that_may_pass() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(DeliveryFailed, match="broke off") as raised:
            send_webhook(url=f"http://127.0.0.1:{listening.getsockname()[1]}", body=b"", content_type="text/plain")
        thread.join(60)
        assert not raised.value.permanent


def test_a_port_where_nothing_listens_and_a_connection_that_breaks_are_told(sink: HttpSink) -> None:
    with pytest.raises(DeliveryFailed, match="Nothing listens") as raised:
        send_webhook(url=f"http://127.0.0.1:{closed_port()}/", body=b"", content_type="text/plain")
    assert not raised.value.permanent
    sink.mood = "hangs up"
    assert not failure(sink).permanent


def test_a_certificate_is_checked_against_the_ca_that_is_given(certificate: ServerCertificate) -> None:
    with HttpSink(certificate) as sink:
        send_webhook(url=sink.url, body=b"hello", content_type="text/plain", ca=certificate.pem)
        assert sink.bodies == [b"hello"]
        with pytest.raises(DeliveryFailed, match="not trusted"):
            send_webhook(url=sink.url, body=b"x", content_type="text/plain")
        with pytest.raises(Invalid, match="PEM"):
            send_webhook(url=sink.url, body=b"x", content_type="text/plain", ca="not a certificate")
        assert len(sink.got) == 1


def test_proxies_of_the_environment_are_not_used(sink: HttpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    send_webhook(url=sink.url, body=b"", content_type="text/plain")
    assert len(sink.got) == 1


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("file:///etc/passwd", "begins with"),
        ("ftp://host/x", "begins with"),
        ("https:/host", "begins with"),
        ("//host/x", "begins with"),
        ("", "begins with"),
        ("http://user:secret@host/", "name and password"),
        ("http://@host/", "name and password"),
        ("http://", "has no host"),
        ("http://:80/", "has no host"),
        ("http://host:99999/", "not a valid address"),
        ("http://host:0/", "Port 0"),
        ("http://host/a b", "space"),
        ("http://host/\r\nX-Evil: 1", "space"),
        ("http://host/\0", "space"),
        ("http://host\\@other/", "name and password"),
        ("http://host\\other/", "leave out"),
        ("http://host/#part", "leave out"),
        ("http://[::1/", "not a valid address"),
        ("http://" + "a" * 70 + ".example/", "not a valid host name"),
        ("http://a..b/", "not a valid host name"),
        ("http://host/" + "a" * 2000, "2000"),
        ("http://169.254.169.254/latest/meta-data", "link-local"),
        ("http://[fe80::1]/", "link-local"),
        ("http://[::ffff:169.254.169.254]/", "link-local"),
        ("http://[64:ff9b::a9fe:a9fe]/", "link-local"),
        ("http://[2002:a9fe:a9fe::]/", "link-local"),
        ("http://[fd00:ec2::254]/", "credentials"),
        ("http://0.0.0.0/", "not the address of a single"),
        ("http://[::]/", "not the address of a single"),
        ("http://224.0.0.1/", "not the address of a single"),
    ],
)
def test_an_address_that_may_not_be_is_refused_before_anything_is_sent(url: str, sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence):
        send_webhook(url=url, body=b"", content_type="text/plain")


@pytest.mark.parametrize("host", ["2852039166", "0xA9FEA9FE", "169.254.43518", "0251.0376.0251.0376"])
def test_a_link_local_address_in_disguise_is_refused_when_it_is_looked_up(host: str) -> None:
    """What the system's resolver takes for 169.254.169.254 although it is no address to Python."""
    with pytest.raises(DeliveryFailed, match="link-local") as raised:
        send_webhook(url=f"http://{host}/", body=b"", content_type="text/plain", timeout=2)
    assert raised.value.permanent


@pytest.mark.parametrize(
    "number", ["127.0.0.1", "::1", "10.0.0.5", "192.168.1.1", "192.0.2.1", "fd00::1", "2001:db8::"]
)
def test_addresses_of_a_lab_are_allowed(number: str) -> None:
    assert refusal_reason(number) == ""


def test_a_name_that_nobody_knows_is_a_failure_that_may_pass() -> None:
    with pytest.raises(DeliveryFailed, match="not known") as raised:
        send_webhook(url="http://no-such-host.invalid/", body=b"", content_type="text/plain")
    assert not raised.value.permanent


def test_a_header_cannot_be_made_two(sink: HttpSink) -> None:
    with pytest.raises(Invalid):
        send_webhook(url=sink.url, body=b"", content_type="text/plain\r\nX-Evil: 1")
    assert sink.asked == 0
