"""From a workload and the devices at hand to a ranked list of compositions."""
