"""Find the hours of one workload without reading those of all others of its cluster."""

from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class AddIndexBesideWriters(AddIndexConcurrently):
    """PostgreSQL makes it without keeping writers out; SQLite has one writer in any case."""

    def database_forwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, *states)
        else:
            migrations.AddIndex.database_forwards(self, app_label, schema_editor, *states)

    def database_backwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, *states)
        else:
            migrations.AddIndex.database_backwards(self, app_label, schema_editor, *states)


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("usage", "0001_tables")]

    operations = [
        AddIndexBesideWriters(
            "podhour", models.Index(fields=["workload", "hour"], name="pod_hour_workload")
        ),
    ]
