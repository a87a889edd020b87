"""Records that leave and enter: JSON Lines, CSV, and the output of well-known tools."""
