"""Runs of benchmarks on this host: each has a folder and a keeper, a process that goes on when the agent ends."""
