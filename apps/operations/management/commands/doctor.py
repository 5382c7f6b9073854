"""`doctor [--cluster C] [--json]`: what is wrong with the data and the GPUs, and what to do."""

import json
from argparse import ArgumentParser
from datetime import UTC, datetime
from io import StringIO
from shutil import get_terminal_size
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console

from apps.operations import services
from apps.operations.management import diagnosis as words

_WIDEST = 120


class Command(BaseCommand):
    help = (
        "Examine clusters: connections, metrics, labels, rights, quotas and how GPUs are shared. "
        "Each finding comes with its fix; ends with 1 when there is an error."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--cluster", help="only this one; default: all of the catalog")
        parser.add_argument("--json", action="store_true", help="print JSON, for scripts")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            found = services.run_doctor(datetime.now(UTC), cluster=options["cluster"])
        except services.UnknownCluster as error:
            raise CommandError(f"{error}; `load_catalog` brings one in") from error
        if options["json"]:
            self.stdout.write(json.dumps(words.document(found), indent=2, ensure_ascii=False))
        else:
            self.stdout.write(self._text(found))
        if found.errors:
            raise CommandError(f"{words.summary(found)}; see the fixes above", returncode=1)

    def _text(self, found: services.Diagnosis) -> str:
        """Return the diagnosis as wide as the terminal, in its colours; plain into a file."""
        page = StringIO()
        words.show(
            found,
            Console(
                file=page,
                width=min(get_terminal_size().columns, _WIDEST),
                force_terminal=self.stdout.isatty(),
                highlight=False,
                markup=False,
                emoji=False,
            ),
        )
        return page.getvalue()
