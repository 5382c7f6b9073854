"""`move_database FILE`: everything from SQLite to the PostgreSQL of DATABASE_URL."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.operations.management.database_move import MoveRefused, move_database


class Command(BaseCommand):
    help = (
        "Copy all rows of an SQLite file into the migrated, empty PostgreSQL of DATABASE_URL, and "
        "compare both. Stop web, worker, beat and watch before. The file stays as it is."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="the SQLite file, as var/portal.db")

    def handle(self, *, file: Path, **options: Any) -> None:
        def tell(table: str, rows: int) -> None:
            if rows and options["verbosity"]:
                self.stdout.write(f"{rows:>12,}  {table}")

        try:
            rows = move_database(file, tell)
        except MoveRefused as refused:
            raise CommandError(str(refused)) from refused
        self.stdout.write(f"{rows:,} rows moved; counts and checksums of all tables are the same.")
