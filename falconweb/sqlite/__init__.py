"""The database engine of a site without PostgreSQL: `ENGINE` of the settings names this package."""
