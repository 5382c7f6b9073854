"""`migrate`: makes the tables of an empty database at once, refuses one of another version."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.checks import Tags
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from apps.operations.management.empty_database import make_tables, room_labels

logger = logging.getLogger(__name__)

# Any number that no other program takes for an advisory lock in this database.
_LOCK = 7_310_594_868
_AGAIN_SECONDS = 1.0
_KEEPALIVES = {
    "tcp_keepalives_idle": 20,
    "tcp_keepalives_interval": 10,
    "tcp_keepalives_count": 4,
}
"""The server lets go of a client after a minute of silence. A Unix socket needs none of them."""


def check_database_version(connection: BaseDatabaseWrapper) -> None:
    """Raise CommandError when the database knows a migration of a room that this version lacks."""
    rooms = room_labels()
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


@contextmanager
def migration_lock(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Let one `migrate` of this database work at a time; PostgreSQL only, SQLite locks its file.

    The lock belongs to a transaction of a second connection: behind PgBouncer, which gives each
    transaction another session, a lock of the session would be lost. The others ask again and
    again: a query that blocks would stop the first one's CREATE INDEX CONCURRENTLY for ever.
    """
    if connection.vendor != "postgresql":
        yield
        return
    holder = connection.copy()
    try:
        while not _taken(holder):
            logger.info("another process migrates the database; trying again until it has ended")
            time.sleep(_AGAIN_SECONDS)
        yield
    finally:
        # A connection that is closed ends at the server a little later; a transaction ends at once.
        holder.rollback()
        holder.close()


def _taken(holder: BaseDatabaseWrapper) -> bool:
    """Begin a transaction and say whether it has the lock; without it the transaction ends."""
    holder.set_autocommit(False)
    with holder.cursor() as cursor:
        # It idles for as long as the migrations take, which other transactions may not.
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        # A node that dies says nothing: without these its lock would be held for two hours.
        for name, value in _KEEPALIVES.items():
            cursor.execute(f"SET LOCAL {name} = {value}")
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        (taken,) = cursor.fetchone()
    if not taken:
        holder.rollback()
    return bool(taken)


@contextmanager
def _without_time_outs(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Lift the time-outs of this session: an index of a large table takes as long as it takes."""
    # A session of PgBouncer goes to others meanwhile.
    if connection.vendor != "postgresql" or settings.PGBOUNCER:
        yield
        return
    names = ("statement_timeout", "lock_timeout")
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"SET {name} = 0")
    yield
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"RESET {name}")


class Command(migrate.Command):
    def check(self, *args: Any, **options: Any) -> None:
        """Check what becomes tables; the addresses of pages take longer to load than tables do."""
        super().check(*args, **{"tags": [Tags.models, Tags.database], **options})

    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        if options["check_unapplied"]:
            # Called by processes that start after migrations. During an upgrade pods of the version
            # before start again too, and find nothing that they would have to wait for.
            super().handle(*args, **options)
            return
        with migration_lock(connection):
            check_database_version(connection)
            with _without_time_outs(connection):
                partly = options["app_label"] or options["plan"] or options["fake"]
                if not partly and make_tables(connection) and options["verbosity"] >= 1:
                    self.stdout.write("The database was empty: all its tables are made.")
                super().handle(*args, **options)
