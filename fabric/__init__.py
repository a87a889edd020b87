"""The fabric: chassis and their hardware, operations, plans, drift, history, leases and hosts' agents."""
