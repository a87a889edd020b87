"""How something leaves the site: over HTTP and syslog, and the text forms in which it does."""
