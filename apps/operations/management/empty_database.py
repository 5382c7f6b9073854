"""Tables of an empty database, made as the models are and not migration by migration.

For each step of a migration Django computes all models anew: twenty CPU seconds for tables without
a row. `tests/upgrade/test_empty_database.py` holds that both ways make the same.
"""

from collections.abc import Iterator
from typing import Any, Final

from django.apps import apps
from django.db import router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import RunPython
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.migration import Migration
from django.db.migrations.recorder import MigrationRecorder

ROOMS: Final = "apps."


def room_labels() -> frozenset[str]:
    return frozenset(one.label for one in apps.get_app_configs() if one.name.startswith(ROOMS))


def make_tables(connection: BaseDatabaseWrapper) -> bool:
    """Make the tables of an empty database and note all migrations as applied, all or nothing.

    What models do not say, triggers and partitions, is what `RunPython` of the migrations makes,
    where it is not `elidable`. One in a `SeparateDatabaseAndState` makes what models say by now.
    Returns False, and does nothing, where there are tables already.
    """
    executor = MigrationExecutor(connection)
    plan = [one for one, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    if room_labels().isdisjoint(one.app_label for one in plan):
        return False  # up to date, or tests without migrations
    with connection.schema_editor() as editor:
        if connection.introspection.table_names():
            return False
        for model in (*_models(connection), MigrationRecorder.Migration):
            editor.create_model(model)
        # Foreign keys and indexes, which an editor keeps for its end.
        for statement in editor.deferred_sql:
            editor.execute(statement, None)
        editor.deferred_sql.clear()
        for operation in _by_hand(plan):
            operation.code(apps, editor)
        recorder = MigrationRecorder(connection)
        rows = [recorder.Migration(app=one.app_label, name=one.name) for one in plan]
        recorder.migration_qs.bulk_create(rows)
    return True


def _models(connection: BaseDatabaseWrapper) -> Iterator[Any]:
    for config in apps.get_app_configs():
        # Tables of many-to-many fields are made with their models.
        for model in router.get_migratable_models(
            config, connection.alias, include_auto_created=False
        ):
            if model._meta.can_migrate(connection):
                yield model


def _by_hand(plan: list[Migration]) -> Iterator[Any]:
    for migration in plan:
        if migration.app_label in room_labels():
            for operation in migration.operations:
                if isinstance(operation, RunPython) and not operation.elidable:
                    yield operation
