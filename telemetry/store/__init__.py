"""Stored readings: chunks of a minute, their rollups, and gaps."""
