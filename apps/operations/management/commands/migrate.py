"""`migrate`, which refuses a database that another version of the portal made."""

from typing import Any

from django.core.management.commands import migrate
from django.db import connections

from apps.operations.management.database_version import check_database_version


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        check_database_version(connections[options["database"]])
        super().handle(*args, **options)
