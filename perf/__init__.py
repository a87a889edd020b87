"""Measurements of the site itself, each beside simpler ways; started by `make perf`."""
