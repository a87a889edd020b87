"""Settings of the environment."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import pytest

from falconweb.config import BASE_DIR, Config, ConfigurationError, stored_secret


def test_defaults_hold_where_nothing_is_set() -> None:
    config = Config.from_environment({})
    assert config.port == 8000
    assert config.host == "127.0.0.1"
    assert not config.https


def test_every_kind_of_setting_is_converted(tmp_path: Path) -> None:
    config = Config.from_environment(
        {
            "PORT": "9000",
            "FALCONWEB_HTTPS": "1",
            "FALCONWEB_ALLOWED_HOSTS": "a.example, b.example",
            "FALCONWEB_DATA": str(tmp_path),
            "FALCONWEB_READING_PERIOD": "2.5",
        }
    )
    assert (config.port, config.https, config.reading_period) == (9000, True, 2.5)
    assert config.allowed_hosts == ("a.example", "b.example")
    assert config.data == tmp_path


@pytest.mark.parametrize(("name", "text"), [("PORT", "eighty"), ("FALCONWEB_HTTPS", "perhaps")])
def test_a_setting_that_cannot_be_understood_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is '{text}'"):
        Config.from_environment({name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PORT", "70000"), ("FALCONWEB_READING_PERIOD", "0"), ("FALCONWEB_READING_PERIOD", "nan"),
        ("FALCONWEB_INVENTORY_PERIOD", "-1"), ("FALCONWEB_SIMULATED", "5"), ("FALCONWEB_WEB_PROCESSES", "0"),
    ],
)  # fmt: skip
def test_a_setting_out_of_its_range_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is .*; it may be from"):
        Config.from_environment({name: text})


def test_readings_are_kept_for_a_day_a_week_a_quarter_and_two_years_unless_told() -> None:
    assert Config().keep_seconds == (86400, 7 * 86400, 92 * 86400, 731 * 86400)
    config = Config.from_environment({"FALCONWEB_KEEP_RAW": "36h", "FALCONWEB_KEEP_10S": "14d"})
    assert config.keep_seconds[:2] == (36 * 3600, 14 * 86400)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("FALCONWEB_KEEP_RAW", "soon", "'soon', which is no time such as 7d, 1h or 30m"),
        ("FALCONWEB_KEEP_RAW", "30m", "FALCONWEB_KEEP_RAW is '30m'; it may be 2h or more"),
        ("FALCONWEB_KEEP_10S", "12h", "FALCONWEB_KEEP_10S is '12h', which is less than what is finer is kept"),
        ("FALCONWEB_KEEP_1MIN", "3d", "FALCONWEB_KEEP_1MIN is '3d', which is less"),
        ("FALCONWEB_KEEP_15MIN", "30d", "FALCONWEB_KEEP_15MIN is '30d', which is less"),
    ],
)
def test_a_period_that_readings_cannot_be_kept_for_is_named(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        _ = Config.from_environment({name: text}).keep_seconds


def test_a_role_that_there_is_not_needs_no_second_factor() -> None:
    name = "FALCONWEB_SECOND_FACTOR_ROLES"
    assert Config.from_environment({name: "user, administrator"}).second_factor_roles == ("user", "administrator")
    with pytest.raises(ConfigurationError, match="'emperor'; it may be administrator or user or viewer"):
        Config.from_environment({name: "user,emperor"})


def test_a_generated_secret_is_kept_and_readable_by_the_owner_only(tmp_path: Path) -> None:
    first = stored_secret(tmp_path, "secret_key")
    assert len(first) >= 43
    assert stored_secret(tmp_path, "secret_key") == first
    assert stat.S_IMODE((tmp_path / "secrets" / "secret_key").stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [b"", b"half-of-it", b"\xfe" * 64, b"\0" * 64, None])
def test_a_secret_that_is_damaged_is_none(tmp_path: Path, damage: bytes | None) -> None:
    stored_secret(tmp_path, "secret_key")
    file = tmp_path / "secrets" / "secret_key"
    file.unlink()
    file.mkdir() if damage is None else file.write_bytes(damage)
    with pytest.raises(ConfigurationError, match=r"secrets/secret_key (is damaged|cannot be read).*Restore it from"):
        stored_secret(tmp_path, "secret_key")


def test_of_many_that_need_a_secret_at_once_all_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(lambda _: stored_secret(tmp_path, "audit_key"), range(64)))
    assert len(found) == 1
    assert [one.name for one in (tmp_path / "secrets").iterdir()] == ["audit_key"]


def test_every_setting_is_in_the_operators_documentation() -> None:
    documentation = (BASE_DIR / "docs" / "operate.md").read_text()
    for setting in fields(Config):
        assert f"| `{setting.metadata['name']}` |" in documentation
        assert setting.metadata["description"] in documentation
