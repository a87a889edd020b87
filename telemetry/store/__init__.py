"""Every reading, kept: chunks of a minute, their rollups, and what is missing."""
