"""History of readings over any range, and its pages and charts."""
