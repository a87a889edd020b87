"""How messages leave the site: webhooks, syslog, and their formats."""
