"""Who held what, and what was attached where, over time."""
