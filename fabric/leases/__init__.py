"""Leases, grants and quotas: the assignment of devices and host ports to tenants over time."""
