"""The pipeline's own health: what was polled, kept, dropped, and how late."""
