"""Settings of an agent, from environment variables."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agent.sysfs import read_text
from hostwire.signing import REPORT_SECONDS, WireError, decode_key, reply_queue_name


class SettingsError(Exception):
    """A setting is missing or invalid; the sentence names the variable."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one agent; docs/agent.md has the table."""

    host: str
    key: str = field(repr=False)
    broker: str = field(repr=False)
    site_queue: str
    root: Path = Path("/")
    state: Path = Path("/var/lib/falconweb-agent")
    period: float = REPORT_SECONDS
    # The time limit in seconds of one change by the kernel (unbind, remove); reads have a shorter one.
    step_seconds: float = 30.0
    # For benchmark runs: the Python that has PyTorch, and the account of users' own commands, '' for none.
    python: str = sys.executable
    account: str = ""
    # The host's IPv4 address in runs over several hosts, '' for none.
    rendezvous: str = ""
    most_runs: int = 8
    # A run without an event for this many seconds is ended.
    hang_seconds: float = 600.0
    sample_seconds: float = 1.0
    log_mib: float = 8.0
    # The PID of a process with which all runs end, 0 for none.
    parent: int = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings; raises SettingsError with the variable's name."""
        source = os.environ if environment is None else environment
        root = Path(source.get("AGENT_ROOT") or "/").resolve()
        host = source.get("AGENT_HOST") or _machine_identity(root)
        return cls(
            host=host,
            key=_key(source),
            broker=_required(source.get("AGENT_BROKER") or source.get("REDIS_URL", ""), "AGENT_BROKER"),
            root=root,
            state=Path(source.get("AGENT_STATE") or cls.state).resolve(),
            site_queue=source.get("AGENT_SITE_QUEUE") or reply_queue_name(host),
            period=_seconds(source, "AGENT_PERIOD", cls.period),
            step_seconds=_seconds(source, "AGENT_STEP_SECONDS", cls.step_seconds),
            python=source.get("AGENT_PYTHON") or cls.python,
            account=source.get("AGENT_ACCOUNT", ""),
            rendezvous=_rendezvous(source.get("AGENT_RENDEZVOUS", "")),
            most_runs=int(_number(source, "AGENT_MOST_RUNS", cls.most_runs, least=0, most=1000)),
            hang_seconds=_seconds(source, "AGENT_HANG_SECONDS", cls.hang_seconds),
            sample_seconds=_seconds(source, "AGENT_SAMPLE_SECONDS", cls.sample_seconds),
            log_mib=_number(source, "AGENT_LOG_MIB", cls.log_mib, least=0.01, most=1024),
            parent=int(_number(source, "AGENT_PARENT", cls.parent, least=0, most=2**31)),
        )

    @classmethod
    def of_process(cls) -> list[Settings]:
        """Read the settings of each host of this process: AGENT_ALSO has the variables of further ones, as JSON.

        Raises SettingsError with the variable's name.
        """
        try:
            also = msgspec.json.decode(os.environ.get("AGENT_ALSO") or "[]", type=list[dict[str, str]])
        except msgspec.DecodeError as error:
            raise SettingsError(f"AGENT_ALSO cannot be read: {error}.") from error
        return [cls.from_environment({**os.environ, **own}) for own in ({}, *also)]

    @property
    def simulated(self) -> bool:
        """Whether the host is simulated: a tree of files that is not this machine's."""
        return self.root != Path("/")

    @property
    def read_seconds(self) -> float:
        """The time limit in seconds of one read of the host."""
        return min(5.0, self.step_seconds)


def _machine_identity(root: Path) -> str:
    # The UUID by which the BMC of a chassis identifies the host, if it knows it.
    if identity := read_text(root / "sys/class/dmi/id/product_uuid"):
        return identity
    raise SettingsError("AGENT_HOST is missing, and this machine's UUID cannot be read. The site shows the identity.")


def _key(source: Mapping[str, str]) -> str:
    key = source.get("AGENT_KEY", "")
    if not key and (file := source.get("AGENT_KEY_FILE", "")):
        try:
            key = Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"AGENT_KEY_FILE names {file}, which cannot be read: {error}.") from error
    try:
        decode_key(_required(key, "AGENT_KEY"))
    except WireError as error:
        raise SettingsError(f"AGENT_KEY cannot be used. {error}") from error
    return key


def _rendezvous(address: str) -> str:
    try:
        if address and ipaddress.IPv4Address(address).is_unspecified:
            raise SettingsError(f"AGENT_RENDEZVOUS is '{address}', which is every address of this host: name one.")
    except ipaddress.AddressValueError:
        raise SettingsError(f"AGENT_RENDEZVOUS is '{address}'; it is an IPv4 address of this host.") from None
    return address


def _required(value: str, name: str) -> str:
    if not value:
        raise SettingsError(f"{name} is missing.")
    return value


def _seconds(source: Mapping[str, str], name: str, default: float) -> float:
    return _number(source, name, default, least=0.1, most=3600, unit=" seconds")


def _number(
    source: Mapping[str, str], name: str, default: float, *, least: float, most: float, unit: str = ""
) -> float:
    text = source.get(name, "")
    try:
        number = float(text) if text else default
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise SettingsError(f"{name} is '{text}'; it may be from {least:g} to {most:g}{unit}.")
    return number
