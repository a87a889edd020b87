"""Fixtures for your own test suite: users, a simulated chassis, and a run isolated from any site.

One line in the root conftest enables everything; see docs/partner-tests.md:

    pytest_plugins = ["falconweb.testing"]

Fixtures: `falconweb_tenant`, `falconweb_administrator`, `falconweb_user`, `falconweb_viewer`, `falconweb_stranger`,
`administrator_client`, `user_client`, `viewer_client`, `stranger_client`, `anonymous_client`,
`falconweb_static_files`, `simulated_falcon`, `falcon_chassis`, `grant_to_tenant`,
`simulated_hosts`, `host_agent`. To import: what `__all__` names.

Production code must never import this package; import-linter checks that.
"""

from __future__ import annotations

from falconweb.testing.chassis import (
    add_chassis,
    add_mirrored,
    carry_out,
    carry_out_plan,
    device_in,
    host_port_of,
    mirror,
)
from falconweb.testing.hosts import AgentProcess
from falconweb.testing.people import PASSWORD
from falconweb.testing.processes import SimulatorProcess

__all__ = [
    "PASSWORD",
    "AgentProcess",
    "SimulatorProcess",
    "add_chassis",
    "add_mirrored",
    "carry_out",
    "carry_out_plan",
    "device_in",
    "host_port_of",
    "mirror",
]

pytest_plugins = [
    "falconweb.testing.environment",
    "falconweb.testing.people",
    "falconweb.testing.chassis",
    "falconweb.testing.hosts",
]
