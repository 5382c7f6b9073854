"""Make room for kinds of up to 63 characters, which the code has allowed since topologies came."""

from typing import Any

from django.db import migrations


def widen(_apps: Any, editor: Any) -> None:
    """Widen the column; SQLite does not mind how long a text is."""
    if editor.connection.vendor == "postgresql":
        # Only the length that is allowed changes: no row is written or read for it.
        editor.execute("ALTER TABLE clusters_observedobject ALTER COLUMN kind TYPE varchar(63)")


class Migration(migrations.Migration):
    dependencies = [("clusters", "0015_pod_gpus")]

    operations = [migrations.RunPython(widen, migrations.RunPython.noop)]
