"""Failures: what happens to a composition when a device, its link, its switch or its host fails."""
