"""The setting that names a mail server."""

from __future__ import annotations

import pytest

from falconweb.config import CONSOLE_BACKEND, SMTP_BACKEND, Config, ConfigurationError, MailServer


def test_without_the_setting_there_is_no_mail_server() -> None:
    assert MailServer.from_url("") is None


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtp://mail.example", MailServer(backend=SMTP_BACKEND, host="mail.example", port=587, starttls=True)),
        (
            "smtp://fal%40con:p%3Aw@mail.example:25?tls=no",
            MailServer(backend=SMTP_BACKEND, host="mail.example", port=25, name="fal@con", password="p:w"),
        ),
        ("smtps://mail.example", MailServer(backend=SMTP_BACKEND, host="mail.example", port=465, tls=True)),
        ("smtp://[::1]:2525?tls=no", MailServer(backend=SMTP_BACKEND, host="::1", port=2525)),
        ("console:", MailServer(backend=CONSOLE_BACKEND)),
    ],
)
def test_an_address_is_read(url: str, server: MailServer) -> None:
    assert MailServer.from_url(url) == server


@pytest.mark.parametrize(
    "url",
    ["mail.example", "http://mail.example", "smtp://", "smtp://mail.example:99999", "smtp://a?tls=perhaps",
     "smtp://a?tls", "smtps://a?x=1", "smtp://[", "smtp://:secret@"],
)  # fmt: skip
def test_an_address_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="FALCONWEB_EMAIL_URL cannot be used") as refused:
        MailServer.from_url(url)
    assert "secret" not in str(refused.value)


def test_a_password_is_in_no_representation() -> None:
    url = "smtp://falcon:a-secret@mail.example"
    assert "a-secret" not in repr(MailServer.from_url(url))
    assert "a-secret" not in repr(Config.from_environment({"FALCONWEB_EMAIL_URL": url}))


def test_warnings_are_times_in_days_hours_and_minutes() -> None:
    assert Config.from_environment({}).lease_warning_seconds == (3600, 86400, 604800)
    assert Config.from_environment({"FALCONWEB_LEASE_WARNINGS": "30m, 2d,30m"}).lease_warning_seconds == (1800, 172800)


@pytest.mark.parametrize("text", ["soon", "7", "d", "-1d", "0h", "1.5h", "7w", "999999d"])
def test_a_warning_that_is_no_time_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="FALCONWEB_LEASE_WARNINGS has"):
        _ = Config.from_environment({"FALCONWEB_LEASE_WARNINGS": text}).lease_warning_seconds


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({}, "http://localhost:8000"),
        ({"FALCONWEB_HTTPS": "1", "FALCONWEB_ALLOWED_HOSTS": "falcon.example"}, "https://falcon.example"),
        ({"FALCONWEB_ALLOWED_HOSTS": "*,.example.org,falcon.example"}, "http://falcon.example"),
        ({"FALCONWEB_ALLOWED_HOSTS": "*"}, ""),
    ],
)
def test_letters_know_where_the_site_is_as_far_as_the_settings_tell(environment: dict[str, str], address: str) -> None:
    assert Config.from_environment(environment).address == address
