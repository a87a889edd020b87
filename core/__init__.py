"""What every room stands on, and which knows none of them: one subject a module."""
