"""The database engine of `readings.sqlite3`, which may be replaced while the site runs."""
