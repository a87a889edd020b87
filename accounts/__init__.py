"""Who: people, tenants, roles and tokens."""
