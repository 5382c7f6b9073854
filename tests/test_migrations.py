"""Migrations run while processes of the version before still work: they add, and lock nothing long.

The first migration of a room makes its tables; these rules are for those that follow.
"""

from collections.abc import Iterable, Iterator

import pytest
from django.apps import apps
from django.db import connection
from django.db.migrations import (
    AddConstraint,
    AddField,
    AddIndex,
    AlterField,
    CreateModel,
    RunPython,
    RunSQL,
    SeparateDatabaseAndState,
)
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.models import NOT_PROVIDED

from apps.clusters.models import Pod

FIRST = "0001_tables"
ADDING = (CreateModel, AddField, AddIndex, AddConstraint, AlterField, RunPython, RunSQL)
CONTRACTING = "_contract"
"""In the name of a migration that takes away what the version before does not use any more."""


def later_migrations() -> list[tuple[str, Migration]]:
    rooms = {one.label for one in apps.get_app_configs() if one.name.startswith("apps.")}
    found = MigrationLoader(None).disk_migrations
    return [
        (f"{room}.{name}", migration)
        for (room, name), migration in sorted(found.items())
        if room in rooms and name != FIRST
    ]


LATER = later_migrations()


def locking(operations: list[Operation]) -> Iterator[str]:
    """Yield the operations that build an index or check all rows of a table that has some."""
    new = {one.name_lower for one in operations if isinstance(one, CreateModel)}
    for one in operations:
        if type(one) in {AddIndex, AddConstraint, AlterField} and (
            getattr(one, "model_name_lower", "") not in new
        ):
            yield one.describe()
        elif isinstance(one, AddField) and one.model_name_lower not in new:
            field = one.field
            # The version before writes rows without it, and an index of it would lock the table.
            filled = field.null or field.many_to_many or field.db_default is not NOT_PROVIDED
            if not filled or getattr(field, "db_index", False) or field.unique:
                yield one.describe()


def in_the_database(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Yield the operations without those that only the code knows of."""
    for one in operations:
        if isinstance(one, SeparateDatabaseAndState):
            yield from one.database_operations
        else:
            yield one


@pytest.mark.parametrize(("name", "migration"), LATER, ids=[name for name, _ in LATER])
def test_a_migration_only_adds_what_the_version_before_can_work_with(
    name: str, migration: Migration
) -> None:
    operations = list(in_the_database(migration.operations))
    assert list(locking(operations)) == []
    if CONTRACTING not in name:
        assert [one.describe() for one in operations if not isinstance(one, ADDING)] == []


@pytest.mark.django_db
def test_pods_have_no_index_that_a_wider_one_begins_with() -> None:
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, Pod._meta.db_table)
    # A foreign key without an index is listed, too.
    indexes = [one["columns"] for one in found.values() if one["index"] or one["unique"]]
    assert ["cluster_id", "uid"] in indexes
    assert ["workload_id", "created_at"] in indexes
    covered = [
        one
        for one in indexes
        for other in indexes
        if len(other) > len(one) and other[: len(one)] == one
    ]
    assert covered == []
