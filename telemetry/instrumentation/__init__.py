"""The site's own counters and gauges: kept in each process, published to Redis."""
