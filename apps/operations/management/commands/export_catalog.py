"""`manage.py export_catalog [FILE]`."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.operations.services import export_catalog


class Command(BaseCommand):
    help = "Write the catalog as it is loaded, with what was approved on pages (docs/catalog.md)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "file", metavar="FILE", nargs="?", default="-", help="where to; - is standard output"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        text = export_catalog(now=timezone.now())
        if options["file"] == "-":
            self.stdout.write(text, ending="")
            return
        path = Path(options["file"])
        part = path.with_name(f"{path.name}.part")
        try:
            part.write_text(text, encoding="utf-8")
            # A catalog that was only half written must never be loaded.
            part.replace(path)
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror}") from error
        self.stdout.write(f"Written to {path}; loading it changes nothing.")
