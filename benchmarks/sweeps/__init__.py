"""Sweeps: a grid of runs."""
