"""Telemetry: polling, live push, the store, history, links, events, exports and alerts."""
