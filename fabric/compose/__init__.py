"""Several devices at once from the topology: their impact, the request, and the task drawer."""
