"""The site's own counters and gauges: counted in each process, published to Redis."""
