"""`migrate`, which refuses a database that another version of the portal made."""

from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

ROOMS = "apps."


def check_database_version(connection: BaseDatabaseWrapper) -> None:
    """Raise CommandError when the database knows a migration of a room that this version lacks."""
    rooms = {config.label for config in apps.get_app_configs() if config.name.startswith(ROOMS)}
    applied = MigrationRecorder(connection).applied_migrations()
    known = MigrationLoader(None).disk_migrations
    if not any(room in rooms and (room, name) not in known for room, name in applied):
        return
    database = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite":
        way_out = "move the file away to start with an empty one"
    else:
        way_out = "name an empty one in DATABASE_URL"
    raise CommandError(f"another version of the portal made the database {database}: {way_out}")


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        check_database_version(connections[options["database"]])
        super().handle(*args, **options)
