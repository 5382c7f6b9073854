"""`manage.py load_catalog FILE [--dry-run | --follow]`."""

import logging
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, close_old_connections
from django.utils import timezone
from rich.console import Console
from rich.table import Table
from rich.text import Text

from apps.operations.domain.source_positions import CatalogError
from apps.operations.domain.timeline import CatalogDifference
from apps.operations.services import CatalogNotStored, load_catalog
from apps.quota_requests.selectors import writable_clusters

logger = logging.getLogger(__name__)

_POLL_SECONDS = 10.0


class Command(BaseCommand):
    help = "Load clusters, tiers, teams and prices from a YAML file (docs/catalog.md)."
    requires_system_checks = ()  # they import every page: a second, and 30 MB

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="the catalog; - reads standard input")
        parser.add_argument(
            "--dry-run", action="store_true", help="print what would change and write nothing"
        )
        parser.add_argument(
            "--follow",
            action="store_true",
            help="go on until told to end, and load the file again whenever it changes",
        )
        parser.add_argument(
            "--undo-approved",
            action="store_true",
            help="load the file although it undoes what was approved on pages since the last load",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        filename, dry_run = options["file"], options["dry_run"]
        if options["follow"]:
            if dry_run or filename == "-":
                raise CommandError("--follow needs a FILE that it may load")
            self._follow(filename, undo_approved=options["undo_approved"])
            return
        self._load(_text_of(filename), filename, dry_run=dry_run, options=options)

    def _follow(self, filename: str, *, undo_approved: bool) -> None:
        """Load the file now and after each change, until SIGTERM or Ctrl-C."""

        def load(text: str) -> None:
            self._load(text, filename, dry_run=False, options={"undo_approved": undo_approved})
            self.stdout.flush()

        follower = CatalogFollower(Path(filename), load)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Noted and not raised: a load that has begun is finished.
            signal.signal(number, lambda *_: stop.set())
        while True:
            follower.check()
            # No request ends here, after which Django would drop a connection that went bad.
            close_old_connections()
            if stop.wait(_POLL_SECONDS):
                return

    def _load(self, text: str, filename: str, *, dry_run: bool, options: dict[str, Any]) -> None:
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


class CatalogFollower:
    """Loads a file at the start, and whenever what it holds has changed."""

    def __init__(self, path: Path, load: Callable[[str], None]) -> None:
        self._path = path
        self._load = load
        self._text: str | None = None
        self._reported = ""

    def check(self) -> None:
        """Load the file where it changed; what goes wrong is logged once, and tried again."""
        try:
            text = _text_of(str(self._path))
            if text != self._text:
                self._load(text)
                self._text, self._reported = text, ""
        except (CommandError, DatabaseError) as error:
            # A catalog with errors may need what another process is about to write, as the
            # approval that it would undo: it is tried again, and its errors are logged once.
            if str(error) != self._reported:
                self._reported = str(error)
                logger.error("%s", error)  # noqa: TRY400 - the text says it all


def _text_of(filename: str) -> str:
    try:
        octets = sys.stdin.buffer.read() if filename == "-" else Path(filename).read_bytes()
    except OSError as error:
        raise CommandError(f"{filename} cannot be read: {error.strerror}") from error
    try:
        # Some editors write a mark before the first line, which is no part of the catalog.
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
            # As plain text: brackets in a name would be read as markup.
            Text(change.name),
            change.at.isoformat() if change.at else "now",
            Text("\n".join(str(column) for column in change.columns)),
        )
    return table
