"""`manage.py inventory`: print the inventory of a Redfish service, without the database."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import sys
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import CommandParser

from core.commands import ExitCodeCommand
from fabric.bmc.addresses import BmcAddress, CertificateTrust
from fabric.bmc.client import BmcClient
from fabric.bmc.discovery import discover
from fabric.bmc.errors import (
    BmcError,
    CertificateRejected,
    NotRedfish,
    SignInRefused,
    TimedOut,
    Unreachable,
    WrongAddress,
)
from fabric.bmc.gaps import ProfileGap
from fabric.bmc.interoperability import FABRIC_PROFILE, InteropProfile, ProfileError, read_profile
from fabric.bmc.types import Inventory, InventoryProblem
from fabric.inventory.access import RequestSlots
from fabric.inventory.gaps import gap_groups, gap_sentence

OK, USAGE, UNREACHABLE, REFUSED, NOT_REDFISH, CERTIFICATE, OTHER = 0, 2, 3, 4, 5, 6, 7
EXIT_CODES: tuple[tuple[type[BmcError], int], ...] = (
    (WrongAddress, USAGE),
    (Unreachable, UNREACHABLE),
    (TimedOut, UNREACHABLE),
    (SignInRefused, REFUSED),
    (NotRedfish, NOT_REDFISH),
    (CertificateRejected, CERTIFICATE),
)
EXPLAINED = """\
exit codes:
  0  the inventory was printed, with any problems it lists
  2  wrong usage: an address, file, profile or fingerprint that cannot be used
  3  no server answers at the address, or not in time
  4  the service refuses the name and password
  5  the server is not a Redfish service
  6  the certificate is not trusted
  7  another failure

The password comes from --password-file, else from a prompt on the terminal. REQUESTS_CA_BUNDLE, proxies and other
settings of the environment are ignored. Without --ca and --fingerprint the system's CAs are trusted.
"""
# Kind, and the columns of its table besides name and URI.
TABLES: dict[str, tuple[str, ...]] = {
    "chassis": ("chassis_type", "manufacturer", "model", "serial_number", "health"),
    "drawers": ("number", "model", "serial_number", "mode", "health"),
    "slots": ("number", "pcie_type", "lanes", "occupied", "state"),
    "devices": (
        "kind",
        "manufacturer",
        "model",
        "serial_number",
        "vendor_id",
        "device_id",
        "pcie_type",
        "lanes_in_use",
    ),
    "functions": ("vendor_id", "device_id", "class_code", "device_class"),
    "switches": ("switch_type", "manufacturer", "model", "total_width", "firmware_version"),
    "ports": ("port_type", "link_status", "active_width", "width", "speed_gbps", "max_speed_gbps"),
    "port_metrics": ("rx_bytes", "tx_bytes"),
    "zones": ("zone_type", "state"),
    "endpoints": ("role", "entity_type", "protocol"),
    "connections": ("connection_type",),
    "virtual_switches": ("port_uri", "bound_uris"),
    "resource_blocks": ("composition_state",),
    "systems": ("manufacturer", "model", "serial_number", "uuid", "power_state"),
    "sensors": ("reading", "units", "reading_type", "health"),
    "fans": ("speed_percent", "speed_rpm", "health"),
    "components": ("kind", "variety", "manufacturer", "model", "serial_number", "capacity_bytes", "health"),
    "metrics": ("owner_uri", "pointers"),
    "log_services": ("overwrite_policy", "max_records"),
}


class Command(ExitCodeCommand):
    """Prints the inventory of a Redfish service as tables or JSON."""

    help = "Walk a Redfish service and print its chassis, slots, devices, ports, zones, sensors and problems."
    exit_codes = EXPLAINED
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("url", help="address of the service, such as https://10.0.0.5")
        parser.add_argument("--user", default="", help="user name; without it requests are not authenticated")
        parser.add_argument("--password-file", type=Path, help="file whose first line is the password")
        trust = parser.add_mutually_exclusive_group()
        trust.add_argument("--ca", type=Path, help="PEM file of the CA that signed the certificate")
        trust.add_argument("--fingerprint", default="", help="SHA-256 fingerprint of the certificate itself")
        parser.add_argument("--timeout", type=positive, default=10.0, help="seconds a request may take (default 10)")
        parser.add_argument(
            "--profile", nargs="?", const=FABRIC_PROFILE, metavar="NAME|FILE",
            help=f"say what the service lacks of an interoperability profile (default: {FABRIC_PROFILE})",
        )  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the inventory, or one sentence that explains the failure, and exit with its code."""
        try:
            profile = read_profile(options["profile"]) if options["profile"] else None
            address = read_address(options)
            inventory = asyncio.run(take_inventory(address, options["timeout"], profile))
        except ProfileError as error:
            self.stderr.write(str(error))
            sys.exit(USAGE)
        except BmcError as error:
            self.stderr.write(error.sentence)
            sys.exit(next((code for kind, code in EXIT_CODES if isinstance(error, kind)), OTHER))
        except OSError as error:
            self.stderr.write(f"{error.filename} cannot be read: {error.strerror}.")
            sys.exit(USAGE)
        if options["json"]:
            self.stdout.write(msgspec.json.format(msgspec.json.encode(inventory), indent=2).decode())
        else:
            self._print_tables(inventory)
            if profile is not None:
                self._print_gaps(profile, inventory.gaps or ())

    def _print_tables(self, inventory: Inventory) -> None:
        service = inventory.service
        who = " ".join(part for part in (service.vendor, service.product or service.name) if part)
        self.stdout.write(f"{printable(who)}, Redfish {printable(service.redfish_version)}")
        self.stdout.write(f"attach and detach: {inventory.dialect.value.replace('_', ' ')}")
        self.stdout.write(f"  {printable(inventory.dialect_reason)}")
        for kind, columns in TABLES.items():
            rows = getattr(inventory, kind)
            if rows:
                self._print_table(kind.replace("_", " "), ("name", *columns, "uri"), rows)
        self._print_problems(inventory.problems)

    def _print_table(self, title: str, columns: tuple[str, ...], rows: tuple[Any, ...]) -> None:
        heads = [column.replace("_", " ") for column in columns]
        cells = [[shown(getattr(row, column)) for column in columns] for row in rows]
        widths = [max(len(row[index]) for row in [heads, *cells]) for index in range(len(columns))]
        self.stdout.write(f"\n{title} ({len(rows)})")
        for row in [heads, *cells]:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.stdout.write(f"  {line.rstrip()}")

    def _print_problems(self, problems: tuple[InventoryProblem, ...]) -> None:
        self.stdout.write(f"\nproblems ({len(problems)})")
        for problem in problems:
            seen_from = f" (linked from {printable(problem.referrer)})" if problem.referrer else ""
            self.stdout.write(f"  {problem.kind.value}: {printable(problem.sentence)}{seen_from}")

    def _print_gaps(self, profile: InteropProfile, gaps: tuple[ProfileGap, ...]) -> None:
        self.stdout.write(f"\nlacks of the profile {printable(f'{profile.name} {profile.version}')} ({len(gaps)})")
        for purpose, found in gap_groups(gaps, profile.purposes):
            self.stdout.write(f"  {printable(purpose or 'all')}" + ("" if found else ": nothing"))
            for gap in found:
                level = "recommended" if gap.is_recommended else "mandatory"
                where = f"({', '.join(gap.examples)})" if gap.examples else ""
                words = " ".join(filter(None, (gap_sentence(gap), gap.reason, where)))
                self.stdout.write(f"    {level}: {printable(words)}")


