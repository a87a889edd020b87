"""Syslog over real sockets: datagrams, streams framed by octet counting, TLS."""

from __future__ import annotations

from typing import Literal

import pytest

from core.endpoints import DeliveryFailed
from core.errors import Invalid
from simulator.certificates import ServerCertificate, server_certificate
from telemetry.delivery.senders import send_syslog
from tests.telemetry.delivery.sinks import SyslogSink, closed_port
from tests.waiting import wait_for

MESSAGES = [b"<14>1 - - - - - - one", b"<14>1 - - - - - - two\nlines", "<14>1 - - - - - - drei und äöü".encode()]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ServerCertificate:
    return server_certificate(tmp_path_factory.mktemp("tls"))


def got(sink: SyslogSink, messages: list[bytes]) -> bool:
    return sink.got == messages


@pytest.mark.parametrize("kind", ["udp", "tcp", "tls"])
def test_messages_arrive_whole_and_in_order(kind: Literal["udp", "tcp", "tls"], certificate: ServerCertificate) -> None:
    with SyslogSink(kind, certificate) as sink:
        ca = certificate.pem if kind == "tls" else ""
        send_syslog(address=sink.address, messages=MESSAGES, ca=ca)
        if kind != "udp":
            assert sink.got == MESSAGES, "a stream returned before everything was taken"
        wait_for(lambda: got(sink, MESSAGES))


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_million_bytes_are_taken_before_it_returns(
    kind: Literal["tcp", "tls"], certificate: ServerCertificate
) -> None:
    messages = [b"<14>1 - - - - - - " + b"x" * 1000] * 1000
    with SyslogSink(kind, certificate) as sink:
        send_syslog(address=sink.address, messages=messages, ca=certificate.pem)
        assert len(sink.got) == 1000


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_a_server_that_hangs_up_has_taken_nothing(kind: Literal["tcp", "tls"], certificate: ServerCertificate) -> None:
    with SyslogSink(kind, certificate) as sink:
        sink.mood = "hangs up"
        with pytest.raises(DeliveryFailed) as raised:
            send_syslog(address=sink.address, messages=[b"x" * 100_000] * 50, ca=certificate.pem)
        assert not raised.value.permanent


def test_a_server_that_reads_nothing_is_not_waited_for() -> None:
    with SyslogSink("tcp") as sink:
        sink.mood = "silent"
        with pytest.raises(DeliveryFailed, match="in time"):
            send_syslog(address=sink.address, messages=[b"x" * 1_000_000] * 10, timeout=0.7)


def test_a_certificate_is_checked(certificate: ServerCertificate) -> None:
    with SyslogSink("tls", certificate) as sink:
        with pytest.raises(DeliveryFailed, match="not trusted"):
            send_syslog(address=sink.address, messages=MESSAGES)
        assert sink.got == []


@pytest.mark.parametrize("kind", ["tcp", "tls", "udp"])
def test_a_port_where_nothing_listens_is_told(kind: str) -> None:
    with pytest.raises(DeliveryFailed, match="Nothing listens"):
        send_syslog(address=f"{kind}://127.0.0.1:{closed_port()}", messages=MESSAGES)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("http://host", "begins with"),
        ("host:514", "begins with"),
        ("tcp://host:514/path", "ends after its port"),
        ("tcp://host?x=1", "ends after its port"),
        ("udp://name:pw@host", "name and password"),
        ("udp://169.254.1.1", "link-local"),
        ("udp://255.255.255.255", "not the address of a single"),
    ],
)
def test_an_address_that_may_not_be_is_refused(address: str, sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence):
        send_syslog(address=address, messages=MESSAGES)
