"""Real processes that tests talk to; the simulated chassis is everybody's, so it lives in falconweb.testing."""

from __future__ import annotations

from pathlib import Path

from falconweb.testing import SimulatorProcess

__all__ = ["ROOT", "SimulatorProcess"]

ROOT = Path(__file__).resolve().parent.parent
