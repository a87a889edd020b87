"""Attachment history: which tenant had which device, and where it was attached, over time."""
