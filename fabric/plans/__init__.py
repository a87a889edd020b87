"""Plans of several operations: planned, reviewed, applied, rolled back."""
