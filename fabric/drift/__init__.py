"""What is not as approved, and what is done about it."""
