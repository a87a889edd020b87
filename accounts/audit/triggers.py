"""Database triggers of the audit log: entries cannot be changed or deleted, and each must follow the last.

A user who may alter the tables can drop the triggers; the chain then shows the manipulation. A migration that changes
one of the tables must drop them before and install them after: SQLite recreates such a table without its triggers.
"""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

ENTRIES, HEAD = "accounts_auditentry", "accounts_audithead"
REFUSAL = "the audit log is append-only"

SQLITE = {
    "audit_no_update": f"BEFORE UPDATE ON {ENTRIES} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END",
    "audit_no_delete": f"BEFORE DELETE ON {ENTRIES} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END",
    # INSERT OR REPLACE deletes without firing the delete trigger.
    "audit_in_order": (
        f"BEFORE INSERT ON {ENTRIES} WHEN NEW.sequence <> (SELECT COALESCE(MAX(sequence), 0) + 1 FROM {ENTRIES}) "  # noqa: S608 - constants
        f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    ),
    "audit_head_stays": f"BEFORE DELETE ON {HEAD} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END",
}
FUNCTION = f"""
    CREATE OR REPLACE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$
"""
POSTGRESQL = {
    "audit_no_update": f"BEFORE UPDATE ON {ENTRIES} FOR EACH ROW EXECUTE FUNCTION audit_refuse()",
    "audit_no_delete": f"BEFORE DELETE ON {ENTRIES} FOR EACH ROW EXECUTE FUNCTION audit_refuse()",
    "audit_no_truncate": f"BEFORE TRUNCATE ON {ENTRIES} FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse()",
    "audit_head_stays": f"BEFORE DELETE ON {HEAD} FOR EACH ROW EXECUTE FUNCTION audit_refuse()",
    "audit_head_no_truncate": f"BEFORE TRUNCATE ON {HEAD} FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse()",
}


def install(connection: BaseDatabaseWrapper) -> None:
    """Install the triggers."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(FUNCTION)
        for name, body in _triggers_of(connection).items():
            cursor.execute(f"CREATE TRIGGER {name} {body}")


def lift(connection: BaseDatabaseWrapper) -> None:
    """Drop the triggers: to undo the migration, and for tests, which delete their rows."""
    with connection.cursor() as cursor:
        for name, body in _triggers_of(connection).items():
            table = f" ON {HEAD if HEAD in body else ENTRIES}" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{table}")


def install_by_migration(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Install as a step of a migration."""
    install(editor.connection)


def lift_by_migration(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Drop as a step of a reversed migration."""
    lift(editor.connection)


def _triggers_of(connection: BaseDatabaseWrapper) -> dict[str, str]:
    return {"sqlite": SQLITE, "postgresql": POSTGRESQL}.get(connection.vendor, {})
