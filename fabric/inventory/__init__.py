"""Chassis and their hardware, mirrored from their BMCs."""
