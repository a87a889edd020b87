"""The database engine of a site without PostgreSQL; the setting `ENGINE` names this package."""
