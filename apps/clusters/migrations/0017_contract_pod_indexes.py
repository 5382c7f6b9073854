"""Drop two indexes of pods that wider ones cover: a pod is written with two entries less."""

from typing import Any

from django.db import migrations, models
from django.db.models import CASCADE

# Django named them by table and column: (index, column).
_COVERED = (
    ("clusters_pod_cluster_id_3bcc3a1b", "cluster_id"),
    ("clusters_pod_workload_id_7ee8f0c2", "workload_id"),
)


def _drop(_apps: Any, schema_editor: Any) -> None:
    # PostgreSQL waits for nobody and keeps nobody out; SQLite would write the table anew to alter
    # the columns, and an index goes without that.
    beside = "CONCURRENTLY " if schema_editor.connection.vendor == "postgresql" else ""
    for name, _ in _COVERED:
        schema_editor.execute(f"DROP INDEX {beside}IF EXISTS {name}")


def _make(_apps: Any, schema_editor: Any) -> None:
    beside = "CONCURRENTLY " if schema_editor.connection.vendor == "postgresql" else ""
    for name, column in _COVERED:
        schema_editor.execute(
            f"CREATE INDEX {beside}IF NOT EXISTS {name} ON clusters_pod ({column})"
        )


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("clusters", "0016_observed_kind_length")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(_drop, _make)],
            state_operations=[
                migrations.AlterField(
                    "pod",
                    "cluster",
                    models.ForeignKey("clusters.Cluster", on_delete=CASCADE, db_index=False),
                ),
                migrations.AlterField(
                    "pod",
                    "workload",
                    models.ForeignKey("clusters.Workload", on_delete=CASCADE, db_index=False),
                ),
            ],
        ),
    ]
