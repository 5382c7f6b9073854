"""`manage.py export_catalog [FILE]`."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from apps.operations.management.whole_file import write_whole
from apps.operations.services import export_catalog


class Command(BaseCommand):
    help = "Write the catalog as it is loaded, with what was approved on pages (docs/catalog.md)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "file", metavar="FILE", nargs="?", default="-", help="where to; - is standard output"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if write_whole(export_catalog(now=timezone.now()), options["file"], self.stdout):
            self.stdout.write(f"Written to {options['file']}; loading it changes nothing.")
