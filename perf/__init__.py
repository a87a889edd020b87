"""Benchmarks of the site itself, each compared with simpler implementations; started by `make perf`."""
