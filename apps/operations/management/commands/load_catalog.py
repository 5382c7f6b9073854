"""`manage.py load_catalog FILE [--dry-run]`."""

import sys
from pathlib import Path
from typing import IO, Any, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from rich.console import Console
from rich.table import Table
from rich.text import Text

from apps.operations.domain.source_positions import CatalogError
from apps.operations.domain.timeline import CatalogDifference
from apps.operations.services import CatalogNotStored, load_catalog
from apps.quota_requests.selectors import writable_clusters


class Command(BaseCommand):
    help = "Load clusters, tiers, teams and prices from a YAML file (docs/catalog.md)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="the catalog; - reads standard input")
        parser.add_argument(
            "--dry-run", action="store_true", help="print what would change and write nothing"
        )
        parser.add_argument(
            "--undo-approved",
            action="store_true",
            help="load the file although it undoes what was approved on pages since the last load",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        filename, dry_run = options["file"], options["dry_run"]
        text = _text_of(filename)
        try:
            difference = load_catalog(
                text,
                filename,
                now=timezone.now(),
                dry_run=dry_run,
                undo_approved=options["undo_approved"],
            )
        except CatalogError as error:
            wrong = len(error.problems)
            raise CommandError(
                f"{error}\n{wrong} {'error' if wrong == 1 else 'errors'}; nothing was changed"
            ) from error
        except CatalogNotStored as error:
            raise CommandError(f"{filename}: {error}") from error
        self._print(difference, dry_run=dry_run)

    def _print(self, difference: CatalogDifference, *, dry_run: bool) -> None:
        if difference.is_empty:
            self.stdout.write("The catalog is loaded already; nothing changes.")
            return
        if self.stdout.isatty():
            Console(file=cast("IO[str]", self.stdout)).print(_table(difference))
        else:
            for line in difference.texts():
                self.stdout.write(line)
        if not dry_run and (writable := writable_clusters()):
            self.stdout.write(
                f"Quotas can be changed by the portal in: {', '.join(writable)}; elsewhere by "
                "commits (GitOps)"
            )
        counts = ", ".join(f"{count} {action}" for action, count in difference.counts().items())
        self.stdout.write(f"Dry run, nothing written: {counts}" if dry_run else f"Loaded: {counts}")


def _text_of(filename: str) -> str:
    try:
        octets = sys.stdin.buffer.read() if filename == "-" else Path(filename).read_bytes()
    except OSError as error:
        raise CommandError(f"{filename} cannot be read: {error.strerror}") from error
    try:
        return octets.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = octets.count(b"\n", 0, error.start) + 1
        raise CommandError(f"{filename}:{line}: is not UTF-8 text; nothing was changed") from error


def _table(difference: CatalogDifference) -> Table:
    table = Table("", "what", "name", "from", "change")
    for change in difference.changes:
        table.add_row(
            change.action,
            change.what,
            Text(change.name),
            change.at.isoformat() if change.at else "now",
            Text("\n".join(str(column) for column in change.columns)),
        )
    return table
