"""What was measured, over any range, and the pages and charts that show it."""
