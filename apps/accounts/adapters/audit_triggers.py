"""Triggers by which the database itself refuses to change or delete what the audit holds.

Who owns the tables can drop them; against that the head is noted elsewhere. They are against
everybody else: a console, a script, a mistake. An entry is never updated and never deleted, and
the head only goes forward by one. Refusals are integrity errors.

`forwards` and `backwards` fit `RunPython`, and may each be run again.
"""

from typing import Final

from django.apps.registry import Apps
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# An INSERT OR REPLACE deletes without asking the triggers of a deletion, so that it is refused
# before: a number is there once.
_SQLITE: Final = {
    "audit_entry_once": """
        CREATE TRIGGER audit_entry_once BEFORE INSERT ON accounts_auditentry
        WHEN EXISTS (SELECT 1 FROM accounts_auditentry WHERE number = NEW.number)
        BEGIN SELECT RAISE(ABORT, 'the audit has an entry of this number'); END""",
    "audit_entry_kept": """
        CREATE TRIGGER audit_entry_kept BEFORE UPDATE ON accounts_auditentry
        BEGIN SELECT RAISE(ABORT, 'an entry of the audit is never changed'); END""",
    "audit_entry_there": """
        CREATE TRIGGER audit_entry_there BEFORE DELETE ON accounts_auditentry
        BEGIN SELECT RAISE(ABORT, 'an entry of the audit is never deleted'); END""",
    "audit_head_once": """
        CREATE TRIGGER audit_head_once BEFORE INSERT ON accounts_audithead
        WHEN EXISTS (SELECT 1 FROM accounts_audithead)
        BEGIN SELECT RAISE(ABORT, 'the audit has one head'); END""",
    "audit_head_forward": """
        CREATE TRIGGER audit_head_forward BEFORE UPDATE ON accounts_audithead
        WHEN NEW.number <> OLD.number + 1 OR NEW.id <> OLD.id
        BEGIN SELECT RAISE(ABORT, 'the head of the audit goes forward by one'); END""",
    "audit_head_there": """
        CREATE TRIGGER audit_head_there BEFORE DELETE ON accounts_audithead
        BEGIN SELECT RAISE(ABORT, 'the head of the audit is never deleted'); END""",
}

_POSTGRESQL_DROP: Final = (
    "DROP TRIGGER IF EXISTS audit_entry_kept ON accounts_auditentry",
    "DROP TRIGGER IF EXISTS audit_entry_whole ON accounts_auditentry",
    "DROP TRIGGER IF EXISTS audit_head_forward ON accounts_audithead",
    "DROP TRIGGER IF EXISTS audit_head_there ON accounts_audithead",
    "DROP TRIGGER IF EXISTS audit_head_whole ON accounts_audithead",
    "DROP FUNCTION IF EXISTS gpuportal_audit_refused()",
)
_POSTGRESQL: Final = (
    """
    CREATE FUNCTION gpuportal_audit_refused() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION USING ERRCODE = 'restrict_violation',
            MESSAGE = 'the audit is only added to: ' || TG_OP || ' of ' || TG_TABLE_NAME;
    END $$""",
    """
    CREATE TRIGGER audit_entry_kept BEFORE UPDATE OR DELETE ON accounts_auditentry
    FOR EACH ROW EXECUTE FUNCTION gpuportal_audit_refused()""",
    # TRUNCATE asks no trigger of rows, so that it needs one of its own.
    """
    CREATE TRIGGER audit_entry_whole BEFORE TRUNCATE ON accounts_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION gpuportal_audit_refused()""",
    """
    CREATE TRIGGER audit_head_forward BEFORE UPDATE ON accounts_audithead
    FOR EACH ROW WHEN (NEW.number <> OLD.number + 1 OR NEW.id <> OLD.id)
    EXECUTE FUNCTION gpuportal_audit_refused()""",
    """
    CREATE TRIGGER audit_head_there BEFORE DELETE ON accounts_audithead
    FOR EACH ROW EXECUTE FUNCTION gpuportal_audit_refused()""",
    """
    CREATE TRIGGER audit_head_whole BEFORE TRUNCATE ON accounts_audithead
    FOR EACH STATEMENT EXECUTE FUNCTION gpuportal_audit_refused()""",
)


def forwards(apps: Apps | None, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Put the triggers there."""
    # Dropped first, so that a changed trigger takes the place of the one that is there.
    backwards(apps, schema_editor)
    sqlite = schema_editor.connection.vendor == "sqlite"
    for statement in _SQLITE.values() if sqlite else _POSTGRESQL:
        schema_editor.execute(statement, None)


def backwards(_apps: Apps | None, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Take the triggers away, those that are there."""
    sqlite = schema_editor.connection.vendor == "sqlite"
    drops = [f"DROP TRIGGER IF EXISTS {name}" for name in _SQLITE] if sqlite else _POSTGRESQL_DROP
    for statement in drops:
        schema_editor.execute(statement, None)
