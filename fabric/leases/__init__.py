"""Leases, grants and quotas: which tenant holds what."""
