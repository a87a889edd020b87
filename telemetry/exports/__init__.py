"""Exports of events: definitions, runs, formats, targets."""
