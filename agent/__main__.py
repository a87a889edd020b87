"""`python -m agent`: the agent of this host. `python -m agent --look` shows what it would report, and ends."""

from __future__ import annotations

import logging
import os
import sys

import msgspec

from agent.journal import JournalError
from agent.settings import Settings, SettingsError


def main(arguments: list[str] | None = None) -> int:
    """Run the agent; returns the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments not in ([], ["--look"]):
        sys.stderr.write(
            "usage: python -m agent [--look]\nThe settings are environment variables: see docs/agent.md.\n"
        )
        return 2
    # The agent's files, its journal included, are readable by its own account only.
    os.umask(0o077)
    try:
        if arguments:
            return _look()
        settings = Settings.of_process()
        # Importing Celery takes half a second: an invalid setting is reported before.
        from agent.application import run

        run(settings)
    except (SettingsError, JournalError) as error:
        sys.stderr.write(f"The agent did not start: {error}\n")
        return 1
    return 0


def _look() -> int:
    from agent.machine import Machine
    from agent.report import HostReporter
    from agent.runs.manager import RunManager
    from hostwire.signing import new_key

    # `--look` needs neither key nor broker.
    unused = {"AGENT_KEY": new_key(), "AGENT_BROKER": "unused", "AGENT_HOST": "this host"}
    settings = Settings.from_environment({**unused, **os.environ})
    machine = Machine(settings.root, read_seconds=settings.read_seconds, step_seconds=settings.step_seconds)
    report = HostReporter(settings, machine, RunManager(settings, machine)).read()
    machine.close()
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