def read_address(options: dict[str, Any]) -> BmcAddress:
    """Return the address and credentials; raises OSError for a file that cannot be read, WrongAddress if invalid."""
    ca_pem = ""
    if options["ca"]:
        try:
            ca_pem = options["ca"].read_text("ascii")
        except UnicodeDecodeError as error:
            raise WrongAddress("The CA file holds no certificate in PEM form.") from error
        if not ca_pem.strip():
            raise WrongAddress("The CA file is empty.")
    return BmcAddress(
        url=options["url"],
        username=options["user"],
        password=read_password(options["password_file"]) if options["user"] else "",
        trust=CertificateTrust(ca_pem=ca_pem, fingerprint=options["fingerprint"]),
    )


def read_password(file: Path | None) -> str:
    """Return the first line of a file, or the input at the terminal."""
    if file is None:
        try:
            return getpass.getpass("Password: ")
        except EOFError:
            raise WrongAddress("There is no terminal to type the password on: give it with --password-file.") from None
    return file.read_text("utf-8").split("\n", 1)[0].removesuffix("\r")


async def take_inventory(address: BmcAddress, timeout: float, profile: InteropProfile | None) -> Inventory:
    """Return the inventory of a whole service; raises BmcError."""
    async with BmcClient(address, timeout=timeout, access=RequestSlots(address.url)) as bmc:
        return await discover(bmc, everything=True, profile=profile)


def shown(value: object) -> str:
    """Return a value as a cell of a table."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(f"{value:g}" if isinstance(value, float) else str(value))


def printable(text: str) -> str:
    """Return text of a service without terminal control characters."""
    return "".join(character if character.isprintable() else "?" for character in text)


def positive(text: str) -> float:
    """Return a positive number of seconds; raises the error that argparse reports as usage."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("a positive number of seconds is needed")
    return seconds
