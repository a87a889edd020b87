"""Export and import of records: JSON Lines, CSV, and the output of well-known tools."""
