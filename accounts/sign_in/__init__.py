"""Signing in and out, and what guards it."""
