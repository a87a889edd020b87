"""Runs of benchmarks: asked for, queued, composed, carried out on a host, recorded."""
