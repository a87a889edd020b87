"""The catalogue of workloads: typed definitions with presets. Uses no database."""
