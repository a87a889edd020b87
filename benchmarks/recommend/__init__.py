"""From a workload and a free pool to a ranked list of compositions."""
