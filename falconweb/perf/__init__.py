"""Measures the live path, beside plain programs that do the same in the same run; kept apart from the tests."""
