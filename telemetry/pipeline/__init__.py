"""The pipeline's own health: polled, stored and dropped readings, and their delays."""
