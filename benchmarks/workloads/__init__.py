"""What can be run: typed definitions with presets. Knows no database."""
