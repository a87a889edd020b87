"""Template tags of links."""
