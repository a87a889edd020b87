"""The base of all rooms, which imports none of them: one subject a module."""
