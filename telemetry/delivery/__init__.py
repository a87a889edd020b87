"""Delivery to other systems: over HTTP and syslog, and the text formats of both."""
