"""Template filters of telemetry."""
