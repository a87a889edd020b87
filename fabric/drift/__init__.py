"""Drift: differences from the approved allocation, and the actions on them."""
